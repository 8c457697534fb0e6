// Package pgtest gives tests databases of their own on a real PostgreSQL.
//
// # Protocol
//
// A package's TestMain calls [Main]. The first test that asks for a database starts one private PostgreSQL for the test binary,
// through internal/localpg. For each migrate function, a template database is made and migrated once; each test then gets a
// copy of it, which takes some tens of milliseconds, and which is dropped at the test's end. [Main] stops PostgreSQL when all
// tests are done, removes it, and fails the run if goroutines are left over.
//
// With FAIRLEAD_TEST_DATABASE_URL set, databases are made on that server instead; its role must be allowed to create databases.
//
// Tests that start servers of other kinds find their programs by [Program], and what port to give them by [Port].
//
// # Promises
//
//   - Databases share nothing: tests may run in parallel.
//   - A test process that dies, however it dies, leaves no PostgreSQL behind
//     on Linux; its directory is removed by the next run.
//   - Without PostgreSQL, tests are skipped with a message, but they fail when
//     the environment says CI=true, so that a green run there means something.
//
// # What it doesn't promise
//
// The shared server isn't durable: it runs without fsync, because what a test has written needn't survive a power failure, and
// syncing a thousand small databases takes most of a test run. The death of a process is survived all the same. Tests about
// durability, and tests that kill PostgreSQL, take one of their own from [Server], which is durable.
package pgtest
