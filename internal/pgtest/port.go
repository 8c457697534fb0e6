package pgtest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// Ports from which [Port] chooses. Systems hand out by themselves from 32768 (Linux) or 49152 (others, RFC 6335 §6).
const (
	firstPort = 10_000
	lastPort  = 32_000
)

// ports are those that tests of this process have.
var ports sync.Map //nolint:gochecknoglobals // So is the machine.

// Port returns a TCP port of 127.0.0.1 at which nobody listens, for a server that has to be told one. It is the test's until its end, also while
// the server is down: no other caller gets it, of this process or, where the system has locks of files, of another one, and no system hands it out to a
// connection or to a listener that asked for any port.
func Port(tb testing.TB) int {
	tb.Helper()
	var err error
	for range 100 {
		var l net.Listener
		port := firstPort + rand.IntN(lastPort-firstPort)
		if _, taken := ports.LoadOrStore(port, true); taken {
			continue
		}
		if reservePort(port) {
			if l, err = new(net.ListenConfig).Listen(tb.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
				_ = l.Close()
				tb.Cleanup(func() {
					releasePort(port)
					ports.Delete(port)
				})
				return port
			}
			releasePort(port)
		}
		ports.Delete(port)
	}
	tb.Fatalf("no free port: %v", err)
	return 0
}
