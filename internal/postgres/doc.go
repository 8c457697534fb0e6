// Package postgres keeps the services' state in PostgreSQL, the system of record.
//
// # Rules
//
//   - One place begins, retries and commits transactions: pgkit.Runner, by DB.run. Closures may run more than once and say so.
//   - READ COMMITTED with explicit row locks in canonical order: entities (campaign, …) by kind and id, then accounts
//     by id. No decision rests on a SELECT made before the lock, with one exception: the ledger's first run decides on
//     accounts that it remembers, and its writes check that they are still so (docs/adr/0010).
//     Which accounts a sale has to lock is guessed from what is remembered, and looked at again under the campaign's lock.
//   - Rows-affected is checked every time: by its count, or by the statement itself where COMMIT is sent along. A surprise that
//     another process explains ([errStale]) has the transaction run again; any other is a defect ([errLostRow]).
//   - The database's clock, read after the locks, dates everything a transaction writes; that first run carries it on
//     by the local clock for at most a second, and decides nothing by it.
//   - SQL stands beside the method that runs it. A test prepares every statement on the migrated schema.
//   - Bulk writes go through unnest of equally long arrays.
//
// # When the answer to COMMIT does not come
//
// The transaction runs again. The records of the batch's keys were written by the lost transaction itself, so the
// rerun, having waited for the lost one's row locks, finds either all of them (it committed: their answers are given)
// or none (it did not: the commands are decided afresh). See docs/adr for why this is preferred to pg_xact_status.
package postgres
