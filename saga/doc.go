// Package saga runs operations of several steps, in several databases, to one of their possible ends, whatever process dies on
// the way. It has one durable log and two protocols.
//
// # Compensated steps
//
// A saga runs its steps in order. A refused step (a decision, not a failure) ends the way forward: the steps before it are undone
// in reverse order. A step that fails is tried again, with backoff, until its outcome is known.
//
//	pending ─ every step done ─────────────────────────► completed
//	   ├──── a step refused, none done before it ──────► failed
//	   └──── a step refused ─ every done step undone ──► compensated
//
// # Two-phase commit
//
// The branches of a transaction are prepared in order, each in its own database, under an identifier that names the coordinator,
// the saga and the term. When all are prepared, the decision to commit is written to the log. Only then is the first branch
// committed. A branch without a decision in the log is rolled back (presumed abort).
//
//	pending ─ prepared ─ decided ─ every branch committed ─► completed
//	   └──── a branch refused, or the deadline passed ─────► failed
//
// # Promises
//
//   - The log is written before what it announces: the intent before the first step, the decision before the first commit.
//   - One process at a time runs a saga, under a lease whose term grows with each grant. Only the newest term may write the log.
//     When the process dies, another one goes on, within [LeaseTTL] and [ReconcileEvery].
//   - A step has the same key each time it is executed, see [Call.Key]. Its effect and the key's mark must commit together, also
//     the mark of a refusal. A process that stalled in the middle of a step, while another finished the saga, then finds the mark
//     and changes nothing. The mark makes a step happen once, not the lease.
//   - A newer decision can't commit a branch that was prepared in an older term, because its identifier has the term.
//     [Service.Reconcile] rolls such branches back.
//   - A branch unknown to the log is left alone until it is [DoubtAge] old and every participant has been asked for marks of its
//     siblings. It is committed if a sibling was, else rolled back. The same happens, at once, to a branch that was prepared before
//     the log's database was restarted or failed over, since the log may have lost the decision.
//   - Only one among a log and its physical copies may end branches. A [Lineage] leaves random tokens with each [Participant]. A log that
//     finds a token it doesn't know is disowned, and ends nothing until an operator calls [Service.Adopt].
//   - A failing saga is retried for ever, with growing pauses up to [MaxPause]. After [StuckAfter] failures in a row it is shown as
//     stuck. [Service.Retry] retries at once; [Service.Compensate] gives up what can still be given up. Both are safe at any time.
//   - After its deadline, by the log's clock, a saga goes no further forward: steps that are not done are cancelled, and those that
//     are done are undone.
//   - A saga that failed or was compensated has the reason in its LastError.
//   - Reasons and errors may have any bytes, such as the words of a server in Latin-1. The log and marks keep U+FFFD for what a
//     store may refuse. Results are never altered, see [Outcome].
//
// [Service.Start] or [Service.Run] starts a saga, under an id by which a repeated request finds the first one's saga. Package
// pgsaga has the log and, for steps and branches that are PostgreSQL transactions, the marks. [Service.Reconcile] must run in each
// process. [Service.Prune] deletes ended sagas, with the marks of their steps, after a retention. The id of a deleted saga would
// start another one.
//
// The package does not promise isolation: others see the first effects of compensated steps before the last. It does not keep a
// copy of the log from running compensated sagas, whose steps know no coordinator (their marks still let each step happen once).
// It promises no end while a participant is away for good: the saga is shown as stuck, and goes on when the participant is back.
package saga
