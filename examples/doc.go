// Package examples is a folder of small programs that use Fairlead; each is complete, and run by the tests of this package.
//
// With a server (start it with: fairlead serve):
//
//   - dropsale: a crowd races for a small edition, and the draw is verified by the program itself.
//   - auctionpage: the web site of an auction, with a leaderboard that follows the bids.
//   - wallet: deposits, holds, transfers, by a program that may be killed at any moment and started again.
//   - scheduledposts: posts published at their time to a webhook receiver that checks signatures and drops repeats.
//
// With a server inside the program (package fairlead), on a private PostgreSQL or yours:
//
//   - embedded: sells the seats of a night without anything else running.
//
// A module of its own, outside, uses every public package of this one.
//
// Without a server, with a PostgreSQL of your own:
//
//   - printshop: package lock, claim and idempotency in somebody else's program.
package examples
