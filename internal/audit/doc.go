// Package audit recomputes from the database what the services promise about it.
//
// It shares no code with the services: it knows the tables alone, and asks each promise as one SQL question whose
// rows are the violations. All questions of one audit are put to one REPEATABLE READ snapshot, so an audit may run
// beside any load: what it checks holds at every committed state, not only at rest.
//
// # What it checks
//
//   - Money: the entries of every transfer sum to zero and are exactly its two sides; a balance is the sum of its
//     entries; deposits minus withdrawals are what is available and held; what is held is the sum of the open holds;
//     nothing is negative.
//   - Lottery: sold positions are the purchases, at most the total, each position once, sale numbers without a gap;
//     every purchase was paid once, at its layer's price; the escrow holds the takings until the campaign completes
//     (the beneficiary has them) or is cancelled (the buyers have them back); one draw exactly if completed; winners
//     are sold positions, distinct within a prize, as many as the prize says; the commitment is that of the seed.
//   - Auctions: what is held for one is the sum of its active bids, each with a hold of its own; bids and events are
//     numbered without a gap; a bid only rises, while its round is open, after its cooldown, to an amount of its own where
//     that is asked for; a round lasts what it should and its extensions; its winners are the best of its candidates, and
//     paid the seller exactly that; what has ended holds nothing.
//   - Idempotency keys: every stored success names an object that exists, and that of a lock a token that was granted.
//
// # What it does not check
//
// Whether the draw followed from the seed and the sold positions (that is `fairlead verify`, from published data
// alone), the rank in the answer to each bid (that is package replay, from the events
// alone), and whether the answers that clients got are what is stored: that needs the clients' own histories, which package sim
// records and compares.
package audit
