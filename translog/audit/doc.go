// Package audit judges a Fairlead log from outside, over HTTP, by what docs/design/log.md says and nothing else.
//
// # What it checks
//
//   - The checkpoint: the log's signature, its origin, and where witnesses are named, their cosignatures.
//   - That the log has only grown since the last good run, whose checkpoint a state file keeps. The tree's first leaves must have the
//     root that was signed then.
//   - Each leaf: its hash against the tree, its form, its number within its topic, and that its time does not run backwards.
//   - Campaigns: the order of their leaves, the commitment, the draw's seed, the winners, and the beacon's round: that it was named at
//     least one period ahead, and its signature.
//   - Auctions: every bid's rank, whose place it took, extensions, winners and what they pay, and which bids are carried over.
//   - Multi-draws: all draws are made again, and their digest is compared.
//   - The books: that the sums of each closing add up.
//
// It names the first leaf that does not follow, in a [Finding].
//
// # What it shares with the server
//
// Nothing that decides. Auctions are replayed by package replay, which knows the outside contract alone; draws and multi-draws are
// written anew here, from the documents (draw.go, redraw.go); so are leaves (leaf.go, json.go). The BLS signature of a beacon's round
// is verified by package fairdraw/beacon, because it is a primitive of which there is one implementation; so are drand's constants.
//
// # What it does not know
//
// Facts that the operator left out of the log entirely: an entrant holds its own bid or position against the log for that. Whether
// bidders had the money, since their balances are private. Whether the times are true: each is the server's. Which checkpoints the
// witnesses had signed when a campaign was sealed: only the newest one is served. A multi-draw that was rolled back before its end
// keeps its seed, so its draws can't be made again.
//
// # Memory
//
// It keeps some 200 bytes for each topic of the log, some 350 for each standing bid of the auctions under way, and two batches of
// entries, of 600 KB each where leaves have 300 bytes. 1.6 million leaves of twenty auctions under way at once, with a hundred thousand
// bidders, take 250 MB (BenchmarkMillion). A server that sends the largest entries that there can be makes the batches 134 MB each.
package audit
