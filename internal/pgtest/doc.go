// Package pgtest gives tests databases of their own on a real PostgreSQL.
//
// A package's TestMain calls [Main]. The first test that asks for a database starts one private PostgreSQL for the test binary,
// through internal/localpg. For each migrate function, a template database is made and migrated once; each test gets a copy of
// it, which takes some tens of milliseconds and is dropped at the test's end. [Main] stops and removes PostgreSQL when all tests
// are done, and fails the run if goroutines are left over.
//
// Tests of other servers find their programs with [Program], and a free port with [Port].
//
// # Promises
//
//   - Databases share nothing: tests may run in parallel.
//   - On Linux, a test process that dies leaves no PostgreSQL behind; a run a day later removes its directory.
//   - Without PostgreSQL, tests are skipped with a message. With CI=true they fail, so that a green run there means something.
//
// The shared server is not durable: it runs without fsync, which would take most of a test run. It survives the death of a
// process all the same. Tests about durability, and tests that kill PostgreSQL, use [Server], which is durable.
package pgtest
