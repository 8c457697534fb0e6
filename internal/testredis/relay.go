package testredis

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// Relay connects clients with a server, and lets a test know what they say.
type Relay struct {
	listener net.Listener

	heard atomic.Pointer[func(request string) (lose bool)] // what is answered to a request is lost, and its connection
	mu    sync.Mutex
	to    string // the server's address
	conns []net.Conn
	all   sync.WaitGroup
}

// NewRelay returns a relay to a server's address, which ends with the test.
func NewRelay(tb testing.TB, to string) *Relay {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	testwait.Must(tb, err)
	r := &Relay{listener: l, to: to}
	r.all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			out, err := new(net.Dialer).DialContext(tb.Context(), "tcp", r.to)
			if err != nil {
				_ = in.Close()
			} else {
				r.conns = append(r.conns, in, out)
				r.pass(in, out)
			}
			r.mu.Unlock()
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		r.Turn("")
		r.all.Wait()
	})
	return r
}

// pass passes on what is said on a connection until one of its ends is closed.
func (r *Relay) pass(in, out net.Conn) {
	var lost atomic.Bool
	copying := func(from, to net.Conn, look func(said string)) {
		b := make([]byte, 64<<10)
		for {
			n, err := from.Read(b)
			if look(string(b[:n])); err != nil || from == out && lost.Load() {
				_, _ = in.Close(), out.Close()
				return
			}
			_, _ = to.Write(b[:n])
		}
	}
	r.all.Go(func() {
		copying(in, out, func(said string) {
			if f := r.heard.Load(); f != nil && (*f)(said) {
				lost.Store(true)
			}
		})
	})
	r.all.Go(func() { copying(out, in, func(string) {}) })
}

// Turn cuts all connections and makes new ones elsewhere.
func (r *Relay) Turn(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
}

// Addr is where clients reach the server through the relay.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// Hear calls f with each request from now on. Where f returns true, the answer to the request is lost, and its connection. nil
// ends that.
func (r *Relay) Hear(f func(request string) (lose bool)) {
	if f == nil {
		r.heard.Store(nil)
		return
	}
	r.heard.Store(&f)
}
