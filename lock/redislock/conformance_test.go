package redislock

import (
	"context"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/locktest"
)

const patience = 20 * time.Second

// start starts a server, to be stopped by the test or at its end.
func start(tb testing.TB, port int, args ...string) (stop func()) {
	tb.Helper()
	binary := pgtest.Program(tb, "redis-server")
	args = append([]string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", tb.TempDir(), "--loglevel", "warning",
	}, args...)
	cmd := exec.CommandContext(context.Background(), binary, args...)
	testwait.Must(tb, cmd.Start())
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	tb.Cleanup(stop)
	return stop
}

func connect(tb testing.TB, o rueidis.ClientOption, port int) rueidis.Client {
	tb.Helper()
	o.InitAddress, o.DisableCache = []string{"127.0.0.1:" + strconv.Itoa(port)}, true
	for deadline := time.Now().Add(patience); ; {
		c, err := rueidis.NewClient(o)
		if err == nil {
			tb.Cleanup(c.Close)
			return c
		}
		if time.Now().After(deadline) {
			tb.Fatal(err)
		}
		pause(tb, 5*time.Millisecond)
	}
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

// open returns a backend as another process would have it.
func open(tb testing.TB, c rueidis.Client, o Options) (*Backend, func()) {
	tb.Helper()
	b, err := New(c, o)
	testwait.Must(tb, err)
	stop := sync.OnceFunc(b.Close)
	tb.Cleanup(stop)
	return b, stop
}

// guarded writes to a resource unless it has seen a newer token, all in one script.
const guarded = `
local seen = tonumber(redis.call('HGET', KEYS[1], 'token') or '0')
if tonumber(ARGV[1]) < seen then return 0 end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'value', ARGV[1])
return 1`

func harness(t *testing.T, port int, client rueidis.ClientOption) locktest.Harness {
	t.Helper()
	writes := connect(t, client, port)
	script := rueidis.NewLuaScript(guarded)
	o := Options{Namespace: t.Name()}
	return locktest.Harness{
		Open: func(tb testing.TB) (lock.Backend, func()) {
			tb.Helper()
			return open(tb, connect(tb, client, port), o)
		},
		OpenDoomed: func(tb testing.TB) (lock.Backend, func()) {
			tb.Helper()
			c := connect(tb, client, port)
			b, err := New(c, o)
			testwait.Must(tb, err)
			stop := sync.OnceFunc(func() {
				c.Close() // Nothing that it would still like to say is heard.
				b.Close()
			})
			tb.Cleanup(stop)
			return b, stop
		},
		Fence: func(ctx context.Context, resource string, token int64) error {
			n, err := script.Exec(ctx, writes, []string{"resource:" + resource}, []string{strconv.FormatInt(token, 10)}).AsInt64()
			if err == nil && n == 0 {
				return lock.ErrStaleToken
			}
			return err
		},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	port := pgtest.Port(t)
	start(t, port)
	t.Run("suite", func(t *testing.T) {
		t.Parallel()
		locktest.Run(t, func(t *testing.T) locktest.Harness {
			t.Helper()
			return harness(t, port, rueidis.ClientOption{ForceSingleClient: true})
		})
	})
}
