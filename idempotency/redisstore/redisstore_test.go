package redisstore

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/idempotency/storetest"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

const patience = 30 * time.Second

// start starts a server that keeps what it acknowledges, to be killed by the test or at its end.
func start(t *testing.T, port int, dir string, args ...string) (kill func()) {
	t.Helper()
	binary := pgtest.Program(t, "redis-server")
	args = append([]string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", "always", "--dir", dir, "--loglevel", "warning",
	}, args...)
	cmd := exec.CommandContext(context.Background(), binary, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	return kill
}

// connect returns a client once the server answers it.
func connect(t *testing.T, port int) rueidis.Client {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		c, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{"127.0.0.1:" + strconv.Itoa(port)}, DisableCache: true, ForceSingleClient: true,
		})
		if err == nil {
			if err = c.Do(t.Context(), c.B().Ping().Build()).Error(); err == nil {
				t.Cleanup(c.Close)
				return c
			}
			c.Close()
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	shared := sync.OnceValue(func() int {
		port := pgtest.Port(t)
		start(t, port, t.TempDir())
		return port
	})
	storetest.Run(t, func(t *testing.T, restarts bool) storetest.Harness {
		t.Helper()
		if !restarts {
			return storetest.Harness{Open: func() idempotency.Store { return New(connect(t, shared()), Options{Prefix: t.Name() + ":"}) }}
		}
		port, dir := pgtest.Port(t), t.TempDir()
		kill := start(t, port, dir)
		return storetest.Harness{
			Open: func() idempotency.Store { return New(connect(t, port), Options{}) },
			Restart: func() {
				kill()
				kill = start(t, port, dir)
				connect(t, port)
			},
		}
	})
}

// TestExpiry: Redis forgets answers by itself, and parked keys never.
func TestExpiry(t *testing.T) {
	t.Parallel()
	port := pgtest.Port(t)
	start(t, port, t.TempDir())
	c := connect(t, port)
	s := New(c, Options{})
	begin := func(key string, policy idempotency.CrashPolicy) idempotency.Grant {
		r := idempotency.Request{ID: idempotency.NewID("", "POST", "/", key)}
		e, err := s.Begin(t.Context(), r, idempotency.Terms{Lease: time.Hour, Retention: 2 * time.Hour, OnCrash: policy})
		if err != nil || e.Phase != idempotency.Started {
			t.Fatalf("%+v, %v", e, err)
		}
		return e.Grant
	}
	ttls := func() map[time.Duration]int {
		found := map[time.Duration]int{}
		keys, err := c.Do(t.Context(), c.B().Keys().Pattern(DefaultPrefix+"*").Build()).AsStrSlice()
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			ms, err := c.Do(t.Context(), c.B().Pttl().Key(k).Build()).AsInt64()
			if err != nil {
				t.Fatal(err)
			}
			if ms > 0 {
				ms += int64(time.Minute / time.Millisecond) // Of an hour, some has passed.
			}
			found[(time.Duration(ms)*time.Millisecond).Truncate(time.Hour)]++
		}
		return found
	}
	free, parked, done := begin("free", idempotency.FreeAfterLease), begin("parked", idempotency.ParkAsUnknown), begin("done", idempotency.ParkAsUnknown)
	if _, err := s.Complete(t.Context(), done, idempotency.Response{Status: 200}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := ttls(); len(got) != 3 || got[3*time.Hour] != 1 || got[2*time.Hour] != 1 || got[0] != 1 {
			t.Errorf("times to live %v", got)
		}
		for _, g := range []idempotency.Grant{free, parked} {
			if err := s.Extend(t.Context(), g, time.Hour); err != nil {
				t.Error(err)
			}
		}
	}
	if err := s.Park(t.Context(), free); err != nil {
		t.Fatal(err)
	}
	if got := ttls(); got[0] != 2 || got[2*time.Hour] != 1 {
		t.Errorf("times to live %v", got)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	safe, unsafe := pgtest.Port(t), pgtest.Port(t)
	start(t, safe, t.TempDir())
	start(t, unsafe, t.TempDir(), "--appendonly", "no", "--appendfsync", "everysec", "--maxmemory-policy", "allkeys-lru")
	if warnings, err := New(connect(t, safe), Options{}).Check(t.Context()); err != nil || len(warnings) != 0 {
		t.Errorf("%q, %v", warnings, err)
	}
	warnings, err := New(connect(t, unsafe), Options{}).Check(t.Context())
	all := strings.Join(warnings, " ")
	if err != nil || len(warnings) != 3 || !strings.Contains(all, "appendonly is no") || !strings.Contains(all, "allkeys-lru") {
		t.Errorf("%q, %v", warnings, err)
	}
}
