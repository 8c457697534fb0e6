package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/bench/redisserver"
)

// TestSidesOnRedis runs each side on Redis as the benchmarks do: everybody gets the lock, and nobody shares it.
func TestSidesOnRedis(t *testing.T) {
	t.Parallel()
	server, err := redisserver.Start(t.Context(), t.TempDir())
	if errors.Is(err, redisserver.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, side := range []string{"fairlead-redis", "redislock", "redislock-1ms", "redsync"} {
		t.Run(side, func(t *testing.T) {
			args := []string{
				"--side=" + side, "--store=" + server.Socket(), "--workers=3", "--first=4", "--warmup=10ms", "--measure=300ms", "--prefix=" + side,
			}
			var out bytes.Buffer
			if err := run(t.Context(), args, strings.NewReader("go\n"), &out); err != nil {
				t.Fatal(err)
			}
			line, rest, _ := strings.Cut(out.String(), "\n")
			var r Report
			if err := json.NewDecoder(bufio.NewReader(strings.NewReader(rest))).Decode(&r); err != nil || line != "ready" {
				t.Fatalf("said %q: %v", out.String(), err)
			}
			total := int64(0)
			for _, n := range r.Grants {
				total += n
			}
			if total == 0 || len(r.Grants) != 3 || len(r.Latencies) == 0 {
				t.Errorf("reported %+v", r)
			}
		})
	}
}

// TestSharedLockIsNoticed: a library that lets two in ends the run.
func TestSharedLockIsNoticed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := clock{begin: now, end: now.Add(10 * time.Second)}
	var inside atomic.Int32
	inside.Add(1) // Somebody else is there.
	open := func(context.Context) (func(context.Context) error, error) {
		return func(context.Context) error { return nil }, nil
	}
	if _, _, err := at.work(t.Context(), open, &inside); !errors.Is(err, errShared) {
		t.Errorf("got %v, want errShared", err)
	}
}

// TestWaitIsCountedAtTheEnd: who never gets the lock counts with the time waited.
func TestWaitIsCountedAtTheEnd(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := clock{begin: now, end: now.Add(50 * time.Millisecond)}
	ctx, cancel := context.WithDeadline(t.Context(), at.end)
	defer cancel()
	never := func(ctx context.Context) (func(context.Context) error, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	grants, times, err := at.work(ctx, never, new(atomic.Int32))
	if err != nil || grants != 0 || times.TotalCount() != 1 || times.Max() < 40_000 {
		t.Errorf("%d grants, %d waits of up to %d µs, %v", grants, times.TotalCount(), times.Max(), err)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	if _, err := parse([]string{"--workers=0"}); err == nil {
		t.Error("nobody was taken for somebody")
	}
	o, err := parse([]string{"--own", "--prefix=p"})
	if err != nil || o.key(3) == o.key(4) {
		t.Errorf("%v: keys %q and %q", err, o.key(3), o.key(4))
	}
	if _, err := open(t.Context(), o); err == nil {
		t.Error("a side without a name was opened")
	}
}
