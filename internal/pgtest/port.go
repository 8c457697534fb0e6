package pgtest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Ports from which [Port] chooses. Systems hand out by themselves from 32768 (Linux) or 49152 (others, RFC 6335 §6).
const (
	firstPort = 10_000
	lastPort  = 32_000
)

// Port returns a TCP port of 127.0.0.1 at which nobody listens, for a server that has to be told one. Between this look and
// the server's start nobody takes it but another caller who drew the same one of 22,000: no system hands it out to a
// connection or to a listener that asked for any port.
func Port(tb testing.TB) int {
	tb.Helper()
	var err error
	for range 100 {
		var l net.Listener
		port := firstPort + rand.IntN(lastPort-firstPort)
		if l, err = new(net.ListenConfig).Listen(tb.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			_ = l.Close()
			return port
		}
	}
	tb.Fatalf("no free port: %v", err)
	return 0
}
