// Package sim loads real server processes, breaks them, and checks that nothing was lost or done twice.
//
// It sees the product from outside alone: the binary, the HTTP interface, the database's tables. What other packages' tests
// use, too, is exported: [Build] builds the binary once a test run, a [Server] is a process of it on a free port, with a private
// data directory or on a shared database, and [KillPostgres] kills the processes of a private PostgreSQL. Package torture runs what
// else is exported against installations that are no test's, and package explore uses clients, histories and commands:
//
//   - Client sends commands with idempotency keys. Its Settle repeats one until it has a final answer, whatever the servers go
//     through meanwhile, and records every answer in a History.
//   - Workload draws commands on money and lotteries from a seed.
//   - History.Check is the model. It compares the clients' answers with the database: every acknowledged effect is there once,
//     nothing else is, each balance is what the clients' own books say, each key's answers were byte-identical and are what is
//     stored.
//   - Package tally counts what was acknowledged, lost and doubled, by the faults of the run. FAIRLEAD_TALLY names the file to which
//     tests add that.
//   - Package audit audits the database by itself; package wire is a proxy that loses the answer to COMMIT.
//
// # Protocol of a fault test
//
// Load runs while faults are injected; when the last fault is over, the workers stop drawing new commands and settle
// those under way by their keys. Then the books are closed: audit, model, and a replay of the keys. An operation that
// was never answered has no place in a closed book, so the end of a test is total: no outcome is left open.
//
// # Seeds
//
// Every random choice of a test comes from one seed, printed when the test fails and set again by FAIRLEAD_SEED.
// Seeds make the commands and the faults repeatable; the interleaving is the machine's.
//
// # Sizes
//
// Tests run in sizes for every change; FAIRLEAD_TORTURE=1 runs the full counts. FAIRLEAD_PAUSE (30s) is how much longer than a fault
// the servers may pause. FAIRLEAD_SIM_BINARY names a binary to
// use instead of building one (built with the tag crashpoints), FAIRLEAD_SIM_RACE=0 builds without the race detector. For every change one
// server of two has it; in full counts, all have.
package sim
