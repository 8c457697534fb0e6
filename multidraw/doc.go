// Package multidraw makes many draws at once, of a range of integers or of weighted prizes, under a lock key; what was drawn
// is saved by and by, so that a run that was interrupted is resumed, and one that should not have been is rolled back.
//
// # The draws
//
// [Draws] is the pure part. Draw i follows from the operation's seed, its name, its parameters and i, and from nothing else
// (docs/design/multidraw.md says how, byte by byte). So a run may be cut at any draw: what is resumed equals, byte for byte, what would have been
// drawn without the cut. The SHA-256 of the seed is published at the start, and the seed itself once all is drawn: then
// anyone can draw again and compare, with a [Proof].
//
// Integers are taken from 64 random bits, some of which are passed over, and weights are integers: every value of a range, of all of int64 if
// need be, is exactly as likely as any other, and a prize is won with probability weight ÷ sum of weights.
//
// [Run] walks over the draws and hands every k of them to a function that saves them; [State] is where such a run stands,
// with a JSON form. That is all that a program needs that keeps its draws in a place of its own. [InRange] and [FromPrizes]
// draw once. [Engine] does all of this under lock keys, with states in Redis or PostgreSQL by package checkpoint.
//
// # Operations
//
// [Service] keeps operations in a database, for a server:
//
//	          ┌──── process or database lost, or shut down ───┐
//	          │                                               ▼
//	(none) ► running ──── last checkpoint ───► completed   interrupted
//	          ▲                                   │           │  │
//	          └───────────── resume ──────────────┼───────────┘  │
//	                                              └─► rolled_back ◄┘
//
// A checkpoint is one transaction: the draws since the last one, how many there are now, and the digest of all of them. An
// operation belongs to the process that runs it by a lease with a term. Each grant of the lease has a higher term, and a
// checkpoint is refused ([FencedError]) unless it has the term of the operation's row and goes on where the row ends: two
// processes cannot both add to one operation, whatever they believe of the time. A lease that was not renewed for
// [LeaseTTL], by the database's clock, makes the operation interrupted at the next look ([Service.Sweep]); nobody resumes it
// but who is asked to. An operation that is small ([AtOnce]) is made, drawn and completed in one transaction.
//
// The lock key is held by the operation that is running or interrupted, and free once it is completed or rolled back. A
// unique index holds that, and not a process. Roll-back ends an operation for good; what it had drawn stays readable.
//
// # What it promises
//
//   - The draws of an operation that was interrupted and resumed any number of times are those of an unbroken one: none is
//     lost, doubled or drawn anew.
//   - At most one operation that is running or interrupted has a given lock key.
//   - The parameters of an operation never change: a state that does not belong to them is refused ([CorruptError]).
//   - Memory does not grow with the number of draws.
//
// # What it does not promise
//
// Who knows the seed knows the draws to come, and can roll an operation back because he dislikes them; the history shows
// that it was rolled back, and who asked is in the audit log. No money moves here: what a draw is worth to somebody is for
// the caller to book, once, when the operation is completed.
package multidraw
