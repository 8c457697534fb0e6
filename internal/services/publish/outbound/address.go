package outbound

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// ErrRefusedAddress is returned when a host is, or resolves to, an address that must not be dialled.
var ErrRefusedAddress = errors.New("the address is not a public one")

// notPublic are the blocks of the IANA special-purpose registries that are not for the public internet, and the addresses
// at which clouds serve the secrets of their machines.
func notPublic() []netip.Prefix {
	texts := []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
		"192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
		"168.63.129.16/32", // a cloud's own, in spite of its number
		// Within 2000::/3, all that is public of IPv6.
		"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	}
	out := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		out[i] = netip.MustParsePrefix(text)
	}
	return out
}

// guard distinguishes public addresses from others.
type guard struct {
	refused []netip.Prefix
	public6 netip.Prefix
	nat64   netip.Prefix
}

func newGuard() *guard {
	return &guard{refused: notPublic(), public6: netip.MustParsePrefix("2000::/3"), nat64: netip.MustParsePrefix("64:ff9b::/96")}
}

// check returns an error that wraps [ErrRefusedAddress] unless the address is public.
func (g *guard) check(a netip.Addr) error {
	plain := a.WithZone("").Unmap()
	if g.nat64.Contains(plain) {
		// A network without IPv4 reaches it by these; what counts is the address within.
		b := plain.As16()
		plain = netip.AddrFrom4([4]byte(b[12:]))
	}
	public := plain.IsValid() && (plain.Is4() || g.public6.Contains(plain))
	for _, p := range g.refused {
		public = public && !p.Contains(plain)
	}
	if !public {
		return fmt.Errorf("%w: %s", ErrRefusedAddress, a)
	}
	return nil
}

// control is called by the dialer with the very address that it is about to connect to.
func (g *guard) control(network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("%w: %s", ErrRefusedAddress, network)
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s", ErrRefusedAddress, address)
	}
	return g.check(to.Addr())
}

// CheckURL returns an error that wraps [ErrRefusedAddress] for a URL whose host is known not to be public without looking
// it up. It is for the place where a URL is given, so that a mistake is reported early; what a name resolves to is known
// only when it is dialled, and is checked then.
func CheckURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil {
		return fmt.Errorf("%w: the URL is malformed", ErrRefusedAddress)
	}
	return newGuard().checkHost(u.Hostname())
}

// notPublicNames are the domains that are set aside for a machine itself and for its own network, and what hosts files call
// a machine itself.
func notPublicNames() []string {
	return []string{"localhost", "localdomain", "local", "internal", "home.arpa", "ip6-localhost", "ip6-loopback"}
}

// checkHost refuses hosts that are addresses of no public machine, numbers that some resolvers take for addresses, and
// names that stand for this machine or its network.
func (g *guard) checkHost(host string) error {
	name := host
	if strings.ContainsFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) { // As the transport does before it dials.
		var err error
		if name, err = idna.Lookup.ToASCII(host); err != nil || !utf8.ValidString(host) {
			return fmt.Errorf("%w: %q is no name", ErrRefusedAddress, host)
		}
	}
	if strings.Contains(name, "%") {
		return fmt.Errorf("%w: %s has a zone", ErrRefusedAddress, host)
	}
	if a, err := netip.ParseAddr(name); err == nil {
		return g.check(a)
	}
	name = strings.ToLower(strings.TrimRight(name, "."))
	if last := name[strings.LastIndexByte(name, '.')+1:]; isNumber(last) || strings.Contains(name, ":") {
		return fmt.Errorf("%w: %s is a number in an unusual spelling", ErrRefusedAddress, host)
	}
	for _, local := range notPublicNames() {
		if name == local || strings.HasSuffix(name, "."+local) {
			return fmt.Errorf("%w: %s is a name of this machine or its network", ErrRefusedAddress, host)
		}
	}
	return nil
}

// isNumber reports whether some resolvers take a host with this last label for an IPv4 address: no top-level domain is a
// number.
func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
