// Package outbound is the way out to servers whose names come from callers: webhooks' receivers, and what publications link to.
//
// # Which addresses are dialled
//
// A URL that a caller gives must not become a way into the server's own network. Every connection's address is checked when it
// is dialled, after the name was resolved, so that a name that changes between two lookups gains nothing; proxies of the
// environment are not used, and no redirect is followed. Only addresses that are public are dialled: not loopback, private,
// link-local (cloud metadata among it), shared, reserved or multicast ones, nor IPv6 addresses that stand for such IPv4 ones
// (mapped, NAT64, 6to4, Teredo). Hosts that are numbers in any but the usual spelling (2130706433, 0x7f.1, 0177.0.0.1), that have
// an IPv6 zone, or that name this machine or its network (localhost, *.localhost, *.local, *.internal and their like, with dots at
// the end or not) are refused before any lookup, and [CheckURL] refuses them where they are given. [Options.AllowPrivate] lifts all
// of that.
//
// # What it does not do
//
// It sends nothing again by itself, and it does not say what an answer means: that is each sender's own.
package outbound
