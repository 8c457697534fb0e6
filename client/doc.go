// Package client is the Go client of a Fairlead server.
//
// # Calls and types
//
// The documents' types are generated from docs/openapi.json; the methods are written by hand, one for each operation of the
// contract. They add what every caller would have to write: the credential, an idempotency key for everything that changes
// something, retries under that same key, typed errors, and iterators over lists. [Call] is the one function below them, for
// an operation that this package does not know yet, and [Client.Open] reads what is no document.
//
// A field's zero value stands for what is absent or null, as no limit, no time, the default. A field is a pointer where that
// would not be clear: without [CaptureRequest].Amount all of a hold is paid, and 0 is refused.
//
// # Protocol
//
// A call that changes something is sent with an Idempotency-Key: a random one, or the caller's own ([Key]). While no
// answer comes, or one that says so (503, 429, and the 409 of a request still in flight), the same request is sent
// again under the same key, after what Retry-After asks for or a growing pause with jitter, until [Retry] is used up.
// The server executes a key at most once and repeats its answer byte for byte, so that sending again is safe: it asks
// what happened, and makes it happen if it has not.
//
// A call ends in one of three ways:
//
//   - nil: it was done, once, and is durable.
//   - *[Problem]: the server did not answer with a success; Outcome says whether it is certain that nothing was done. Where it
//     is Unknown, call again with the problem's Key: an attempt whose answer was lost may have been carried out, and a server
//     that is overloaded, or has lost its database, can't look.
//   - *[UnansweredError]: no answer came at all. It was done once or not at all. Call again with the error's Key, now
//     or after a restart of the program, to learn which.
//
// # What it promises
//
//   - One call has at most one effect, however often it was sent.
//   - No call outlives its context.
//
// # What it does not promise
//
// A program that dies in the middle of a call has lost the random key with it. Where the effect must not be doubled
// by the program's next start, choose the key yourself, store it first, and pass it with [Key]. The server keeps
// answers for 24 hours unless it is configured otherwise; a key sent again later than that is a new request.
//
// # Concurrency
//
// A Client is safe for concurrent use, and is meant to be shared.
package client
