// Package idempotency gives a request that may be sent again one effect and one answer.
//
// A client names its request with a key. The first request under a key is executed and what was decided is kept; every
// later one is answered from that, byte for byte.
//
// # In front of your handlers
//
// [Middleware] does it for any net/http handler, on a [Store]: pgstore (PostgreSQL), redisstore (Redis) or memstore (one
// process). It follows draft-ietf-httpapi-idempotency-key-header, and Stripe where that leaves a choice.
//
//		absent ──Begin──► in flight ──Complete──► answered ──retention──► absent
//		   ▲                │    │ ▲                 ▲
//		   ├────Release─────┤    │ └─ Extend         │
//		   │                │    └─ lease over ──► taken over by the next request, under a greater fence   (FreeAfterLease)
//		   │                └─── lease over ──────► unknown ──Complete──┘                                 (ParkAsUnknown)
//		   └──────────────────────Release─────────────┘
//
//	  - A key is bound to principal, method, host and path ([Scope]). A [Fingerprint] of method, path, query and body tells a retry
//	    from another request that reuses the key.
//	  - Refusals: 400 for a key that is required and missing or malformed, 422 for a key of another request, 409 for a key in
//	    flight, at once or after a wait ([Options.Wait]), 413 for a body over the limit.
//	  - Decisions are kept, refusals and 500s too. What was never decided (a malformed request, an absent object, an overloaded
//	    server; [DefaultDecided]) is not kept, and the same key may be used again.
//	  - Every answer but the executing request's own has Idempotent-Replayed: true.
//	  - An execution has a lease, extended while its handler runs, and a [Grant] with a fence. A process that wakes up after
//	    another has taken the key over can't keep its answer, and gets the other's.
//
// # In your own transactions
//
// pgstore.Store.Do executes a function once a key inside your transaction, and pgstore.Store.CompleteIn keeps a handler's answer
// in the transaction of its effect. Only these commit key and effect together. The server of this module does the same with
// [ParseKey], [NewID], [NewFingerprint], and a [Batch] of the records of one transaction. Its commands, and those of packages saga
// and multidraw, are of type [Command].
//
// # Promises
//
//   - Per scope and key, at most one execution at a time may keep its answer; all successes for a key are byte-equal, and
//     a request with another fingerprint is never executed.
//   - Success is answered only after the answer is kept, and nothing is executed while the store can't be reached.
//   - With Do or CompleteIn: at most one effect a key, whatever dies; exactly one once a retry has succeeded.
//   - With [ParkAsUnknown]: at most one execution a key, whatever dies. [Options.Resolve] settles what became of it.
//
// # What it does not promise
//
//   - With [FreeAfterLease] and an effect outside of the store's transaction: a crash between the effect and its answer may lead
//     to a second effect. No middleware can prevent that; pass the fence to what you write to.
//   - Anything about keys older than the retention: they are new keys.
//   - Anything that the store forgets. Redis forgets by default; see package redisstore.
//   - Streaming: answers are kept before they are sent; see [Middleware.Wrap].
package idempotency
