// Package auction holds auctions of several rounds, in which every bid is backed by money that is set aside, and every
// round is settled once.
//
// # States
//
//	auction:  pending ──start──► active ──close of the last round──► completed
//	             └────cancel────────┴──► cancelled
//	round:    pending ──► active ──close──► completed
//
// An active auction has exactly one active round, and each close opens the next round in its own transaction. A round
// takes bids from its start until just before its end; from its end until its close it takes none.
//
// # Bids
//
// An account has at most one standing bid in an auction, and can only raise it, by the minimum increment at least. Its
// whole amount is set aside by one hold of the ledger, which belongs to the auction and which nobody else can close. Bids
// rank by amount, and among equals the earlier one is first. One transaction decides everything about a bid: whether the
// round is open, the cooldown, minimum and increment, whether the amount is taken, the money, the rank, and the extension
// of the round. A bid whose distance to the round's end is the window or less extends the round by exactly the extension,
// as often as the maximum allows.
//
// # Settlement
//
// Closing a round pays the seller from the holds of its winners, the first bids in rank as far as there are places. The
// winners' bids are gone then; a winner may bid anew, and its cooldown does not outlast its bid. All other bids stand as
// they are in the next round. The last close, and a cancellation, give all other holds back. The bids left over keep
// standing as a record, and are active no more.
//
// Only a leader closes rounds, and says in which term. A close under an older term than one that has closed a round of
// the auction is refused; a close of a round that is not open or not over does nothing. So two leaders at once, or one
// that repeats itself, do no harm, and an auction whose leader has died is closed by the next one, late but once.
//
// # Time
//
// A transaction has one time, from outside, which the auction only ever takes forwards: where a clock is behind the last
// change of the auction, that change's time counts.
//
// # Events
//
// Every change is told by events with sequence numbers of the auction's own, from 1 and without a gap, committed with
// their cause:
//
//	start   auction.started, round.started
//	bid     bid.placed, then round.extended if it extended the round
//	close   round.completed, bid.carried_over for each remaining bid by rank, round.started;
//	        of the last round: round.completed, auction.completed
//	cancel  auction.cancelled
//
// # Invariants
//
//   - While an auction is active, the money it holds is the sum of its standing bids, hold by hold; before and after, it
//     holds none.
//   - One standing bid an account; where amounts are unique, no two standing bids have the same.
//   - A bid at or past its round's end is refused, and none is accepted after the round's close.
//   - A round is settled once; its winners pay exactly what they bid.
//   - A refusal changes nothing.
//
// # Layers of defence
//
// One lane an auction in each process decides its commands one after the other; the auction's row, checked by version and
// revision in each commit, arbitrates between processes; unique rows hold one standing bid an account, one bid an amount,
// one event a sequence number, one winner a rank, and one open round an auction.
//
// # What is not promised
//
//   - That a round closes at its end: it takes a leader. Nothing is lost meanwhile but time.
//   - That a round of which the seller cannot be paid closes, because its account would overflow: it stays, over but not
//     settled, until it can.
//   - That every bid's events are heard in time: [Options].Committed is told after a commit by the process that made it,
//     and the events in the database are what counts.
//
// # Shape
//
// [Decide] is the pure core, on a [State] that can be kept between transactions and can take back what was not committed.
// [Service] is the shell, and [Store] what it needs of a database.
package auction
