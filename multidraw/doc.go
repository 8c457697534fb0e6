// Package multidraw makes many draws at once under a lock key: integers of a range, or weighted prizes. It saves the draws as it
// goes, so that an interrupted run can be resumed or rolled back.
//
// # The draws
//
// [Draws] is the pure part. Draw i depends on the operation's seed, its name, its parameters and i alone
// (docs/design/multidraw.md specifies every byte). A run that is resumed at any draw therefore equals, byte for byte, an
// unbroken run. The SHA-256 of the seed is published at the start, and the seed once everything is drawn. With a [Proof] anyone
// can then repeat the draws and compare.
//
// A draw takes 64 random bits, and rejects the few values that would make the result uneven; weights are integers. Every value
// of a range, even of all of int64, is exactly as likely as any other, and a prize is won with probability weight ÷ sum of
// weights.
//
// [Run] walks over the draws and passes each chunk of k draws to a function that saves it; [State] is the run's place, with a
// JSON form. A program that keeps its draws in its own store needs no more. [InRange] and [FromPrizes] draw once. [Engine] does
// all of this under lock keys, with states in Redis or PostgreSQL by package checkpoint.
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
// operation belongs to the process that runs it by a lease with a term, which grows with each grant. A checkpoint is refused
// ([FencedError]) unless it has the term of the operation's row and continues where the row ends, so two processes cannot both
// add to one operation, whatever their clocks say. When a lease was not renewed for [LeaseTTL], by the database's clock, the
// next [Service.Sweep] marks the operation interrupted; only a request resumes it. A small operation (up to [AtOnce] draws) is
// made, drawn and completed in one transaction.
//
// A running or interrupted operation holds the lock key, which a unique index enforces; completion and roll-back free it.
// Roll-back ends an operation for good, and what it had drawn stays readable.
//
// # What it promises
//
//   - An operation that was interrupted and resumed any number of times has the draws of an unbroken one: none is lost, doubled
//     or drawn anew.
//   - At most one running or interrupted operation holds a given lock key.
//   - The parameters of an operation never change: a state that does not belong to them is refused ([CorruptError]).
//   - Memory does not grow with the number of draws.
//
// # What it does not promise
//
// A person who knows the seed knows the draws to come, and can roll an operation back because they dislike them; the history
// shows the roll-back, and the audit log shows who asked. No money moves here: the caller books what a draw is worth, once,
// when the operation is completed.
package multidraw
