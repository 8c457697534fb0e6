// Package checkpoint runs operations of many steps that survive their process: what is done is saved by itself, goes on where
// it was, and can be undone in reverse.
//
// # Protocol
//
// A [Definition] says what the steps of a kind of operation are; a [Runner] runs operations of that kind. An operation is
// named by the lock key under which it runs and an id, its [Key]. Its [State] is one document in a [Store]: parameters, how
// many steps are done, their results, the errors on the way.
//
//	(none) ──Run──► running ──last step──► completed
//	                 │   ▲                     │
//	       Rollback  │   └── Run, Resume       │ Rollback
//	                 ▼                         ▼
//	            rolling_back ──last undo──► rolled_back
//	                 └─▲ Rollback, after an interruption
//
// An interrupted operation has no state of its own: it is running or rolling_back, and nobody has its lock. [Runner.Run] begins an
// operation, or goes on with an existing one; [Runner.Resume] only goes on. Both start at the first step that is not saved as done.
//
// The state is saved after every step, or every k of them ([Options.Every]). Three things guard a save: a revision that is one
// above the last, the fencing token of the lock, and the name of the run. A store refuses a save that does not follow from what it
// has, or that has an older token, with a [FencedError]. A run that goes on with an operation saves first, which fences the run
// before it. A save whose answer was lost is repeated, and recognised by its revision and its run.
//
// Parameters and results go through JSON, see [Definition]. The first run has them as a resumed one does, read from their JSON.
//
// The state keeps the parameters with their hash, and an operation cannot go on with others: [ErrOtherParameters]. Each operation
// has a [Seed], chosen when it is made. A step that needs randomness derives it from the seed and its own number, and so gives the
// same result whenever it runs.
//
// Roll-back undoes the done steps from the last to the first, and saves its progress. Results, errors and times stay in the state,
// whose status becomes rolled_back.
//
// # Promises
//
//   - An operation that was interrupted and resumed any number of times has the results of an unbroken one, byte for byte, if the
//     results of its steps follow from parameters, seed and number.
//   - With [Options.Transactional], on a [Transactor], a step's writes are committed with the state that has it as done, and undone
//     with the state that has it as undone: no effect is doubled or skipped.
//   - A state that cannot be read ([CorruptError]), or is gone in the middle of a run ([ErrLost]), is reported, and neither
//     overwritten nor deleted. Neither is one that another program wrote ([ErrLegacy]), unless a call adopts it ([Call.Adopt]), or
//     rolls back steps without effects ([Definition.Pure]).
//   - When a step fails, the steps before it stay saved. The error is kept in the state, and the caller gets both.
//   - Two processes cannot both add to one operation, whatever they believe of the time.
//
// # What it does not promise
//
// Without a transaction, a step that was interrupted between its effect and the save runs again. Its effect must then be
// repeatable; [StepKey] gives it a key that is the same each time. For the same reason roll-back also undoes up to [Options.Every]
// steps that may have been done, and says so ([Done.Certain]).
//
// A fence keeps an old run from saving, not from acting: between its last look at the lock and its next save, it may do up to Every
// steps that the new run does as well. With Transactional, it cannot.
//
// If the store forgets a state, the operation is gone. On Redis, states live for [Options.TTL] after their last save, and as long as
// Redis remembers. Programs that move money keep their states in PostgreSQL.
package checkpoint
