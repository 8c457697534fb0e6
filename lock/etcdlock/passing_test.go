package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// breaking makes a client whose calls of a kind fail as those do whose connection breaks: the first left of them, before they are carried out or, where
// after is set, behind it.
func breaking(t *testing.T, port int, method string, left *atomic.Int64, after bool) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{fmt.Sprintf("127.0.0.1:%d", port)}, DialTimeout: patience, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, called string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
				broken := strings.HasSuffix(called, method) && left.Add(-1) >= 0
				if broken && !after {
					return status.Error(codes.Unavailable, "error reading from server: EOF")
				}
				err := invoke(ctx, called, request, reply, cc, o...)
				if broken {
					return status.Error(codes.Unavailable, "error reading from server: EOF")
				}
				return err
			})},
	})
	testwait.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestBrokenConnections: a request that may wait is made again where the connection breaks under one of its calls, whether that was carried out or not. One
// that may not wait says so at once, and so does any once etcd was away for long.
func TestBrokenConnections(t *testing.T) {
	t.Parallel()
	port := pgtest.Port(t)
	start(t, t.TempDir(), port, pgtest.Port(t))
	for _, c := range []struct {
		name, method string
		after        bool
		times        int64
		wait         time.Duration
		fails        bool
	}{
		{"before a look", "/Txn", false, 1, lock.Forever, false},
		{"behind a look", "/Txn", true, 1, time.Minute, false},
		{"behind a grant", "/Txn", true, 2, lock.Forever, false},
		{"before a lease", "/LeaseGrant", false, 3, lock.Forever, false},
		{"no wait", "/Txn", false, 1, 0, true},
		{"a short wait", "/Txn", false, 1 << 40, time.Second, true},
		{"for good", "/Txn", false, 1 << 40, lock.Forever, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var left atomic.Int64
			left.Store(c.times)
			b, _ := open(t, breaking(t, port, c.method, &left, c.after), Options{Prefix: t.Name() + "/"})
			g, err := b.Acquire(t.Context(), request(time.Second, c.wait, "k"))
			switch {
			case c.fails:
				if err == nil || errors.Is(err, lock.ErrHeld) || !isPassing(errors.Unwrap(err)) && !errors.Is(err, errSilent) {
					t.Errorf("it was granted, or failed otherwise: %v", err)
				}
			case err != nil:
				t.Error(err)
			default:
				testwait.Check(t, b.Release(t.Context(), g))
			}
			if left.Load() >= c.times {
				t.Errorf("no call has met a broken connection, so this tests nothing")
			}
		})
	}
}

// TestBrokenConnectionInLine: who is in line, and has to ask again there, stays there where the connection breaks under that.
func TestBrokenConnectionInLine(t *testing.T) {
	t.Parallel()
	port := pgtest.Port(t)
	start(t, t.TempDir(), port, pgtest.Port(t))
	o := Options{Prefix: t.Name() + "/"}
	holder, _ := open(t, connect(t, port), o)
	held, err := holder.Acquire(t.Context(), request(time.Minute, 0, "k"))
	testwait.Must(t, err)
	var left atomic.Int64
	client := breaking(t, port, "/Txn", &left, false)
	b, _ := open(t, client, o)
	granted := make(chan error, 1)
	r := request(time.Second, lock.Forever, "k")
	go func() {
		_, err := b.Acquire(t.Context(), r)
		granted <- err
	}()
	inLine := func() bool {
		s, err := holder.Snapshot(t.Context())
		testwait.Must(t, err)
		return len(s.Waiters) == 1
	}
	testwait.Eventually(t, patience, "the other waits", inLine)
	left.Store(3)
	_, err = client.Delete(t.Context(), b.waiterKey(r.ID)) // As when its lease has expired.
	testwait.Must(t, err)
	testwait.Eventually(t, patience, "it asks again", func() bool { return left.Load() < 0 && inLine() })
	testwait.Must(t, holder.Release(t.Context(), held))
	testwait.Must(t, <-granted)
}
