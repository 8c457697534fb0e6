package storetest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// Redis is a server that a test has to itself. Its methods are for one goroutine at a time.
type Redis struct {
	tb   testing.TB
	port int
	dir  string
	args []string

	mu  sync.Mutex
	cmd *exec.Cmd
}

// StartRedis starts a server on a free port, without persistence unless args say otherwise, that ends with the test. The test is
// skipped where redis-server is not installed, but fails under CI=true.
func StartRedis(tb testing.TB, args ...string) *Redis {
	tb.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") == "true" {
			tb.Fatal(err)
		}
		tb.Skip("redis-server is not installed")
	}
	r := &Redis{tb: tb, dir: tb.TempDir(), args: args}
	// Another process may take the port between our look and the server's start.
	for try := 0; ; try++ {
		r.port = freePort(tb)
		if r.start() {
			break
		}
		if try == 5 {
			tb.Fatal("redis-server does not start")
		}
	}
	tb.Cleanup(r.Kill)
	return r
}

func freePort(tb testing.TB) int {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port //nolint:errcheck,forcetypeassert // A TCP listener's.
}

// start reports whether the server answers.
func (r *Redis) start() bool {
	r.tb.Helper()
	args := append([]string{
		"--port", strconv.Itoa(r.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", r.dir, "--loglevel", "warning",
	}, r.args...)
	cmd := exec.CommandContext(context.Background(), "redis-server", args...) // It is killed when the test has cleaned up.
	if err := cmd.Start(); err != nil {
		r.tb.Fatal(err)
	}
	r.mu.Lock()
	r.cmd = cmd
	r.mu.Unlock()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		c, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{r.Addr()}, DisableCache: true, ForceSingleClient: true, DisableRetry: true,
		})
		if err == nil {
			err = c.Do(context.Background(), c.B().Ping().Build()).Error()
			c.Close()
		}
		if err == nil {
			return true
		}
		timer := time.NewTimer(10 * time.Millisecond)
		<-timer.C
	}
	r.Kill()
	return false
}

// Addr is the server's address.
func (r *Redis) Addr() string { return "127.0.0.1:" + strconv.Itoa(r.port) }

// Kill kills the server, as a power cut does. It does nothing where that is dead.
func (r *Redis) Kill() {
	r.mu.Lock()
	cmd := r.cmd
	r.cmd = nil
	r.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// Start starts the server again after Kill, at the same address. What it remembers is what its arguments made it write.
func (r *Redis) Start() {
	r.tb.Helper()
	if !r.start() {
		r.tb.Fatal("redis-server does not start again")
	}
}

// Client returns a client that ends with the test.
func (r *Redis) Client() rueidis.Client {
	r.tb.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{r.Addr()}, DisableCache: true, ForceSingleClient: true, DisableRetry: true,
	})
	if err != nil {
		r.tb.Fatal(err)
	}
	r.tb.Cleanup(c.Close)
	return c
}
