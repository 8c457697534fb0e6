// Package idempotency gives a request that may be sent again one effect and one answer.
//
// A client names its request with a key. The first request under a key is executed and what was decided is kept as a
// [Record], written in the same transaction as the effect; every later one is answered from the record, byte for byte.
//
// # Protocol
//
//  1. [ParseKey] reads the Idempotency-Key header (draft-ietf-httpapi-idempotency-key-header: quoted or bare).
//  2. [NewID] binds the key to its scope: principal, method and path. The same key elsewhere is another key.
//  3. A [Fingerprint] of the request's content tells a retry from another request that reuses the key.
//  4. Inside the transaction a [Batch] holds the records already known; [Batch.Lookup] answers a repeat and refuses a
//     reuse, [Batch.Store] adds the record of a fresh decision.
//
// # Promises
//
// Per scope and key there is at most one effect, and every stored answer is repeated unchanged. This rests on the
// primary key of the table that holds the records, not on any process's memory. What was never decided (a malformed
// request, an absent object, an overloaded server) is not recorded: the same key may then be used again.
//
// Records live for a retention period; a key that is sent again later is a new key.
package idempotency
