// Package pgstore keeps the states of package checkpoint in a table of your PostgreSQL, which [Install] creates.
//
// # Protocol
//
// A save is one statement, guarded by revision and token in its WHERE. With [checkpoint.Options.Transactional], steps and
// their save are one transaction: the operation's row is locked, its head is looked at, the steps write through [Tx], the
// state is written, all is committed. If the answer to COMMIT is lost, the transaction is run again, and finds by the head
// whether it was done.
//
// With [checkpoint.Options].Every above 1, a savepoint before each step but the first lets a step that fails be undone by itself. The
// steps before it are committed, also when the context has ended. If the step ran into another transaction, as in a deadlock, it
// begins the next transaction. The first step of a transaction is run again with it.
//
// When the connection is lost, nothing of the transaction remains, and it is run again with all its steps. A step that panics, and
// a context that ends in the middle of a statement, end the connection's transaction, too. Then the next run does its steps again.
//
// # What it promises
//
// What [checkpoint.Transactor] says: the effect of a step and the state that says that it is done are committed together, and
// a run that was overtaken can commit neither. A state is kept until its operation has ended, and for its time to live after
// that, by the database's clock.
//
// # What it does not promise
//
// Speed with large states: each save writes the state as a whole, also to the write-ahead log. Save a large state more rarely
// ([checkpoint.Options].Every).
//
// Effects elsewhere than in this database: they are not committed with it.
//
// Cheap savepoints: each costs a round trip, some 30 µs where the server is near, which is a quarter of a step of one INSERT. Each step
// that writes takes a transaction id. From 64 such steps in a transaction on, other sessions take longer to see which rows are
// committed while it runs. So Every need not be more than 64.
package pgstore
