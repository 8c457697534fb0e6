// Package operator has the words that the operator's routes and the database share: who is signed in to the console, and the
// lists that an operator looks through.
//
// # Sessions
//
// A session is a secret of 256 random bits in a cookie, of which the database keeps the SHA-256. It belongs to an admin key
// and is worth what the key is worth: it ends at its time, when it is signed out, and with the key's revocation, whichever
// comes first. A link is the same kind of secret, used up by the sign-in that it is for.
//
//	link:     made ─► used (a session begins)        made ─► expired
//	session:  begun ─► signed out | expired | its key revoked
//
// # Lists
//
// All lists are paged by the place of the last item seen (keyset), newest first, so that a page costs the same wherever it
// is. A filter is served by an index, or there is none. The bids of one account are looked for among those of one auction.
//
// The package promises nothing about authorisation: whoever may call the readers is the edge's to decide.
package operator
