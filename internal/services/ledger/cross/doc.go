// Package cross moves money between accounts of different ledgers, each in its own PostgreSQL database or on another Fairlead
// server.
//
// One of the ledgers is the server's own, called [Local]; it also has the log (package saga). A transfer between two ledgers has
// two legs. Debit moves the money from its account to the transit account of its ledger; credit moves it from the transit
// account of the other ledger to the account there. Each leg is a transfer of its own ledger whose entries sum to zero. The
// books of each ledger therefore balance at any time, and the books of both together balance when no money is in transit. A
// transfer within one ledger has one leg, transfer, which locks its two accounts in canonical order, in both modes.
//
// In mode [saga.Compensated], debit comes first and then credit; if the credit is refused, the debit is undone. Money in transit
// is on neither account. In mode [saga.TwoPhase], both legs are prepared, in the order of the ledgers' names, and committed after
// the decision; one is visible without the other only for the moment between the two commits. A ledger that is no [Preparer], such
// as one on another server, takes part in [saga.Compensated] alone. [Service.Create] makes a transfer; [Service.Leg] executes a leg for
// another server.
//
// A leg leaves a mark in its own ledger, in the transaction of its effect: done, or refused with a reason. The first mark
// stands; a leg that is executed again reads it and changes nothing.
package cross
