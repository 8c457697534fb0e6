// Package auction holds auctions of several rounds. Every bid is backed by money that is set aside, and every round is settled
// once. [Decide] is the pure core; it works on a [State] that can be kept between transactions and can undo what was not
// committed. [Service] is the shell, and [Store] is what the service needs of a database.
//
// # States
//
//	auction:  pending ──start──► active ──close of the last round──► completed
//	             └────cancel────────┴──► cancelled
//	round:    pending ──► active ──close──► completed
//
// An active auction has exactly one active round. Each close opens the next round in its own transaction. A round takes bids
// from its start until just before its end, and none between its end and its close.
//
// # Bids
//
// An account has at most one standing bid in an auction and can only raise it, by at least the minimum increment. A hold of the
// ledger sets the whole amount aside; the hold belongs to the auction, and nobody else can close it. Bids rank by amount, and
// the earlier of two equal bids ranks first. One transaction decides everything about a bid: whether the round is open, the
// cooldown, minimum and increment, whether the amount is taken, the money, the rank, and the extension of the round. A bid
// within the window before the round's end extends the round by the extension, as often as the maximum allows.
//
// # Settlement
//
// Closing a round pays the seller from the holds of the winners, the first bids in rank as far as there are places. The
// winners' bids are removed; a winner may bid anew, without a cooldown. All other bids stand in the next round. The last close
// and a cancellation release all other holds. The bids left over are kept as a record, but are no longer active.
//
// Only a leader closes rounds, and each close carries the leader's term. A close under an older term than the newest one that
// closed a round of the auction is refused; a close of a round that is not open, or not over, does nothing. Two leaders at
// once, or a leader that repeats itself, therefore do no harm, and the next leader closes the rounds of one that died.
//
// # Time
//
// A transaction has one time, which is passed in. Within an auction time never runs backwards: if a clock is behind the last
// change of the auction, the time of that change counts.
//
// # Events
//
// Events report every change. Their sequence numbers start at 1 in each auction and have no gaps; each event is committed with
// its cause:
//
//	start   auction.started, round.started
//	bid     bid.placed, then round.extended if it extended the round
//	close   round.completed, bid.carried_over for each remaining bid by rank, round.started;
//	        of the last round: round.completed, auction.completed
//	cancel  auction.cancelled
//
// # Invariants
//
//   - While an auction is active, it holds the sum of its standing bids, hold by hold; before and after, it holds nothing.
//   - An account has one standing bid; where amounts are unique, no two standing bids have the same amount.
//   - A bid at or past its round's end is refused, and none is accepted after the round's close.
//   - A round is settled once; its winners pay exactly what they bid.
//   - A refusal changes nothing.
//
// In each process one lane per auction decides its commands in turn. The auction's row, checked by version and revision in
// each commit, arbitrates between processes. Unique rows hold one standing bid per account, one bid per amount, one event per
// sequence number, one winner per rank, and one open round per auction.
//
// # What is not promised
//
//   - That a round closes at its end: it takes a leader. A delay costs time only.
//   - That a round closes when the seller's account would overflow: it stays over and unsettled until the seller can be paid.
//   - That every event is reported in time: the process that made a commit calls [Options].Committed after it. The events in
//     the database are what counts.
package auction
