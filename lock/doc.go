// Package lock gives programs in several processes exclusive rights to keys: fenced, in order of asking, over one key or
// many at once, and never deadlocked for long.
//
// # Protocol
//
// A [Locker] acquires through a [Backend], which keeps the locks where all processes see them. A lock covers between one
// and [MaxKeys] keys, all of them or none. It is a lease: it ends when it is released, or when its time to live has
// passed without a renewal. A request is
//
//	asking ──► held ──► released | lost
//	  └──► waiting ──► held | refused ([ErrHeld], [DeadlockError]) | withdrawn (its context ended)
//
// Requests for a key are granted in the order in which they came. A request that wants several keys holds none of them
// while it waits, but later requests for any of its keys wait behind it, so that it does not starve. There is one
// exception: a request overtakes those that wait, directly or through others, for its own owner. They can't be granted
// before it anyhow. A backend may say that the order is looser between processes while a key changes hands all the time.
//
// Each grant of a key has a token, an integer that is greater than those of all earlier grants of that key. Tokens are
// what makes a lock safe: a writer under a lock brings the token along, and the store that it writes to refuses a token
// that is older than one it has seen, in the transaction of the write. For PostgreSQL that is pglock's Fence.
//
// # Holding
//
// [Held.Context] ends when the lock may no longer be relied upon: before its lease can have expired, with a cause that
// says why. The lease is trusted until the beginning of the last renewal that succeeded + TTL − margin, by the process'
// own monotonic clock, however long the backend's answer took. A renewal that fails for a passing reason is tried again
// until then. [Held.Release] works under a context that has ended.
//
// # Deadlock
//
// An owner is a name for one line of work. Owners that hold some keys and wait for others form a graph, see [Graph]. A
// cycle in it is a deadlock; the youngest request of the cycle is refused with a [DeadlockError] that names the owners in
// it, and what its owner held before stays held. A request made under the context of a [Held] has its owner unless it
// names another, so that nested locks are seen as what they are.
//
// # Election
//
// An [Election] is a lock that is renewed, whose token is the term. Candidates wait in line. A leader that resigns hands over
// to the next at once; a leader that dies is replaced as any holder is.
//
//	standing ──► leading ──► resigned | lost ──► standing …
//
// # What it promises
//
//   - For each key, tokens are unique and grow from grant to grant.
//   - Releasing or losing one lock never ends another one.
//   - When a holder dies, the next in line is granted within TTL + 2 s.
//   - A cycle of waiting owners is broken within 1 s of its closing, with one victim.
//
// # What it does not promise
//
// That at most one process acts at any instant: a process may be stopped between looking at its context and writing, and
// go on after its lease has expired. No lock service can promise otherwise. Where it matters, check the token.
//
// A process whose machine is suspended may not see its monotonic clock advance meanwhile; the same holds for it.
package lock
