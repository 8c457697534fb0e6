package outbound

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAddresses(t *testing.T) {
	t.Parallel()
	g := newGuard()
	for _, a := range []string{
		"127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254", "100.64.0.1",
		"100.100.100.200", "192.0.0.192", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
		"168.63.129.16", "192.88.99.1",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1",
		"64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::10.0.0.1", "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::", "2001::1", "2001:db8::1", "100::1", "3fff::1", "5f00::1",
	} {
		if err := g.check(netip.MustParseAddr(a)); !errors.Is(err, ErrRefusedAddress) {
			t.Errorf("%s is taken for public: %v", a, err)
		}
	}
	for _, a := range []string{"1.1.1.1", "8.8.8.8", "172.15.0.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::808:808"} {
		if err := g.check(netip.MustParseAddr(a)); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
	if err := g.check(netip.Addr{}); err == nil {
		t.Error("no address is taken for public")
	}
	for _, host := range []string{
		"127.0.0.1", "2130706433", "017700000001", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "127.0.0.1.", "0x", "10.0.0.010", "169.254.43518", "1.2.3.0X4", "::1",
		"127.0.0.1..", "2130706433.", "::ffff:127.0.0.1", "::ffff:7f00:1", "0:0:0:0:0:ffff:10.0.0.1", "::127.0.0.1", "fe80::1%eth0", "2606:4700::1111%eth0", "::1%25lo", "::1.", "\xc40", "8.8.8.8%1",
		"localhost", "localhost.", "localhost..", "LocalHost", "a.localhost", "A.LOCALHOST.", "localhost.localdomain", "ip6-localhost", "ip6-loopback.", "printer.local", "local", "metadata.google.internal.",
		"router.home.arpa", ".", "..", "", "ｌｏｃａｌｈｏｓｔ", "localhost。", "１２７.0.0.1", "127。0。0。1", "①②⑦.0.0.1",
	} {
		if err := g.checkHost(host); !errors.Is(err, ErrRefusedAddress) {
			t.Errorf("host %s is let through: %v", host, err)
		}
	}
	for _, host := range []string{
		"example.com", "example.com.", "EXAMPLE.com", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "1.example", "0x7f.example.com", "hooks", "localhost.example.com", "notlocalhost",
		"my-localhost.example", "internal.example.com", "b\u00fccher.example",
	} {
		if err := g.checkHost(host); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// FuzzCheckHost: the case and the dots at the end of a host make no difference, and no host is let through that is, in any
// spelling that this machine's resolver knows without asking, an address that is not public.
func FuzzCheckHost(f *testing.F) {
	for _, host := range []string{"localhost", "example.com.", "127.0.0.1", "::ffff:127.0.0.1", "0x7f.1", "fe80::1%eth0", "１２７.0.0.1", "bücher.example", "a..b"} {
		f.Add(host)
	}
	g := newGuard()
	f.Fuzz(func(t *testing.T, host string) {
		bare := strings.ToLower(strings.TrimRight(host, "."))
		through := g.checkHost(host) == nil
		if through && g.checkHost(bare) != nil {
			t.Errorf("%q is let through, and %q is not", host, bare)
		}
		if a, err := netip.ParseAddr(bare); through && (err == nil && g.check(a) != nil || strings.HasSuffix(bare, "localhost") && strings.TrimSuffix(bare, "localhost") == "") {
			t.Errorf("%q is let through", host)
		}
	})
}
