package pglock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// realClock starts a PostgreSQL whose machine's clock the test steps, by libfaketime.
func realClock(t *testing.T) (url string, step func(time.Duration)) {
	t.Helper()
	libraries, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	programs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(libraries) == 0 || len(programs) == 0 {
		t.Skip("needs Debian's packages libfaketime and postgresql")
	}
	// PostgreSQL runs as a user who may not read what is in t.TempDir.
	dir, err := os.MkdirTemp("", "fairlead-faketime-") //nolint:usetesting // As said.
	testwait.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	testwait.Must(t, os.Chmod(dir, 0o755))
	clock := filepath.Join(dir, "clock")
	step = func(by time.Duration) {
		t.Helper()
		// Whoever reads the file meanwhile finds the one text or the other.
		testwait.Must(t, os.WriteFile(clock+".new", fmt.Appendf(nil, "%+d", int(by.Seconds())), 0o644))
		testwait.Must(t, os.Rename(clock+".new", clock))
	}
	step(0)
	for _, program := range []string{"postgres", "initdb"} {
		text := fmt.Sprintf("#!/bin/sh\nexec env LD_PRELOAD=%s FAKETIME_TIMESTAMP_FILE=%s FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 %s/%s \"$@\"\n",
			libraries[0], clock, programs[len(programs)-1], program)
		testwait.Must(t, os.WriteFile(filepath.Join(dir, program), []byte(text), 0o755))
	}
	t.Setenv("FAIRLEAD_PG_BIN", dir)
	url = pgtest.Server(t).URL()
	testwait.Must(t, install(t.Context(), url))
	return url, step
}

// TestRealStepsOfTheClock has the clock of PostgreSQL's machine jump ahead by an hour and back again, under holders that live,
// one that has died, a waiter, and a leader.
func TestRealStepsOfTheClock(t *testing.T) { //nolint:paralleltest // It sets the environment.
	if !testwait.Torture() {
		t.Skip("FAIRLEAD_TORTURE=1 runs it")
	}
	const ttl = 5 * time.Second
	url, step := realClock(t)
	b, other := open(t, url, Options{}), open(t, url, Options{})
	mine, theirs := lock.New(b, lock.LockerOptions{}), lock.New(other, lock.LockerOptions{})
	var ahead time.Time
	testwait.Must(t, b.pool.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&ahead))
	step(wrong)
	testwait.Must(t, b.pool.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&ahead))
	if d := time.Until(ahead); d < wrong-time.Minute {
		t.Fatalf("the clock is ahead by %s", d)
	}
	ctx := testwait.Context(t, 5*time.Minute)
	get := func(l *lock.Locker, key string, o lock.Options) *lock.Held {
		t.Helper()
		h, err := l.Acquire(ctx, []string{key}, o)
		testwait.Must(t, err)
		return h
	}
	living := get(mine, "living", lock.Options{TTL: ttl})
	first := get(mine, "dead", lock.Options{TTL: ttl, NoRenewal: true})
	second := get(mine, "leader", lock.Options{TTL: ttl, NoRenewal: true}) // An election's leader that has died.
	elected := make(chan int64, 1)
	e, err := lock.NewElection(theirs, "leader", lock.ElectionOptions{TTL: ttl})
	testwait.Must(t, err)
	campaigning, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		e.Run(campaigning, func(ctx context.Context, term int64) { elected <- term; <-ctx.Done() })
	}()
	testwait.Eventually(t, soon, "the candidate waits", func() bool { return len(waitersOn(t, b, "leader")) == 1 })

	step(0)
	began := time.Now()
	next := get(theirs, "dead", lock.Options{TTL: ttl, Wait: lock.Forever})
	took := time.Since(began)
	term := <-elected
	t.Logf("after the step back: the dead holder was replaced after %s, the leader after %s", took, time.Since(began))
	if limit := ttl + 2*time.Second; took > limit || time.Since(began) > limit { // A long run has the machine to itself.
		t.Errorf("that is more than %s", limit)
	}
	if next.Token("dead") <= first.Token("dead") || term <= second.Token("leader") {
		t.Errorf("tokens %d and %d, terms %d and %d", first.Token("dead"), next.Token("dead"), second.Token("leader"), term)
	}
	if _, err := other.Acquire(ctx, ask("rival", "living")); !errors.Is(err, lock.ErrHeld) || living.Context().Err() != nil {
		t.Errorf("the living holder has its lock no more: %v, %v", err, context.Cause(living.Context()))
	}
	stop()
	<-over

	step(wrong) // Every lease is over at once.
	began = time.Now()
	thief := get(theirs, "living", lock.Options{TTL: ttl, Wait: lock.Forever})
	<-living.Context().Done()
	t.Logf("after the step ahead: the lock was taken, and its holder told, after %s: %v", time.Since(began), context.Cause(living.Context()))
	if cause := context.Cause(living.Context()); !errors.Is(cause, lock.ErrLost) || thief.Token("living") <= living.Token("living") {
		t.Errorf("the holder was told %v; tokens %d and %d", cause, living.Token("living"), thief.Token("living"))
	}
}
