// Package replay is the independent auditor of auctions: a model that shares no code with the server and knows the
// outside contract alone.
//
// It reads what the server told the world of an auction, the events of its live stream, beside the auction's rules and
// the money that its accounts had when it began, and plays the auction again. From nothing but the bids and their times
// it recomputes
//
//   - the sequence: numbers from 1 without gap or double, times that never run backwards;
//   - each bid: that its round was open, that it was high enough, unique where it must be, not too soon after the
//     account's standing bid, and covered; its previous amount and its rank right after it; whose bid lost a winning
//     place by it, and what a new bid had to be then to win;
//   - each extension: that it was due, by exactly the rule's time, at most as often as the rule says, in the
//     transaction of its bid, and that none is missing;
//   - each close: not before the round's end, with the right winners in order; then one carried-over bid for each loser
//     in order of rank and the next round, or the end of the auction;
//   - the money: what is available to each account and held for its bid, and what the seller earned.
//
// Each is compared with what the event itself says; [Compare] compares the [Outcome] with the server's other answers:
// the auction, its leaderboard, its winners, its history of bids, the accounts. The first thing that differs is
// named in a [Difference].
//
// [Replay] plays a whole list of events. [Stream] plays them one by one, for logs that are longer than the memory.
//
// # One transaction, one moment
//
// A bid and its extension, and a close and all that follows from it, are one transaction. The auditor therefore wants
// their events next to one another and of one time, and a log that ends in their middle is incomplete.
//
// # What it does not know
//
// How late a close was is for the caller to judge; [Round] has both times. Money must not move to or from the accounts by
// other ways while the auction runs. Where the contract is silent the model says what it takes for granted: a bid exactly
// Window before the end is within the window, a bid exactly Cooldown after the last is not too soon, and the cooldown of
// an account that won is over, because it has no standing bid.
package replay
