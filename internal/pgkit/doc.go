// Package pgkit is the one way in which this module's packages use PostgreSQL: [Runner] runs transactions, [Classify] says
// what an error means, [Install] makes tables, and [Listen] hears notifications. [Probe] finds out what an engine that is not PostgreSQL
// lacks, and a [Gate] has transactions take turns where there are no advisory locks. What differs between the users are fields and arguments.
//
// # When the answer to COMMIT does not come
//
// Nobody knows then whether the transaction committed. Run calls the closure again, in a new transaction. The closure must
// recognise what an earlier call committed: by the records of idempotency keys, by rows that it wrote, or by guards. Where no
// later run succeeds, Run returns [Unknown]. The decision is docs/adr/0001.
package pgkit
