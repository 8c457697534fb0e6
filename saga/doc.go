// Package saga carries operations of several steps, in several databases, to one of the ends that they may have, whatever
// dies on the way. It has one durable log and two protocols.
//
// # Compensated steps
//
// A saga runs its steps in order. A step that is refused (which is a decision, not a failure) ends the way forward: what
// the steps before it did is undone in reverse order. A step that fails is tried again, with backoff, until its outcome is
// known: nobody may guess it.
//
//	pending ─ every step done ─────────────────────────► completed
//	   ├──── a step refused, none done before it ──────► failed
//	   └──── a step refused ─ every done step undone ──► compensated
//
// # Two-phase commit
//
// The branches of a transaction are prepared in order, each in its own database, under an identifier that names the
// coordinator, the saga and the term. Once all are prepared, the decision to commit is written to the log; only then is the
// first of them committed. What the log doesn't say is committed is rolled back (presumed abort).
//
//	pending ─ prepared ─ decided ─ every branch committed ─► completed
//	   └──── a branch refused, or the deadline passed ─────► failed
//
// # Promises
//
//   - The log is written before what it announces: the intent before the first step, the decision before the first commit.
//   - A saga is run by one process at a time, under a lease whose term grows with each grant; the log is written in the
//     newest term only. When the process dies, any other goes on, within [LeaseTTL] and [TendEvery].
//   - A step has a key that is the same for each of its executions, see [Call.Key]. Its effect and the key's mark must commit
//     together, the mark of a refusal too. A process that was stopped in the middle of a step and comes back after another has
//     finished the saga then finds the mark, and changes nothing. This is what makes a step happen once, not the lease.
//   - A branch that was prepared in an older term can't be committed by a newer decision: the term is in its identifier.
//     [Service.Tend] rolls such branches back.
//   - A branch of which the log knows nothing is left alone until it is [DoubtAge] old and every participant has been asked
//     for its siblings' marks: it is committed if one of them was, else rolled back. So is, at once, a branch that was prepared
//     before the log's database was started anew or failed over, since the log may have lost the decision.
//   - Of a log and its physical copies, one may end branches. A [Lineage] leaves random tokens with each [Fencer]; a log that
//     doesn't know the token it finds there is disowned, and ends nothing until an operator calls [Service.Adopt].
//   - A saga that fails to get on is tried for ever, with growing pauses up to [MaxPause]. After [StuckAfter] failures in a
//     row it is shown as stuck. [Service.Retry] tries at once; [Service.Compensate] gives up what can still be given up. Both
//     are safe at any time.
//   - After its deadline, by the log's clock, a saga goes no further forward: what is not done is cancelled, and what is done
//     is undone.
//
// A saga that has ended is kept until [Service.Prune] deletes it, with the marks of its steps, after a retention. What is
// deleted is not known any more: its id would start another.
//
// Programs start sagas with [Service.Start] or [Service.Run], under an id that makes a repeat find the first. Package pgsaga
// has the log and, for steps and branches that are PostgreSQL transactions, the marks. [Service.Tend] must run in each process.
//
// A saga that has failed, or was compensated, says why in its LastError.
//
// What it does not promise: that a copy of the log leaves compensated sagas alone, whose steps know no coordinator (their
// marks still let each step happen once); isolation between the steps of a compensated saga, whose first effects are seen before its last;
// and an end while a participant is away for good. Such a saga is shown as stuck, and goes on when the participant is back.
package saga
