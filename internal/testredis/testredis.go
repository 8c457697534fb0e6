// Package testredis starts Redis servers that a test has to itself.
package testredis

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// patience bounds the wait for a start.
const patience = testwait.Patience

// Server is a Redis server. Its methods are for one goroutine at a time.
type Server struct {
	tb   testing.TB
	port int
	dir  string
	args []string

	mu  sync.Mutex
	cmd *exec.Cmd
}

// Start starts a server on a free port. It ends with the test, and persists nothing unless args say otherwise. Without an
// installed redis-server the test is skipped; under CI=true it fails.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	_ = pgtest.Program(tb, "redis-server") // It is installed.
	r := &Server{tb: tb, port: pgtest.Port(tb), dir: tb.TempDir(), args: args}
	tb.Cleanup(func() {
		r.Kill()
		if text, err := os.ReadFile(r.log()); tb.Failed() && err == nil {
			tb.Logf("redis-server said:\n%s", text)
		}
	})
	r.Start()
	return r
}

// StartCluster starts a server that is a cluster by itself.
func StartCluster(tb testing.TB) *Server {
	tb.Helper()
	r := Start(tb, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(pgtest.Port(tb)), "--cluster-announce-ip", "127.0.0.1")
	c := r.Client(tb)
	testwait.Must(tb, c.Do(tb.Context(), c.B().ClusterAddslotsrange().StartSlotEndSlot().StartSlotEndSlot(0, 16383).Build()).Error())
	testwait.Eventually(tb, patience, "the cluster is up", func() bool {
		return rueidis.IsRedisNil(c.Do(tb.Context(), c.B().Get().Key("x").Build()).Error())
	})
	return r
}

// Start starts the server, or starts it again after Kill, at the same address and with what it persisted.
func (r *Server) Start() {
	r.tb.Helper()
	args := append([]string{
		"--port", strconv.Itoa(r.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", r.dir, "--loglevel", "warning", "--logfile", r.log(),
	}, r.args...)
	cmd := exec.CommandContext(context.Background(), "redis-server", args...) // It is killed when the test has cleaned up.
	if err := cmd.Start(); err != nil {
		r.tb.Fatal(err)
	}
	r.mu.Lock()
	r.cmd = cmd
	r.mu.Unlock()
	testwait.Eventually(r.tb, patience, "redis-server answers", func() bool {
		c, err := r.connect()
		if err != nil {
			return false
		}
		defer c.Close()
		return c.Do(context.Background(), c.B().Ping().Build()).Error() == nil
	})
}

func (r *Server) log() string { return filepath.Join(r.dir, "redis.log") }

func (r *Server) connect() (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{r.Addr()}, DisableCache: true, ForceSingleClient: true, DisableRetry: true,
	})
}

// Addr is the server's address.
func (r *Server) Addr() string { return "127.0.0.1:" + strconv.Itoa(r.port) }

// Kill kills the server without a shutdown. It does nothing when the server is dead.
func (r *Server) Kill() {
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
func (r *Server) Client(tb testing.TB) rueidis.Client {
	tb.Helper()
	c, err := r.connect()
	testwait.Must(tb, err)
	tb.Cleanup(c.Close)
	return c
}
