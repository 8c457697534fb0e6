// Package groupcommit turns many concurrent commands on one entity into few commits.
//
// Commands on a hot entity are serial whatever lies beneath; what they can share is the price of the
// commit. A [Group] keeps one lane a key. [Group.Do] appends a command to its key's lane and waits; the
// lane takes what has queued, hands it to the [Flush] as one batch, and answers every caller when that
// returns. Nothing here knows what a commit is: the Flush does.
//
// # Protocol
//
// A lane comes to be with the first command of its key and is gone when its last batch is answered and
// nothing waits. In between it is
//
//	ready ──► flushing ──► ready (more has queued) or gone
//
// and never waits on a timer: a lone command is flushed at once, by itself, and while its commit is under
// way the next batch gathers. Batches so grow with the load and with the commit's own time, up to
// [Options].MaxBatch. At most MaxLanesBusy flushes run at a time; the ready lanes take turns in order, a
// batch each. Where the Flush can build on a batch whose commit is still under way, [Options].Overlap lets a
// lane begin the next one before that.
//
// A command is
//
//	queued ──► taken ──► answered
//	   └─► dropped, refused
//
// A queued command whose caller's context ends is dropped: it gives its room in the queue back and never
// runs. Once taken it runs to an end, whether its caller still waits or not.
//
// When a batch fails, and the failure is divisible, its first half is flushed as a unit and then its second, and
// so on down to single commands. A command that fails alone gets the failure; the others get their
// results. Finding k poisonous commands among n takes fewer than 2·k·(log2(n/k) + 2) flushes. A flush that
// panics has failed, divisibly, with a [PanicError]. A flush that reports success but not one result a
// command has failed with [ErrResultCount], and is not tried again, for it may be committed.
//
// # What it promises
//
//   - Commands with one key are flushed one batch at a time, in the order in which Do queued them, also
//     across a bisection. With an Overlap, batches are taken in that order, and no more than that at a time.
//   - The commands of one call of [Group.DoAll] are in one batch, in its order.
//   - Every call of Do returns exactly one answer, and an answer of the flush is the one that the flush
//     gave for that command.
//   - A command is in a successful flush at most once. Its result is handed out only after that flush
//     has returned.
//   - A caller that goes away, and a command that fails, do no harm to their neighbours.
//   - No lane holds more than MaxQueue waiting commands; the next one gets [ErrFull] at once.
//   - With a Patience, a call of Do whose command no batch has taken by then gets [ErrLate], and the
//     command never runs.
//   - An idle key costs nothing and an idle group holds no goroutine.
//   - When [Group.Close] returns, every command has been answered.
//
// # What it does not promise
//
//   - Order between calls of Do that overlap is theirs to lose; order between keys there is none.
//   - A failed flush is taken at its word that nothing of its batch took effect. Where that is not known
//     (the connection died around COMMIT), [Options].Divisible must say false, and the Flush's error must
//     say that the outcome is unknown. The same goes for a Flush that panics after its commit: commands
//     whose repetition would do harm need an idempotency key checked in the flush itself.
//   - Retries. Whatever is worth retrying whole (a serialization failure) is retried inside the Flush.
//   - Exclusion between processes, or between groups. The storage beneath arbitrates.
//   - A bound on all lanes together. Callers are the bound: each waits in its own goroutine.
//   - Progress of a key whose Flush does not return; the lanes of other keys go on as long as fewer than
//     MaxLanesBusy flushes hang.
//   - Calling Do or Close from inside a Flush of the same group: that may wait for itself.
package groupcommit
