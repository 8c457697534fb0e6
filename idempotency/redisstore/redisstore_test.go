package redisstore

import (
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/idempotency/storetest"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

const patience = testwait.Patience

// start starts a server that keeps what it acknowledges.
func start(t *testing.T, args ...string) *testredis.Server {
	t.Helper()
	return testredis.Start(t, append([]string{"--appendonly", "yes", "--appendfsync", "always"}, args...)...)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	testredis.Each(t, conformance)
}

func conformance(t *testing.T, l testredis.Library) { //nolint:thelper // It is the test.
	shared := sync.OnceValue(func() *testredis.Server { return start(t) })
	storetest.Run(t, func(t *testing.T, restarts bool) storetest.Harness {
		t.Helper()
		if !restarts {
			return storetest.Harness{Open: func() idempotency.Store { return New(l.Open(t, shared().Addr()), Options{Prefix: t.Name() + ":"}) }}
		}
		server := start(t)
		return storetest.Harness{
			Open: func() idempotency.Store { return New(l.Open(t, server.Addr()), Options{}) },
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
	server := start(t)
	c, s := server.Client(t), New(testredis.Rueidis.Open(t, server.Addr()), Options{})
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
	testredis.Each(t, check)
}

func check(t *testing.T, l testredis.Library) { //nolint:thelper // It is the test.
	unsafe := start(t, "--appendonly", "no", "--appendfsync", "everysec", "--maxmemory-policy", "allkeys-lru")
	if warnings, err := New(l.Open(t, start(t).Addr()), Options{}).Check(t.Context()); err != nil || len(warnings) != 0 {
		t.Errorf("%q, %v", warnings, err)
	}
	warnings, err := New(l.Open(t, unsafe.Addr()), Options{}).Check(t.Context())
	all := strings.Join(warnings, " ")
	if err != nil || len(warnings) != 3 || !strings.Contains(all, "appendonly is no") || !strings.Contains(all, "allkeys-lru") {
		t.Errorf("%q, %v", warnings, err)
	}
}

// TestLostAnswers loses the answer to each step once: the caller is told, and the step, repeated, finds what it has done.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	testredis.Each(t, func(t *testing.T, l testredis.Library) { //nolint:thelper // It is the test.
		relay := testredis.NewRelay(t, start(t).Addr())
		s := New(l.Open(t, relay.Addr()), Options{})
		r := idempotency.Request{ID: idempotency.NewID("", "POST", "/", "k"), Execution: uuid.New()}
		terms := idempotency.Terms{Lease: time.Hour, Retention: time.Hour}
		answer := idempotency.Response{Status: 201, Body: []byte("made")}
		testwait.Must(t, testwait.Err(s.Look(t.Context(), r.ID)))
		lose := func(what string, step func() error) {
			t.Helper()
			var sent atomic.Int64
			relay.Hear(func(request string) bool {
				return strings.Contains(strings.ToUpper(request), "\r\nEVAL\r\n") && sent.Add(1) == 1
			})
			if err := step(); err == nil || errors.Is(err, idempotency.ErrLost) || sent.Load() != 1 {
				t.Errorf("%s whose answer was lost: %v after %d requests", what, err, sent.Load())
			}
			relay.Hear(nil)
			testwait.Eventually(t, patience, "the client connects again", func() bool { return testwait.Err(s.Look(t.Context(), r.ID)) == nil })
		}
		begin := func() (idempotency.Entry, error) { return s.Begin(t.Context(), r, terms) }
		lose("begin", func() error { return testwait.Err(begin()) })
		e, err := begin()
		if err != nil || e.Phase != idempotency.Started {
			t.Fatalf("begun again: %+v, %v", e, err)
		}
		complete := func() error { return testwait.Err(s.Complete(t.Context(), e.Grant, answer)) }
		lose("complete", complete)
		testwait.Check(t, complete())
		if e, err := s.Look(t.Context(), r.ID); err != nil || e.Phase != idempotency.Answered || string(e.Response.Body) != "made" {
			t.Errorf("%+v, %v", e, err)
		}
	})
}
