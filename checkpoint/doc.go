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
// There is no state for an operation that was interrupted: it is running or rolling_back, and nobody has its lock. [Runner.Run]
// begins an operation, or goes on with it where it exists; [Runner.Resume] only goes on. Both start at the first step that is
// not saved as done.
//
// The state is saved after every step, or every k of them ([Options.Every]). A save carries three things that guard it: a
// revision that is one above the last, the fencing token of the lock, and the name of the run. A store refuses what does not
// follow from what it has, and what comes with an older token, with a [FencedError]. A run that goes on with an operation saves
// first, which fences the run before it. A save whose answer was lost is repeated, and recognised by its revision and its run.
//
// The parameters are kept in the state with their hash, and an operation cannot go on with others: [ErrOtherParameters]. Each
// operation has a [Seed], chosen when it is made: a step that needs randomness derives it from the seed and its own number,
// and gives the same result whenever it is run.
//
// Roll-back undoes the steps that are done from the last to the first, and saves how far it is as it goes. The results, the
// errors and the times stay in the state, which says rolled_back: the history is kept.
//
// # What it promises
//
//   - An operation that was interrupted any number of times and gone on with each time has the results of an unbroken one,
//     byte for byte, as long as the result of a step follows from parameters, seed and number.
//   - With [Options.Transactional], on a [Transactor], a step's writes are committed with the state that says that it is done,
//     and undone with the state that says that: no effect is doubled or skipped.
//   - A state that cannot be read ([CorruptError]), that another program wrote ([ErrLegacy]), or that is gone in the middle of
//     a run ([ErrLost]) is reported, and neither overwritten nor deleted.
//   - An error of a step leaves what was done before saved; the error is kept in the state; the caller gets both.
//   - Two processes cannot both add to one operation, whatever they believe of the time.
//
// # What it does not promise
//
// Without a transaction, a step that was interrupted between its effect and the save is run again. Its effect must then be
// repeatable; [StepKey] gives it a key that is the same each time. For the same reason roll-back then also undoes up to
// [Options.Every] steps that may have been done, and says so ([Done.Certain]).
//
// A fence keeps an old run from saving, not from acting: between its last look at the lock and its next save, it may do up to
// Every steps that the new run does as well. With Transactional, it cannot.
//
// A store that forgets makes an operation that never was. On Redis states live for [Options.TTL] after their last save,
// and as long as Redis remembers. Programs that move money keep their states in PostgreSQL.
package checkpoint
