// Package webhook posts publications to URLs, signed as Standard Webhooks specifies.
//
// # A delivery
//
// The payload is the body of a POST, byte for byte. The headers are:
//
//   - webhook-id: the publication's id, the same in every attempt. A receiver that remembers ids takes each publication once.
//   - webhook-timestamp: when the attempt was made.
//   - webhook-signature: "v1," and the base64 of HMAC-SHA256(secret, id.timestamp.body); two of them while a secret is being
//     replaced.
//   - fairlead-execution-version: the attempt's version. A receiver that fences refuses a version that is not above the last.
//
// # What an answer means
//
//	2xx                                   delivered
//	429, 5xx, no answer in time, no way   transient; Retry-After (seconds or a date) is honoured
//	other 4xx, 1xx, 3xx, refused address  permanent; no redirect is followed
//
// The status line decides. At most [outbound.MaxReply] bytes of the body are read, to be able to use the connection again; a
// receiver that sends its body slowly is not waited for. Package outbound says which addresses are dialled.
package webhook
