// Package client is the Go client of a Fairlead server.
//
// # Calls and types
//
// The types are generated from docs/openapi.json. The methods are written by hand, and every operation of the contract has
// one. They add what every caller would have to write: the credential, an idempotency key for everything that changes
// something, retries under that same key, typed errors, and iterators over lists. All of them use [Call], which also reaches
// operations that this package does not know yet. [Client.Follow] gives the events of a topic; [Client.Open] reads what else is not
// a JSON document.
//
// A field's zero value means that the member is absent or null: no limit, no time, the default. A field is a pointer where
// zero and absent differ. For example, the server refuses a [CaptureRequest] with an Amount of 0, and captures all of the
// hold when Amount is nil.
//
// # Protocol
//
// A call that changes something is sent with an Idempotency-Key: a random one, or the caller's own ([Key]). While no
// answer comes, or a retryable one (503, 429, and the 409 of a request still in flight), the client sends the same request
// again under the same key, after Retry-After and a growing pause with jitter, until [Retry] is used up. Sending again is
// safe, because the server executes a key at most once and repeats its answer byte for byte.
//
// A call ends in one of three ways:
//
//   - nil: it was done, once, and is durable.
//   - *[Problem]: the server did not answer with a success; Outcome says whether it is certain that nothing was done. Where it
//     is Unknown, call again with the problem's Key: an attempt whose answer was lost may have been carried out, and a server
//     that is overloaded, or has lost its database, can't look. Once an attempt had no answer, or the answer unknown, the client
//     reports Unknown until the server gives the answer that it has stored under the key.
//     A redirect that would make a GET of a command is not followed, and ends as a Problem without a code: this request did nothing, and
//     the Detail says where the redirect leads. Use that address as base URL.
//   - *[UnansweredError]: no answer came at all, or one that no Fairlead server gives, such as a success that is cut or no JSON. It was
//     done once or not at all. Call again with the error's Key, now or after a restart of the program, to learn which.
//
// A call that can't be sent, because its document can't be encoded or its key is malformed, ends at once with another error.
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
// A Client is safe for concurrent use, and is meant to be shared. Where many goroutines move money, bid or buy at a time, a [Batcher]
// gathers their calls into few requests.
package client
