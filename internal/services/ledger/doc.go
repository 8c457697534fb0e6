// Package ledger keeps accounts and moves money between them, so that no coin is made, lost or spent twice.
//
// # Model
//
// An account is named by its caller, has one currency, and holds an int64 of minor units, part of it available, part of it
// held. Every movement is a [Transfer] with two [Entry] rows that sum to zero (double entry). Deposits come from, and
// withdrawals go to, the outside of their currency ([Outside]), which has entries but no account. A [Hold] sets available money
// aside. It is captured once, wholly or in part (the rest is released), or released once, or expires.
//
//	hold:      open ──► captured | released | expired
//	transfer:  pending ──► completed | failed
//
// One transaction writes a transfer's intent and its end, so nobody else sees pending.
//
// # Invariants
//
//   - The entries of a transfer sum to zero.
//   - available + held of an account is the sum of its entries, and held is the sum of its open holds.
//   - 0 ≤ available, 0 ≤ held, and available + held never exceeds the largest int64.
//   - deposits − withdrawals = Σ available + Σ held, per currency, in every snapshot.
//
// # Shape
//
// [Book] is the pure core: the accounts that one transaction has locked, and their changes. [Decide] applies one operation to a
// book. [Service] brings batches of commands to the [Store], which locks the accounts in canonical order (by id, byte-wise),
// runs the decision and commits. Other services (lottery, auction) move money through a Book inside their own transactions.
package ledger
