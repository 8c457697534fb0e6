package postgres

import (
	"context"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestRefusedSessionsAreSpaced has many want a connection to a database that takes none. They don't ask it more often than 10 times a second,
// and all have one as soon as it takes them.
func TestRefusedSessionsAreSpaced(t *testing.T) {
	t.Parallel()
	const conns, wanting, least = 32, 64, 100
	var attempts atomic.Int64
	var dialer net.Dialer
	db := open(t, Options{URL: database(t), MaxConns: conns, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		attempts.Add(1)
		return dialer.DialContext(ctx, network, address)
	}})
	u, err := url.Parse(db.url)
	testwait.Must(t, err)
	name := strings.TrimPrefix(u.Path, "/")
	u.Path = "/postgres"
	admin, err := pgx.Connect(t.Context(), u.String())
	testwait.Must(t, err)
	defer func() { _ = admin.Close(context.Background()) }()
	take := func(sql string) { testwait.Must(t, testwait.Err(admin.Exec(t.Context(), sql))) }
	take("ALTER DATABASE " + name + " ALLOW_CONNECTIONS false")
	take("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + name + "'")
	db.pool.Reset()

	began := time.Now()
	attempts.Store(0)
	var all sync.WaitGroup
	var refused atomic.Int64
	for range wanting {
		all.Go(func() {
			for {
				conn, err := db.pool.Acquire(t.Context())
				if err == nil {
					conn.Release()
					return
				}
				refused.Add(1)
			}
		})
	}
	testwait.Eventually(t, patience, "they are refused", func() bool { return refused.Load() >= least })
	t.Logf("%d attempts, %d refused in %v", attempts.Load(), refused.Load(), time.Since(began))
	// Those that are made before the first is refused come on top, and some of the read pool, of which nobody wants anything here.
	if n, limit := attempts.Load(), int64(time.Since(began)/(100*time.Millisecond))+2*conns; n > limit {
		t.Errorf("%d attempts to connect in %v; at most %d were to be expected", n, time.Since(began), limit)
	}
	take("ALTER DATABASE " + name + " ALLOW_CONNECTIONS true")
	all.Wait()
}

// TestASlowDatabaseIsAskedByFew has many want a connection to a database that begins no session in time. Once that is known, two ask it at a time,
// and all have a connection as soon as it is quick.
func TestASlowDatabaseIsAskedByFew(t *testing.T) {
	t.Parallel()
	const conns, first, later, most = 16, 16, 8, 2
	var slow atomic.Bool
	var begun, under, ended atomic.Int64
	var tooMany atomic.Int64 // under way when one began, though it was known that the database is slow
	var dialer net.Dialer
	db := open(t, Options{URL: database(t), MaxConns: conns, UnavailableAfter: 4 * time.Second, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if !slow.Load() {
			return dialer.DialContext(ctx, network, address)
		}
		begun.Add(1)
		if n := under.Add(1); n > most && ended.Load() >= first {
			tooMany.Store(n)
		}
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }() // What is asked is read, and never answered.
		return &countedConn{Conn: ours, closed: sync.OnceFunc(func() { under.Add(-1); ended.Add(1) })}, nil
	}})
	slow.Store(true)
	db.pool.Reset()
	var all sync.WaitGroup
	for range 2 * conns {
		all.Go(func() {
			for {
				conn, err := db.pool.Acquire(t.Context())
				if err == nil {
					conn.Release()
					return
				}
			}
		})
	}
	testwait.Eventually(t, patience, "sessions don't begin in time", func() bool { return ended.Load() >= first+later })
	if n := tooMany.Load(); n > 0 {
		t.Errorf("%d attempts were under way at a time", n)
	}
	t.Logf("%d attempts", begun.Load())
	slow.Store(false)
	all.Wait()
}

// countedConn is a connection that tells when it is closed.
type countedConn struct {
	net.Conn

	closed func()
}

func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}
