// Package logkeeper keeps the public log: it makes leaves of facts, appends them, closes the books, and has the log signed and witnessed.
//
// What a leaf says is specified in docs/design/log.md; why leaves are derived is docs/adr/0039.
//
// # From a fact to a checkpoint
//
//	tables ── Look ──► topics behind ── Facts ──► leaves ── Append ──► tiles, bundles, places (one transaction)
//	                                                                        │ the tree
//	accounts ── CloseBooks ──► closing, a leaf ─────────────────────────────┤
//	                                                                        ▼
//	                          sign ──► log.signed ──► witnesses ──► published checkpoint
//
// All processes stand for election; the one that leads runs a [Keeper], with three loops: one appends, one closes the books, one publishes.
//
// # Invariants
//
//   - A batch is appended only where the log has the size and the root from which it was made, and no later term has begun. So each fact is a leaf once,
//     whatever dies and whatever answer is lost: after a failure the log is read again.
//   - A tree is signed only after its leaves are committed, and only where it continues what this server has signed (log.signed), what is published, and what
//     the witnesses show. Else nothing is signed until an operator decides; leaves go on to be appended.
//   - Topics don't wait for each other: one that can't be read is passed over until the next look.
//
// # What is not promised
//
//   - That a database restored behind a checkpoint is noticed where log.signed was lost and no witness is asked.
package logkeeper
