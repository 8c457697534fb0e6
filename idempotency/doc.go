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
//		   │                └─ Park, lease over ──► unknown ──Complete──┘                                 (ParkAsUnknown)
//		   └──────────────────────Release─────────────┘
//
//	  - The key is bound to principal, method, host and path ([Scope]); a [Fingerprint] of method, path, query and body tells a retry
//	    from another request that reuses the key.
//	  - 400 where a key is required and missing or malformed; 422 where it stands for another request; 409 while it is in
//	    flight, or the answer after a wait ([Options.Wait]); 413 for a body over the cap.
//	  - What was decided is kept, refusals and 500s too; what was never decided (a malformed request, an absent object, an
//	    overloaded server; [DefaultDecided]) is not, and the same key may then be used again.
//	  - Every answer that is not the executing request's own has Idempotent-Replayed: true.
//	  - An execution has a lease, extended while its handler runs, and a [Grant] with a fence. A process that wakes up after another
//	    has taken the key over can't keep its answer, and gets the other's.
//
// # In your own transactions
//
// pgstore.Store.Do executes a function once a key inside of a transaction of yours, and pgstore.Store.CompleteIn keeps a
// handler's answer in the transaction of its effect. Only these commit key and effect together.
//
// The server of this module goes the same way with parts of its own: [ParseKey], [NewID], [NewFingerprint], and a [Batch],
// the records that one transaction works with.
//
// # Promises
//
//   - Per scope and key, at most one execution at a time may keep its answer; all successes for a key are byte-equal, and
//     another fingerprint is never executed.
//   - Nothing is answered with success before its answer is kept, and nothing is executed when the store can't be asked.
//   - With Do or CompleteIn: at most one effect a key, whatever dies; exactly one once a retry has succeeded.
//   - With [ParkAsUnknown]: at most one execution a key, whatever dies; what became of it is settled by [Options.Resolve].
//
// # What it does not promise
//
//   - With [FreeAfterLease] and an effect outside of the store's transaction: that a crash between the effect and its answer
//     does not lead to a second one. No middleware can; hand the fence to what you write to.
//   - Anything about keys older than the retention: they are new keys.
//   - Anything that the store forgets. By default Redis forgets; see package redisstore.
//   - Streaming: answers are kept before they are sent; see [Middleware.Wrap].
package idempotency
