package postgres

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/leader"
)

const (
	leaseName = "auctions"
	longTTL   = time.Minute
)

func newLeases(t *testing.T, db *DB) *Leases {
	t.Helper()
	l := NewLeases(db)
	t.Cleanup(func() { closing(t, l.Close) })
	return l
}

// acquired takes the lease, which must succeed, and returns the term.
func acquired(t *testing.T, l *Leases, holder string, ttl time.Duration) int64 {
	t.Helper()
	term, ok, _, err := l.Acquire(t.Context(), leaseName, holder, ttl)
	if err != nil || !ok {
		t.Fatalf("acquire for %s: %t, %v", holder, ok, err)
	}
	return term
}

func expectRenewal(t *testing.T, l *Leases, holder string, term int64, want bool) {
	t.Helper()
	if ok, err := l.Renew(t.Context(), leaseName, holder, term, longTTL); err != nil || ok != want {
		t.Errorf("renewal for %s under %d: %t, %v; want %t", holder, term, ok, err, want)
	}
}

// expire lets the lease run out.
func expire(t *testing.T, db *DB) {
	t.Helper()
	if n := exec(t, db, `UPDATE leases SET expires_at = clock_timestamp() WHERE name = $1`, leaseName); n != 1 {
		t.Fatalf("%d leases", n)
	}
}

func TestALeaseIsHeldUnderGrowingTerms(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	a, b := newLeases(t, db), newLeases(t, db)
	if term := acquired(t, a, "a", longTTL); term != 1 {
		t.Errorf("first term %d", term)
	}
	for _, holder := range []string{"a", "b"} {
		term, ok, wait, err := b.Acquire(t.Context(), leaseName, holder, longTTL)
		if err != nil || ok || term != 0 || wait <= longTTL/2 || wait > longTTL {
			t.Errorf("%s while it is held: %d, %t, %s, %v", holder, term, ok, wait, err)
		}
	}
	// Leases of other names are others.
	if term, ok, _, err := b.Acquire(t.Context(), "other", "b", longTTL); err != nil || !ok || term != 1 {
		t.Errorf("another lease: %d, %t, %v", term, ok, err)
	}
	expectRenewal(t, a, "a", 1, true)
	expectRenewal(t, a, "b", 1, false)
	expectRenewal(t, a, "a", 2, false)

	expire(t, db)
	expectRenewal(t, a, "a", 1, false)
	if err := a.Resign(t.Context(), leaseName, "a", 1); !errors.Is(err, leader.ErrLeaseLost) {
		t.Errorf("resigned what has expired: %v", err)
	}
	if term := acquired(t, a, "a", longTTL); term != 2 {
		t.Errorf("term %d for the same holder after the expiry", term)
	}
	expectRenewal(t, a, "a", 1, false)
	expectRenewal(t, a, "a", 2, true)

	// Only who holds it can resign it, and only under its own term.
	for _, err := range []error{a.Resign(t.Context(), leaseName, "a", 1), a.Resign(t.Context(), leaseName, "b", 2)} {
		if !errors.Is(err, leader.ErrLeaseLost) {
			t.Errorf("resigned another's: %v", err)
		}
	}
	expectRenewal(t, a, "a", 2, true)
	if err := a.Resign(t.Context(), leaseName, "a", 2); err != nil {
		t.Error(err)
	}
	expectRenewal(t, a, "a", 2, false)
	if term := acquired(t, b, "b", longTTL); term != 3 {
		t.Errorf("term %d after the resignation", term)
	}
}

func TestALeaseExpiresByItself(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	a, b := newLeases(t, db), newLeases(t, db)
	const ttl = 300 * time.Millisecond
	start := time.Now()
	acquired(t, a, "a", ttl)
	eventually(t, "the expiry", func() bool {
		_, ok, wait, err := b.Acquire(t.Context(), leaseName, "b", ttl)
		if err != nil || wait > ttl {
			t.Fatalf("%s, %v", wait, err)
		}
		return ok
	})
	if took := time.Since(start); took < ttl {
		t.Errorf("free after %s", took)
	}
}

// TestOneOfManyGetsTheLease lets many ask for a new lease, and then for an expired one, at once.
func TestOneOfManyGetsTheLease(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	const many = 8
	var all []*Leases
	for range many {
		all = append(all, newLeases(t, db))
	}
	for round := range int64(10) {
		if round > 0 {
			expire(t, db)
		}
		var (
			asking sync.WaitGroup
			mu     sync.Mutex
			terms  []int64
		)
		for i, l := range all {
			asking.Go(func() {
				term, ok, _, err := l.Acquire(t.Context(), leaseName, string(rune('a'+i)), longTTL)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				if ok {
					terms = append(terms, term)
				}
			})
		}
		asking.Wait()
		if len(terms) != 1 || terms[0] != round+1 {
			t.Fatalf("round %d: terms %v", round, terms)
		}
	}
}

func TestADrainedPoolCostsNoLease(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t), MaxConns: 1})
	held, err := db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	l := newLeases(t, db)
	term := acquired(t, l, "a", longTTL)
	expectRenewal(t, l, "a", term, true)
	if err := l.Resign(t.Context(), leaseName, "a", term); err != nil {
		t.Error(err)
	}
}

func TestLeasesConnectAgain(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	l := newLeases(t, db)
	term := acquired(t, l, "a", longTTL)
	const terminate = `
SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
WHERE application_name = 'fairlead leases' AND datname = current_database()`
	if n := ask[int](t, db, terminate); n != 1 {
		t.Fatalf("%d connections", n)
	}
	if _, err := l.Renew(t.Context(), leaseName, "a", term, longTTL); !errors.Is(err, command.ErrUnavailable) {
		t.Errorf("on a connection that is gone: %v", err)
	}
	expectRenewal(t, l, "a", term, true)
	if n := ask[int](t, db, terminate); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestALockedLeaseFailsInTime(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	l := newLeases(t, db)
	term := acquired(t, l, "a", longTTL)
	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if _, err := tx.Exec(t.Context(), `SELECT FROM leases FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := l.Renew(t.Context(), leaseName, "a", term, longTTL); err == nil {
		t.Error("renewed a locked row")
	}
	if took := time.Since(start); took > 2*leaseTimeout {
		t.Errorf("took %s", took)
	}
	// Who only looks is in nobody's way.
	if _, ok, _, err := newLeases(t, db).Acquire(t.Context(), leaseName, "b", longTTL); err != nil || ok {
		t.Errorf("acquire: %t, %v", ok, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	expectRenewal(t, l, "a", term, true)
}

// TestAFrozenServerCannotHangALease stops the server's process that serves the leases, and goes on by another.
func TestAFrozenServerCannotHangALease(t *testing.T) {
	t.Parallel()
	if os.Getenv("FAIRLEAD_TEST_DATABASE_URL") != "" {
		t.Skip("the server's processes may be another machine's")
	}
	db := open(t, Options{URL: database(t)})
	l := newLeases(t, db)
	term := acquired(t, l, "a", longTTL)
	pid := ask[int](t, db, `SELECT pid FROM pg_stat_activity WHERE application_name = 'fairlead leases' AND datname = current_database()`)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // It may have ended.
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := l.Renew(ctx, leaseName, "a", term, longTTL); !errors.Is(err, command.ErrUnavailable) {
		t.Errorf("a renewal: %v", err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	expectRenewal(t, l, "a", term, true)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Error(err)
	}
}
