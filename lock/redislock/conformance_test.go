package redislock

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/internal/guarded"
	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/locktest"
	"github.com/fairlead-dev/fairlead/redisclient"
)

const patience = testwait.Patience

// connect returns a client of one server that ends with the test, for what no backend does.
func connect(tb testing.TB, addr string) rueidis.Client {
	tb.Helper()
	return connectWith(tb, addr, rueidis.ClientOption{ForceSingleClient: true})
}

func connectWith(tb testing.TB, addr string, o rueidis.ClientOption) (c rueidis.Client) {
	tb.Helper()
	o.InitAddress, o.DisableCache = []string{addr}, true
	eventually(tb, "the server is there", func() (ok bool) {
		var err error
		c, err = rueidis.NewClient(o)
		return err == nil
	})
	tb.Cleanup(c.Close)
	return c
}

func pause(tb testing.TB, d time.Duration) {
	tb.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-tb.Context().Done():
	}
}

func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	testwait.Eventually(tb, patience, what, ok)
}

// on returns a backend on a client.
func on(tb testing.TB, c redisclient.Client, o Options) *Backend {
	tb.Helper()
	b, err := New(c, o)
	testwait.Must(tb, err)
	tb.Cleanup(b.Close)
	return b
}

// open returns a backend on a client of its own, as another process would have it.
func open(tb testing.TB, addr string, o Options) *Backend {
	tb.Helper()
	return openBy(tb, testredis.Rueidis, addr, o)
}

func openBy(tb testing.TB, l testredis.Library, addr string, o Options) *Backend {
	tb.Helper()
	return on(tb, l.Open(tb, addr), o)
}

// alone opens a backend on a server of its own, and pair two.
func alone(tb testing.TB) *Backend {
	tb.Helper()
	return open(tb, testredis.Start(tb).Addr(), Options{})
}

func pair(tb testing.TB) (b, other *Backend) {
	tb.Helper()
	server := testredis.Start(tb)
	return open(tb, server.Addr(), Options{}), open(tb, server.Addr(), Options{})
}

// acquire acquires what must be free.
func acquire(tb testing.TB, b *Backend, r lock.Request) lock.Grant {
	tb.Helper()
	g, err := b.Acquire(tb.Context(), r)
	testwait.Must(tb, err)
	return g
}

// later acquires in the background.
func later(tb testing.TB, b *Backend, r lock.Request) <-chan lock.Grant {
	tb.Helper()
	granted := make(chan lock.Grant, 1)
	go func() {
		g, err := b.Acquire(tb.Context(), r)
		testwait.Check(tb, err)
		granted <- g
	}()
	return granted
}

// inLine waits until one request is in line.
func inLine(tb testing.TB, b *Backend) {
	tb.Helper()
	eventually(tb, "one waits", func() bool { s, err := b.Snapshot(tb.Context()); return err == nil && len(s.Waiters) == 1 })
}

func harness(t *testing.T, connect func(tb testing.TB) testredis.Conn) locktest.Harness {
	t.Helper()
	writes := connect(t)
	o := Options{Namespace: t.Name()}
	return locktest.Harness{
		Open: func() (lock.Backend, func()) {
			b := on(t, connect(t), o)
			return b, b.Close
		},
		OpenDoomed: func() (lock.Backend, func()) {
			c := connect(t)
			b := on(t, c, o)
			return b, func() {
				c.Close() // Nothing that it would still like to say is heard.
				b.Close()
			}
		},
		Fence: func(ctx context.Context, resource string, token int64) error {
			return guarded.Redis(ctx, writes, "resource:"+resource, token)
		},
	}
}

// suite runs the conformance suite on a server.
func suite(t *testing.T, connect func(tb testing.TB) testredis.Conn) {
	t.Helper()
	t.Run("suite", func(t *testing.T) {
		t.Parallel()
		locktest.Run(t, func(t *testing.T) locktest.Harness {
			t.Helper()
			return harness(t, connect)
		})
	})
}

func TestConformance(t *testing.T) {
	t.Parallel()
	testredis.Each(t, func(t *testing.T, l testredis.Library) { //nolint:thelper // It is the test.
		server := testredis.Start(t)
		suite(t, func(tb testing.TB) testredis.Conn { tb.Helper(); return l.Open(tb, server.Addr()) })
	})
}
