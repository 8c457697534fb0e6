// Package claim gives each row of your own PostgreSQL table one executor at a time. Only the holder of a row's claim can finish
// it.
//
// A claim is the right to execute one row: a lock id, new with each claim, and an execution version, which grows by one with each
// claim of the row. Both are columns of your table, beside the time of the last sign of life and the lock id of the claim that
// last finished the row. [Table.DDL] adds them, and [Table.Indexes] makes claiming fast. On a new table PostgreSQL may prefer to
// scan all of it, and a session keeps that plan until autovacuum has run: connect with enable_seqscan=off if that is too slow.
//
// The columns may have the types that Prisma gives them: a lock id of type text, a time of type timestamp(3), an integer version, and
// no column for the claim that finished the row. [Table.LockIDType], [Table.TimeType] and [None] say so. Workers in other languages
// may share the table: docs/design/claim.md has the protocol as plain SQL.
//
// # Protocol
//
//	free ──Claim, ClaimDue──► claimed ──Finish, Fail──► free
//	                            │  ▲
//	                            │  └─ Heartbeat
//	                            └──── ReleaseStale ───► free
//
// A row is free when its lock id is null. The table says which free rows may be claimed: [Table.Ready] is a condition on your own
// columns, [Table.Due] a time that must have come. Each step may set columns of yours in the same statement ([Table.OnClaim] and
// the like), so that a status never disagrees with a claim.
//
// Rows that another transaction has locked are skipped (FOR UPDATE SKIP LOCKED), so that any number of workers take different rows
// without waiting. Every time is the database's clock_timestamp(); the clocks of the workers decide nothing.
//
// Every method takes the connection, pool or transaction to run in. In your transaction, a finish commits together with the
// transaction's other writes, or not at all. A finish whose answer was lost may be repeated: outside of transactions it succeeds;
// in one it returns [ErrFinished], so that the transaction's writes are not made twice.
//
// In pgx's mode exec (default_query_exec_mode=exec, for older poolers), ids must be of a type whose SQL type is known, see
// [Table.IDType], and so must the values of [Changes] be of types that pgx can encode without a column's type.
//
// The claim of a dead worker goes stale, and a sweep releases it: [Claims.ReleaseStale], or [Claims.KeepReleasing] in the
// background. A slow worker keeps its claim by heartbeats ([Claims.Keep]); its context ends before the claim can have gone stale,
// counted from when the claim was asked for. A claim dated later than now, after a clock that was ahead was put right, ages from
// the next sweep on. Statements on many claims lock their rows in the order of their ids, so that
// heartbeats and ends of the same claims don't deadlock. Transactions that end several claims one by one should keep an order, too.
//
// # Promises
//
//   - A row has at most one claim at a time, and each claim of a row has a greater version than those before it.
//   - Heartbeat, Finish and Fail take effect only under the claim's own lock id and version. A worker that stalled for longer than
//     its claim lived gets [ErrLost], and has changed nothing.
//   - Nothing is claimed before it is due by the database's clock.
//   - A row that stops being ready before it is claimed (a cancellation) is not claimed.
//
// # What it does not promise
//
//   - That no two workers are ever at work on one row: a worker that stalled past its claim does not know it yet. Send the version
//     along with effects outside of the database, so that the receiver can refuse the older one.
//   - That a row is executed once. A worker that dies between its work and its finish leaves a row that is claimed again.
//   - Anything about rows whose claim columns other code writes.
package claim
