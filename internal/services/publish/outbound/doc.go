// Package outbound sends requests to servers whose names come from callers: the receivers of webhooks, and the files that
// publications link to. It repeats nothing, and leaves the meaning of an answer to each sender.
//
// # Which addresses are dialled
//
// A caller's URL must not become a way into the server's own network. The dialer checks the address of every connection after
// the name was resolved, so a name that changes between two lookups gains nothing. Proxies of the environment are not used, and
// no redirect is followed. Only public addresses are dialled: not loopback, private, link-local (such as cloud metadata),
// shared, reserved or multicast addresses, nor IPv6 addresses that stand for such IPv4 addresses (mapped, NAT64, 6to4, Teredo).
//
// Some hosts are refused before any lookup: numbers in an unusual spelling (2130706433, 0x7f.1, 0177.0.0.1), IPv6 zones, and
// names of this machine or its network (localhost, *.localhost, *.local, *.internal and the like, with or without dots at the
// end). [CheckURL] refuses them when a URL is given. [Options.AllowPrivate] lifts all of these checks.
package outbound
