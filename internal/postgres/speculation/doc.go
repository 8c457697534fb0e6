// Package speculation commits transactions that were decided on what this process remembers, without a read and without a
// lock. It has the parts that the speculative lanes of the ledger, of auctions and of campaigns share: what is remembered, the pipelines on
// which transactions are sent, and the way back to a transaction with locks. The SQL is the stores', in package postgres.
//
// # The rule
//
// Memory is never believed. A speculative transaction carries a guard for everything that its decisions rest on, in its
// statements. A guard divides by zero, or meets a unique index, where the database has something else. PostgreSQL then undoes
// the whole transaction, and the batch is decided again under locks. Wrong memory costs time; it cannot make a wrong result.
// docs/design/memory.md names, for each thing that may be wrong, the statement that refuses and the test that shows it.
// docs/adr/0010 and 0011 say why it is done at all.
//
// # The parts
//
//   - [Speculator] runs a speculative transaction ([Speculator.Commit]), and falls back to one with locks
//     ([Speculator.Run]). It reports every fallback with its [Reason].
//   - [Pipeline] sends a transaction while those before it are still being executed. The second one may spend what the first
//     one brings. If the first fails, the guards of the second refuse. Those that have nothing in common are gathered into one
//     (docs/adr/0054), and each is sent again by itself where that fails.
//   - [Accounts] remembers accounts, and which transactions of this process work on them now.
//   - [Memory] remembers auctions, and campaigns.
//   - [Keys] remembers idempotency keys that were stored lately. It is a hint that chooses the lane, and nothing more.
//   - [Clock] knows the database's time as an interval.
//   - [Params] encodes parameters without allocating, those of several transactions as if they were one's.
//
// # How a transaction goes
//
//	Run ──► speculative ──► NotSent(reason): nothing reached the database ─────────────────────┐
//	             │                                                                             ▼
//	             ├─► sent ─► PostgreSQL's error: all of it is undone ────────────────────► locked
//	             │      ├──► ErrLinkLost: nobody knows ─ the locked run finds out by the keys ─┘
//	             │      └──► ErrNotReplicated, or the database is away: the outcome is unknown
//	             └─► committed
//
// # States of an account
//
// An account is unknown, or known in a version. A known one is either committed, or what a transaction under way will leave.
//
//	unknown ──(read, then sent)──► known, under way ──(committed)──► known
//	   ▲                                 │                             │
//	   └── Forget: it failed ◄───────────┘      Lock: a run with locks ┘ begins
//
// Invariants: a known version is never replaced by an older one. The speculative transactions of one pipeline work on an
// account at a time, or transactions with locks do. That only avoids failures; the guards protect.
//
// # States of an auction or a campaign
//
// One transaction at a time works on what is remembered: [Memory.Lock] and [Memory.Take] hand it out, and
// [Memory.Unlock], [Memory.Sent] or [Memory.PutBack] bring it back.
//
//	nothing ──(read under the lock, Unlock)──► settled ──(Take, Sent)──► rests on n under way
//	   ▲                                          ▲                        │          │
//	   │                                          └─ the last committed ───┘          │
//	   └────────── poisoned: one of n failed, and what rests on it is dropped ◄───────┘
//
// What rests on a failure is brought back to what was committed instead, where the store can undo each step ([Sent]), and PostgreSQL is known to
// have undone all of them.
//
// Invariants: a transaction that failed, or whose outcome is unknown, poisons everything that rests on it, before the batch is
// decided again. A revision names one state of one history, so it is never reused.
//
// After a guard has refused, another server is at work on the same rows. The next [BackoffTransactions] on that auction or campaign take their locks, unless
// the process is in a turn of its own (package turns). The next [Doubtful] of the ledger read the accounts that they work on; where they are refused
// often nevertheless, some take their locks, too.
//
// # Why the cut is here
//
// The stores keep the SQL, the guards among it, beside the other statements on the same tables. Rows that strangers have locked
// stay with them too: transactions with locks meet those as often. This package needs no more of a store than the texts of the
// statements, a read of accounts, and whether an account is known to be blocked: see [Options].
package speculation
