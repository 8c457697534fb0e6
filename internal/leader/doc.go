// Package leader lets exactly one of many processes do a piece of work that needs no more than one, such as closing the
// rounds of auctions, and hands it on when that process dies.
//
// # Protocol
//
// The right to lead is a lease: a row with a holder, a term and an expiry, kept by a [Lease], whose clock alone decides
// expiry. An [Elector] is
//
//	waiting ──► leading ──► waiting …
//	   └───────────┴──► done (its context ended)
//
// Waiting, it tries to take the lease at once, then when the lease could be free as far as the last try has told, and
// at least every half second. Each grant has a new, higher term.
//
// Leading, it runs the work under a context, the tenure, and renews the lease every third of its time to live. A renewal
// that fails for a passing reason is tried again. The tenure ends
//
//   - with [ErrLeaseLost] as its cause, when a renewal is refused, or when no renewal that began within the last TTL less
//     [Margin] has succeeded: before the lease can have expired, whatever the lease's keeper said and however long its
//     answer took;
//   - with the elector's context, at a shutdown;
//   - when the work returns.
//
// In each case the elector waits until the work has returned. Where the lease may still be its own it then resigns, so
// that the next try of any other elector succeeds without waiting for the expiry.
//
// # What it promises
//
//   - Terms strictly increase, as far as the lease's keeper forgets nothing.
//   - A tenure's context ends before the lease can have expired, if the clocks of this process and of the lease's keeper
//     run equally fast to within a tenth, which the margin is for.
//   - When a leader dies, another one leads within TTL + half a second and a round trip; when it resigns, within half a
//     second and a round trip.
//
// # What it does not promise
//
//   - That at most one leader acts at any instant. A process may be stopped between looking at its context and acting.
//     The work must therefore carry its term into what it writes, and refuse a lower term than one seen before, in the
//     transaction of the write.
//   - That a lease taken by a call whose answer was lost is led under: it has to expire first.
//   - Fail-over in bounded time when the keeper's clock is set back.
package leader
