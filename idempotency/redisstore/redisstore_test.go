package redisstore

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/idempotency/storetest"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

const patience = 30 * time.Second

// start starts a server that keeps what it acknowledges.
func start(t *testing.T, args ...string) *testredis.Server {
	t.Helper()
	return testredis.Start(t, append([]string{"--appendonly", "yes", "--appendfsync", "always"}, args...)...)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	shared := sync.OnceValue(func() *testredis.Server { return start(t) })
	storetest.Run(t, func(t *testing.T, restarts bool) storetest.Harness {
		t.Helper()
		if !restarts {
			return storetest.Harness{Open: func() idempotency.Store { return New(shared().Client(t), Options{Prefix: t.Name() + ":"}) }}
		}
		server := start(t)
		return storetest.Harness{
			Open: func() idempotency.Store { return New(server.Client(t), Options{}) },
			Restart: func() {
				server.Kill()
				server.Start()
			},
		}
	})
}

// TestExpiry: Redis forgets answers by itself, and parked keys never.
func TestExpiry(t *testing.T) {
	t.Parallel()
	c := start(t).Client(t)
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
		testwait.Must(t, err)
		for _, k := range keys {
			ms, err := c.Do(t.Context(), c.B().Pttl().Key(k).Build()).AsInt64()
			testwait.Must(t, err)
			if ms > 0 {
				ms += int64(time.Minute / time.Millisecond) // Of an hour, some has passed.
			}
			found[(time.Duration(ms)*time.Millisecond).Truncate(time.Hour)]++
		}
		return found
	}
	free, parked, done := begin("free", idempotency.FreeAfterLease), begin("parked", idempotency.ParkAsUnknown), begin("done", idempotency.ParkAsUnknown)
	testwait.Must(t, testwait.Err(s.Complete(t.Context(), done, idempotency.Response{Status: 200})))
	for range 2 {
		if got := ttls(); len(got) != 3 || got[3*time.Hour] != 1 || got[2*time.Hour] != 1 || got[0] != 1 {
			t.Errorf("times to live %v", got)
		}
		for _, g := range []idempotency.Grant{free, parked} {
			testwait.Check(t, s.Extend(t.Context(), g, time.Hour))
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	unsafe := start(t, "--appendonly", "no", "--appendfsync", "everysec", "--maxmemory-policy", "allkeys-lru")
	if warnings, err := New(start(t).Client(t), Options{}).Check(t.Context()); err != nil || len(warnings) != 0 {
		t.Errorf("%q, %v", warnings, err)
	}
	warnings, err := New(unsafe.Client(t), Options{}).Check(t.Context())
	all := strings.Join(warnings, " ")
	if err != nil || len(warnings) != 3 || !strings.Contains(all, "appendonly is no") || !strings.Contains(all, "allkeys-lru") {
		t.Errorf("%q, %v", warnings, err)
	}
}
