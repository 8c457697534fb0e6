// Package pgstore keeps the states of package checkpoint in a table of your PostgreSQL, which [Install] creates.
//
// # Protocol
//
// A save is one statement, guarded by revision and token in its WHERE. With [checkpoint.Options.Transactional], steps and
// their save are one transaction: the operation's row is locked, its head is looked at, the steps write through [Tx], the
// state is written, all is committed. If the answer to COMMIT is lost, the transaction is run again, and finds by the head
// whether it was done. A transaction that ran into another one is run again from its beginning, with its steps.
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
package pgstore
