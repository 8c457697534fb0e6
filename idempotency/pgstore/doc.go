// Package pgstore keeps idempotency keys in a PostgreSQL table, beside the effects that they stand for.
//
// # What it adds
//
// A key and its effect can be committed together, so that no crash separates them:
//
//   - [Store.Do] executes a function in a transaction of yours, once a key. A duplicate waits at the key's row until the
//     first transaction ends.
//   - [Store.CompleteIn] is for handlers behind the middleware: it keeps their answer in the transaction of their effect,
//     under the fence. A handler that wakes after another has taken its key over is refused, and its effect is rolled back.
//
// With either, there is at most one effect a key whatever dies, and a retry that succeeds means exactly one. Without them the
// package promises what the crash policy does; see package idempotency.
//
// # Where it runs
//
// [New] takes a pgx pool, connection or transaction. Every method is one or two statements outside of any session state, so
// that a transaction pooler may stand between. All times are the database's. [Install] makes the one table; [SchemaSQL] has
// it for your own migrations. Expired keys are deleted by [Store.Sweep], which [idempotency.KeepSwept] calls.
package pgstore
