// Package claim gives rows of your own PostgreSQL table one executor at a time, and lets only the one who holds a row's
// claim finish it.
//
// A claim is the right to execute one row: a lock id, new with each claim, and an execution version, which grows by one
// with each claim of the row. Both are columns of your table, beside your own, as are the time of the last sign of life and
// the lock id of the claim that finished the row last; [Table.DDL] adds them, and [Table.Indexes] what makes claiming fast. On
// a table that is new, PostgreSQL may prefer to read all of it, and a session keeps such a plan until autovacuum has come by:
// connect with enable_seqscan=off where that would be too slow.
//
// # Protocol
//
//	free ──Claim, ClaimDue──► claimed ──Finish, Fail──► free
//	                            │  ▲
//	                            │  └─ Heartbeat
//	                            └──── ReleaseStale ───► free
//
// A row is free when its lock id is null. Which free rows may be claimed is the table's to say: [Table.Ready] is a
// condition on your own columns, [Table.Due] a time that must have come. Each step may set columns of yours in the same
// statement ([Table.OnClaim] and its siblings), so that a status never disagrees with a claim.
//
// Rows that another transaction has locked are skipped (FOR UPDATE SKIP LOCKED), so that any number of workers take
// different rows without waiting for each other. Every time is the database's clock_timestamp(): the clocks of the
// workers' machines decide nothing.
//
// Every method takes the connection, pool or transaction to run in. In a transaction of yours, a finish commits together
// with whatever else the transaction writes, or not at all. A finish whose answer was lost may be repeated: outside of
// transactions it succeeds then; in one it says [ErrFinished], so that what the transaction writes is not written twice.
//
// A claim whose worker has died goes stale, and is released by whoever sweeps: [Claims.ReleaseStale], or
// [Claims.KeepReleasing] in the background. A worker that takes long keeps its claim by heartbeats ([Claims.Keep]), and its
// context ends before the claim can have gone stale, counted from when the claim was asked for. Statements on many claims lock their rows in the order of their ids, so
// that heartbeats and ends of the same claims don't deadlock; transactions of yours that end several claims one by one should
// keep an order, too.
//
// # What it promises
//
//   - A row has at most one claim at a time, and each claim of a row has a greater version than those before it.
//   - Heartbeat, Finish and Fail take effect only under the claim's own lock id and version. A worker that was stopped for
//     longer than the claim lived gets [ErrLost], and has changed nothing.
//   - Nothing is claimed before it is due by the database's clock.
//   - A row that stops being ready before it is claimed (a cancellation) is not claimed.
//
// # What it does not promise
//
//   - That no two workers are ever at work on one row: a worker that was stopped past its claim does not know it yet. What it
//     does to the outside world is done; send the version along, so that the outside can refuse the older one.
//   - That a row is executed once. A worker that dies between its work and its finish leaves a row that is claimed again.
//   - Anything about rows whose claim columns other code writes.
package claim
