// Package webhook posts publications to URLs, signed as Standard Webhooks has it.
//
// # A delivery
//
// The payload is the body of a POST, byte for byte as it was given. webhook-id is the publication's id, the same in every
// attempt: a receiver that remembers the ids it has seen takes each publication once. webhook-timestamp is when the attempt
// was made, webhook-signature is "v1," and the base64 of HMAC-SHA256(secret, id.timestamp.body), twice while a secret is being replaced, and
// fairlead-execution-version is the attempt's version: a receiver that fences refuses one that is not above the last it saw.
//
// # What an answer means
//
//	2xx                                   delivered
//	429, 5xx, no answer in time, no way   transient; Retry-After (seconds or a date) is honoured
//	other 4xx, 1xx, 3xx, refused address  permanent; no redirect is followed
//
// The status line decides. Of the answer's body at most [outbound.MaxReply] bytes are read, and those only to be able to use the
// connection again; a receiver that drips its body is not waited for.
//
// Package outbound says which addresses are dialled.
package webhook
