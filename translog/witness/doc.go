// Package witness has both sides of C2SP's tlog-witness: the witness, which cosigns checkpoints of logs, and the client that asks
// witnesses for cosignatures.
//
// # The witness
//
// A [Witness] keeps, for each log that it knows, the largest checkpoint that it has cosigned. It cosigns another one only with a proof that
// the new tree extends that one. It therefore never cosigns two histories of a log.
//
//	verify the log's signature ─► take the lock ─► old size = size kept? ─► proof ─► cosign ─► state on disk ─► answer
//
// The lock is held from the comparison until the state is on disk, so no other request can be decided in between. The state is a file
// that is replaced as a whole; it and its directory are flushed before a cosignature leaves. A crash before the replacement forgets a
// cosignature that nobody has. A crash after it keeps one that nobody has: the log is told the size by a conflict, and asks again.
// Each kept checkpoint has the witness's own cosignature, which is verified at the start, so a damaged file is noticed. A lock file keeps a
// second process from the same state, and the lock of the key's file keeps it from the same key with another state.
//
// The witness can't notice that its state was removed, or replaced by an older one. Then it may cosign a second history.
//
// # The client
//
// A [Client] asks one witness once. A [Collector] asks several, side by side, and gives each a limited time. It remembers the size that
// each has cosigned last, learns it from conflicts, and makes the proof of consistency. A witness that has cosigned a larger tree than
// the log's, or one that the log's tree does not extend, knows a history that the log has lost: [AheadError] and [ForkError] say so.
package witness
