// Package pglock keeps the locks of package lock in PostgreSQL.
//
// # Protocol
//
// Everything is rows: keys with their last token, grants with their lease, waiting requests with their place in line. A
// request locks the rows of its keys in the order of their bytes, looks at who holds them and who waits, and either is
// granted or joins the lines, all in one transaction. A release grants to those next in line, in its own transaction, and
// wakes them: through memory within the process, by NOTIFY between processes, which is a hint. Each process also looks after
// its waiting requests every [PollInterval]: it says that they are alive, takes over what has expired, and looks for deadlocks.
//
// A lock that was handed over to another process is leased for [HandOver] until its waiter has taken it, which renews it to
// its full TTL; a waiter that has died costs those behind it no more than that.
//
// Functions of the database do what requests for one key need most often, in one round trip (functions.sql). Requests and releases of
// one process that nobody else has to do with go together, whatever their keys (share.go). The requests of
// one process get in line together (together.go), and those that stand in it one behind the other may pass the lock on
// without the database (cohort.go). Transactions decide everything else, under the same row locks (ask.go, settle.go).
//
// The database's clock alone decides expiry. It may step. A lease that ends later than if it were renewed now was written while
// the clock was ahead: whoever looks at it (a request for the key, a process whose requests wait, [Backend.Sweep]) shortens it to
// its TTL from then on, which is no less than its holder relies upon. A waiting request that was said to be alive by such a clock
// counts as dead until its process says so again. When the clock jumps ahead, leases are over early: renewals return
// [lock.ErrLost], and fences refuse what the old holders write.
//
// While somebody holds a snapshot, the versions of a key's row and the places in its line stay in their indexes. Functions and statements find a row
// by its chapter, and read a line from where it began at the last hand-over, so that they pass over what is dead. Only READ COMMITTED transactions can make a key: a trigger
// looks for a second row.
//
// No decision is taken from a row that is not locked, except for finding
// deadlocks: the graph is read in one statement, once without a lock, and again under the arbiter's lock if there is a
// cycle to be broken. A cycle that is true at one instant stays until somebody gives way.
//
// Close sends the notifications that are still to be sent: a process that releases a lock as its last act hands it over as
// quickly as others do.
//
// # Beside the leases
//
// [AdvisoryXactLock] takes PostgreSQL's own advisory locks by name, for code that has a transaction. [DatabaseWaits] shows
// who waits for PostgreSQL's own locks.
//
// # What it promises
//
// What package lock does, on one database, with these costs: an uncontended lock takes two transactions of a few rows and
// a round trip each, a renewal one; waiting holds no connection and no transaction. It is safe behind a pooler that assigns
// connections by transaction (PgBouncer needs 1.21 with max_prepared_statements above 0, or default_query_exec_mode=exec in
// the URL; the suite passes behind 1.18, 1.24 and 1.26): there notifications do not arrive, which is noticed, and polling becomes faster, see [BlindPollInterval].
// The same where the database has no notifications at all. Where it has no PL/pgSQL, [Schema.Install] leaves the functions out, and transactions do what they would;
// then there are no cohorts, and no shared commits.
//
// # What it does not promise
//
//   - Tokens grow for ever only as long as the database forgets nothing: asynchronous replication may lose the newest at
//     a failover, and a restored backup starts from its own. Synchronous replication keeps them, and
//     [Schema.AdvanceTokens] lets them jump past what may have been forgotten.
//   - Rows of keys are never deleted, since they are the memory of the tokens. A key takes some 100 bytes.
//   - Who of a cohort has the lock is in the tables 50 ms after the cohort got it. Until then a snapshot shows a holder named
//     after the cohort, and whoever ends that lock by its id is heeded when the cohort is over.
//   - The order of asking is that of the database's sequence, taken under the keys' row locks.
package pglock
