// Package webhook posts publications to URLs, signed as Standard Webhooks has it.
//
// # A delivery
//
// The payload is the body of a POST, byte for byte as it was given. webhook-id is the publication's id, the same in every
// attempt: a receiver that remembers the ids it has seen takes each publication once. webhook-timestamp is when the attempt
// was made, webhook-signature is "v1," and the base64 of HMAC-SHA256(secret, id.timestamp.body), and
// fairlead-execution-version is the attempt's version: a receiver that fences refuses one that is not above the last it saw.
//
// # What an answer means
//
//	2xx                                   delivered
//	429, 5xx, no answer in time, no way   transient; Retry-After (seconds or a date) is honoured
//	other 4xx, 1xx, 3xx, refused address  permanent; no redirect is followed
//
// The status line decides. Of the answer's body at most [MaxReply] bytes are read, and those only to be able to use the
// connection again; a receiver that drips its body is not waited for.
//
// # Which addresses are dialled
//
// A publication's URL comes from a caller, and must not become a way into the server's own network. Every connection's
// address is checked when it is dialled, after the name was resolved, so that a name that changes between two lookups gains
// nothing; proxies of the environment are not used. Only addresses that are public are dialled: not loopback, private,
// link-local (cloud metadata among it), shared, reserved or multicast ones, nor IPv6 addresses that stand for such IPv4 ones
// (mapped, NAT64, 6to4, Teredo). Hosts that are numbers in any but the usual spelling (2130706433, 0x7f.1, 0177.0.0.1) are
// refused before any lookup. [Options.AllowPrivate] lifts all of that.
package webhook
