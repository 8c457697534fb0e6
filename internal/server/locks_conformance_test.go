package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/locktest"
	"github.com/fairlead-dev/fairlead/lock/pglock"
)

// TestLocksConformOverHTTP runs the suite of all backends through two servers, by the Go client.
func TestLocksConformOverHTTP(t *testing.T) {
	t.Parallel()
	locktest.Run(t, func(t *testing.T) locktest.Harness {
		t.Helper()
		e := newEnv(t)
		servers := []*env{e, e.beside()}
		opened := 0
		open := func(tb testing.TB, h *http.Client) *client.LockBackend {
			tb.Helper()
			at := servers[opened%len(servers)]
			opened++
			c, err := client.New(at.url, at.admin, client.WithHTTPClient(h))
			must(tb, err)
			b := c.LockBackend()
			tb.Cleanup(b.Close)
			return b
		}
		return locktest.Harness{
			LeavesGrants: true, // An answer that nobody reads is lost.
			Open: func() (lock.Backend, func()) {
				b := open(t, e.http)
				return b, b.Close
			},
			OpenDoomed: func() (lock.Backend, func()) {
				var m mortal
				transport := &http.Transport{DialContext: m.dial}
				t.Cleanup(transport.CloseIdleConnections)
				return open(t, &http.Client{Transport: transport}), m.die
			},
			Fence: func(ctx context.Context, resource string, token int64) error {
				conn, err := pgx.Connect(ctx, e.dbURL)
				if err != nil {
					return err
				}
				defer func() { _ = conn.Close(ctx) }()
				return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return pglock.Fence(ctx, tx, resource, token) })
			},
		}
	})
}

// mortal makes connections that all end at once, and no more after that, as those of a process that dies.
type mortal struct {
	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

var errDead = errors.New("the process is dead")

func (m *mortal) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		_ = c.Close()
		return nil, errDead
	}
	m.conns = append(m.conns, c)
	return c, nil
}

func (m *mortal) die() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
	for _, c := range m.conns {
		_ = c.Close()
	}
}
