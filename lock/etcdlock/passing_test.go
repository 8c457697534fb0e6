package etcdlock

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// breaks says which calls of a client fail as they do when their connection breaks.
type breaks struct {
	method string
	after  bool         // etcd has carried them out
	left   atomic.Int64 // calls that fail yet
	pass   atomic.Int64 // calls before these that do not
}

func (x *breaks) connect(t *testing.T, port int) *clientv3.Client {
	t.Helper()
	errBroken := status.Error(codes.Unavailable, "error reading from server: EOF")
	return connectBy(t, []grpc.DialOption{grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
			broken := strings.HasSuffix(method, x.method) && x.pass.Add(-1) < 0 && x.left.Add(-1) >= 0
			if broken && !x.after {
				return errBroken
			}
			if err := invoke(ctx, method, request, reply, cc, o...); !broken {
				return err
			}
			return errBroken
		})}, port)
}

const always = 1 << 40

// TestBrokenConnections breaks the connection under calls of a request for a free key. It asks again, whether etcd has carried them out or not, if it may wait.
func TestBrokenConnections(t *testing.T) {
	t.Parallel()
	port := pgtest.Port(t)
	start(t, t.TempDir(), port, pgtest.Port(t))
	for _, c := range []struct {
		name        string
		method      string
		after       bool
		pass, times int64
		wait        time.Duration
		fails       bool
	}{
		{"before a look", "/Txn", false, 0, 1, lock.Forever, false},
		{"behind a look", "/Txn", true, 0, 1, time.Minute, false},
		{"before a grant", "/Txn", false, 1, 1, lock.Forever, false},
		{"behind a grant", "/Txn", true, 1, 1, lock.Forever, false},
		{"before a lease", "/LeaseGrant", false, 0, 3, lock.Forever, false},
		{"no wait", "/Txn", false, 0, 1, 0, true},
		{"a short wait", "/Txn", false, 0, always, time.Second, true},
		{"for good", "/Txn", false, 0, always, lock.Forever, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			x := &breaks{method: c.method, after: c.after}
			x.pass.Store(c.pass)
			x.left.Store(c.times)
			b, _ := open(t, x.connect(t, port), Options{Prefix: t.Name() + "/"})
			g, err := b.Acquire(testwait.Context(t, patience), request(lock.MaxTTL, c.wait, "k"))
			switch {
			case c.fails:
				if err == nil || !isPassing(errors.Unwrap(err)) && !errors.Is(err, errSilent) {
					t.Errorf("it was granted, or failed otherwise: %v", err)
				}
			case err != nil:
				t.Error(err)
			default:
				testwait.Check(t, b.Release(t.Context(), g))
			}
			if x.left.Load() >= c.times {
				t.Error("no call has met a broken connection, so this tests nothing")
			}
		})
	}
}

// TestALostRevocation loses the answer to a grant, and the revocation that follows it: nobody has the key, which is free before the lease ends.
func TestALostRevocation(t *testing.T) {
	t.Parallel()
	port := pgtest.Port(t)
	start(t, t.TempDir(), port, pgtest.Port(t))
	broken := &breaks{method: "/Txn", after: true}
	broken.pass.Store(1)
	broken.left.Store(1)
	lost := &breaks{method: "/LeaseRevoke"}
	lost.left.Store(always)
	client := broken.connect(t, port)
	client.Lease = clientv3.NewLease(lost.connect(t, port))
	b, _ := open(t, client, Options{})
	if _, err := b.Acquire(t.Context(), request(lock.MaxTTL, 0, "k")); !isPassing(errors.Unwrap(err)) {
		t.Fatalf("the answer was not lost: %v", err)
	}
	b.mu.Lock()
	if len(b.orphans) != 1 {
		t.Errorf("%d leases are to be revoked yet, want 1", len(b.orphans))
	}
	b.mu.Unlock()
	lost.left.Store(0)
	g, err := b.Acquire(testwait.Context(t, patience), request(time.Minute, lock.Forever, "k"))
	testwait.Must(t, err)
	testwait.Check(t, b.Release(t.Context(), g))
}

// TestBrokenConnectionInLine breaks the connection under the calls of a request for a held key, before it is in line and when it has to get there again. It
// keeps its place, before who came later, and gets the lock.
func TestBrokenConnectionInLine(t *testing.T) {
	t.Parallel()
	port := pgtest.Port(t)
	start(t, t.TempDir(), port, pgtest.Port(t))
	for _, c := range []struct {
		name   string
		method string
		after  bool
	}{{"look", "/Txn", false}, {"before it is in line", "/Put", false}, {"behind that", "/Put", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := Options{Prefix: t.Name() + "/"}
			holder, _ := open(t, connect(t, port), o)
			held, err := holder.Acquire(t.Context(), request(time.Minute, 0, "k"))
			testwait.Must(t, err)
			x := &breaks{method: c.method, after: c.after}
			x.left.Store(2)
			client := x.connect(t, port)
			b, _ := open(t, client, o)
			r := request(time.Minute, lock.Forever, "k")
			granted := make(chan error, 1)
			go func() {
				_, err := b.Acquire(t.Context(), r)
				granted <- err
			}()
			inLine := func() bool {
				select {
				case err := <-granted:
					t.Fatalf("it does not wait: %v", err)
				default:
				}
				b.mu.Lock()
				known := b.waiters[r.ID] != nil
				b.mu.Unlock()
				s, err := holder.Snapshot(t.Context())
				testwait.Must(t, err)
				return known && len(s.Waiters) > 0 && s.Waiters[0].ID == r.ID
			}
			strays := func() int {
				b.mu.Lock()
				defer b.mu.Unlock()
				return len(b.strays)
			}
			testwait.Eventually(t, patience, "it is in line", inLine)
			if x.left.Load() >= 0 {
				t.Error("not all calls that were to break have broken, so this tests nothing")
			}
			x.left.Store(2)
			_, err = client.Delete(t.Context(), b.waiterKey(r.ID)) // As when its lease has ended.
			testwait.Must(t, err)
			testwait.Eventually(t, patience, "it is in line again", func() bool { return x.left.Load() < 0 && inLine() })
			if strays() != 0 {
				t.Error("the background deletes who is in line")
			}
			testwait.Must(t, holder.Release(t.Context(), held))
			testwait.Must(t, <-granted)
			if c.method == "/Put" && strays() != 1 {
				t.Error("a write that comes late may leave nobody in line")
			}
		})
	}
}
