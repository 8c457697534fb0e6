// Package cross moves money between accounts of different ledgers: each in a PostgreSQL database of its own, or on another
// Fairlead server.
//
// One of the ledgers is the server's own, called [Local]; it also has the log (package saga). A transfer between two ledgers
// has two legs: debit takes the money from its account to the transit account of its ledger, credit brings it from the
// transit account of the other ledger to the account there. Each leg is a transfer of its own ledger whose entries sum to
// zero, so that the books of each ledger balance at any time, and those of both together when nothing is on its way.
//
// With [ModeSaga], debit comes first and then credit; where the credit is refused, the debit is undone. Money that is on its
// way is on neither account. With [ModeTwoPhase], both legs are prepared, in the order of the ledgers' names, and committed
// after the decision; nobody sees one without the other but for the moment between the two commits.
//
// A ledger that is no [Preparer], such as one on another server, takes part in [ModeSaga] alone. [Service.Move] makes a
// transfer for a program; [Service.Leg] executes a leg for another server's.
//
// A transfer within one ledger has one leg, transfer, which locks its two accounts in canonical order, in both modes.
//
// A leg leaves a mark in its own ledger, in the transaction of its effect, that says what became of it: done, or refused and
// why. The first mark stands; a leg that is executed again reads it and changes nothing.
package cross
