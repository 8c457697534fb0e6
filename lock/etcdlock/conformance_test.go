package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/fairlead-dev/fairlead/internal/guarded"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/tally"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/locktest"
)

const patience = testwait.Patience

// start starts a server on a directory; its election timeout allows leases of one second.
func start(t *testing.T, directory string, port, peer int) (stop func()) {
	t.Helper()
	return startMember(t, "default", directory, port, peer, fmt.Sprintf("default=http://127.0.0.1:%d", peer))
}

// startMember starts one of the servers of a cluster.
func startMember(t *testing.T, name, directory string, port, peer int, cluster string) (stop func()) {
	t.Helper()
	binary := pgtest.Program(t, "etcd")
	client, other := fmt.Sprintf("http://127.0.0.1:%d", port), fmt.Sprintf("http://127.0.0.1:%d", peer)
	cmd := exec.CommandContext(context.Background(), binary, "--name", name, "--data-dir", directory, "--listen-client-urls", client,
		"--advertise-client-urls", client, "--listen-peer-urls", other, "--initial-advertise-peer-urls", other,
		"--initial-cluster", cluster, "--heartbeat-interval", "50", "--election-timeout", "500", "--log-level", "error")
	// The disk, which others may keep busy for seconds, is not waited for: what is killed here is etcd, and not the machine. An
	// etcd before this option takes no notice of the variable.
	cmd.Env = append(os.Environ(), "ETCD_UNSAFE_NO_FSYNC=true")
	testwait.Must(t, cmd.Start())
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(stop)
	return stop
}

func connect(tb testing.TB, ports ...int) *clientv3.Client {
	tb.Helper()
	return connectBy(tb, nil, ports...)
}

func connectBy(tb testing.TB, dial []grpc.DialOption, ports ...int) *clientv3.Client {
	tb.Helper()
	var endpoints []string
	for _, port := range ports {
		endpoints = append(endpoints, fmt.Sprintf("127.0.0.1:%d", port))
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialTimeout: patience, Logger: zap.NewNop(), DialOptions: dial,
	})
	testwait.Must(tb, err)
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func open(tb testing.TB, c *clientv3.Client, o Options) (*Backend, func()) {
	tb.Helper()
	b := New(c, o)
	stop := sync.OnceFunc(b.Close)
	tb.Cleanup(stop)
	return b, stop
}

// wrongClock is a day ahead or behind, so that the clocks of two processes differ by two days.
func wrongClock(process int64) func() time.Time {
	by := 24 * time.Hour
	if process%2 == 0 {
		by = -by
	}
	return func() time.Time { return time.Now().Add(by) }
}

func harness(t *testing.T, port int) locktest.Harness {
	t.Helper()
	writes := connect(t, port)
	o := Options{Prefix: t.Name() + "/"}
	var opened atomic.Int64
	return locktest.Harness{
		Open: func() (lock.Backend, func()) {
			b, stop := open(t, connect(t, port), o)
			b.wall = wrongClock(opened.Add(1))
			return b, stop
		},
		OpenDoomed: func() (lock.Backend, func()) {
			c := connect(t, port)
			b := New(c, o)
			stop := sync.OnceFunc(func() {
				_ = c.Close() // Nothing that it would still like to say is heard.
				b.Close()
			})
			t.Cleanup(stop)
			return b, stop
		},
		Fence: func(ctx context.Context, resource string, token int64) error {
			return guarded.Etcd(ctx, writes, "resource/"+resource, token)
		},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	port := pgtest.Port(t)
	start(t, t.TempDir(), port, pgtest.Port(t))
	t.Run("suite", func(t *testing.T) {
		t.Parallel()
		locktest.Run(t, func(t *testing.T) locktest.Harness { t.Helper(); return harness(t, port) })
	})
}

func request(ttl, wait time.Duration, keys ...string) lock.Request {
	return lock.Request{ID: uuid.NewString(), Keys: keys, Owner: uuid.NewString(), TTL: ttl, Wait: wait}
}

// A restart forgets nothing: what is held is held, who waits waits, and tokens go on growing.
func TestRestart(t *testing.T) { //nolint:tparallel // One after the other: they are many.
	t.Parallel()
	for i := range testwait.Count(1, 50) {
		t.Run(fmt.Sprint(i), restart)
	}
}

func restart(t *testing.T) {
	counted := testwait.Recorder(t)
	directory, port, peer := t.TempDir(), pgtest.Port(t), pgtest.Port(t)
	stop := start(t, directory, port, peer)
	b, _ := open(t, connect(t, port), Options{})
	other, _ := open(t, connect(t, port), Options{})
	l := lock.New(b, lock.LockerOptions{})
	h, err := l.Acquire(t.Context(), []string{"k"}, lock.Options{TTL: time.Minute})
	testwait.Must(t, err)
	granted := make(chan lock.Grant, 1)
	var done sync.WaitGroup
	done.Go(func() {
		g, err := other.Acquire(t.Context(), request(time.Second, lock.Forever, "k"))
		testwait.Check(t, err)
		granted <- g
	})
	for deadline := time.Now().Add(patience); ; {
		s, err := b.Snapshot(t.Context())
		if err == nil && len(s.Waiters) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the other does not wait: %+v, %v", s, err)
		}
	}
	began := time.Now()
	counted.Fault(tally.EtcdKilled, began)
	stop()
	start(t, directory, port, peer)
	// A request may still meet a connection that breaks.
	for deadline := time.Now().Add(patience); ; {
		_, err := b.Acquire(t.Context(), request(time.Second, 0, "k"))
		if errors.Is(err, lock.ErrHeld) {
			break
		}
		if err == nil || time.Now().After(deadline) {
			t.Fatalf("after the restart: %v, want ErrHeld", err)
		}
	}
	if h.Context().Err() != nil {
		t.Errorf("lost: %v", context.Cause(h.Context()))
	}
	testwait.Check(t, h.Release(t.Context()))
	select {
	case g := <-granted:
		counted.Answered(began, time.Now(), true)
		if g.Tokens["k"] <= h.Token("k") {
			t.Errorf("token %d after %d", g.Tokens["k"], h.Token("k"))
		}
	case <-time.After(patience):
		t.Fatal("the waiter was forgotten")
	}
	done.Wait()
}
