// Package pgsaga keeps the log of package saga in PostgreSQL, and lets steps and branches have their effects in PostgreSQL
// databases, each of them once.
//
// [Log] is the durable log: one table, in the database of whoever coordinates. [Database] is any database in which sagas do
// something, the log's own among them: [Database.Step] makes a step of two transactions, what it does and how that is
// undone; [Database.Branch] makes one a branch of a two-phase commit. [Schema.Install] creates the tables, in a schema of
// their own if you like; a database that only takes part needs them too, for its marks. Their encoding must be UTF8.
//
// # How a step happens once
//
// Whoever executes a step inserts the mark (saga, step) first, in the transaction of the effect. A second execution, by
// another process or after a lost answer, waits for the first to end, finds its mark, and returns what that says. A refusal
// leaves a mark too, without an effect: a step that was refused stays so, whatever has changed since. [Schema.Once] is the
// same inside a transaction of yours.
//
// # Two-phase commit
//
// The database needs max_prepared_transactions above 0; [Database.CanPrepare] tells. A branch's transaction must not have
// used NOTIFY, temporary tables, or cursors that are held, which PostgreSQL refuses to prepare. While it is prepared, its
// locks are held, over restarts too, until the log's decision is carried out: waits for locks are bounded by
// [Options.LockTimeout], so that opposed transactions give way, and [saga.Service.Reconcile] settles what a dead coordinator has
// left. A coordinator's identifier is drawn at random and kept in its log; a log and its copies, which have the same, are
// told apart by the fences that participants keep, see [Database.EndPrepared]. Only the role that prepared a transaction, or a superuser, may end it, and only in its own database: give all
// processes of a coordinator the same role.
//
// # Behind a connection pooler
//
// Steps are transactions, and may go through a pooler that assigns connections by transaction, also in pgx's mode exec. Two-phase commits must not:
// [Database.EndPrepared] holds a lock of its session over several statements. Give such databases a direct address.
//
// # What it does not promise
//
//   - A database that loses acknowledged commits, by asynchronous replication or from a backup, loses marks and prepared
//     transactions with them. The first makes a step happen twice, the second is [saga.ErrNotPrepared]. A log that loses them
//     is disowned by its participants as soon as it lacks the last token that it left there, some seconds' worth.
//   - Sagas that have ended, and their marks, are kept until [saga.Service.Prune] deletes them, which nobody calls but you. A
//     database that takes part in the sagas of several logs has marks of all of them: each log's service deletes its own.
package pgsaga
