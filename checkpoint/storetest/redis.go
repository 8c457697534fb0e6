package storetest

import (
	"context"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
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
	_ = pgtest.Program(tb, "redis-server") // It is installed.
	r := &Redis{tb: tb, port: pgtest.Port(tb), dir: tb.TempDir(), args: args}
	tb.Cleanup(r.Kill)
	r.Start()
	return r
}

// Start starts the server, and again after Kill, at the same address. What it remembers is what its arguments made it write.
func (r *Redis) Start() {
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
			return
		}
		timer := time.NewTimer(10 * time.Millisecond)
		<-timer.C
	}
	r.tb.Fatal("redis-server does not start")
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
