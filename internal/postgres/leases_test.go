package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/lock"
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

// leaseRequest asks for the lease at once or not at all.
func leaseRequest(id string, ttl time.Duration) lock.Request {
	return lock.Request{ID: id, Owner: "somebody", Keys: []string{leaseName}, TTL: ttl}
}

// acquired takes the lease, which must succeed, and returns the term.
func acquired(t *testing.T, l *Leases, id string, ttl time.Duration) int64 {
	t.Helper()
	g, err := l.Acquire(t.Context(), leaseRequest(id, ttl))
	if err != nil {
		t.Fatalf("acquire for %s: %v", id, err)
	}
	return g.Tokens[leaseName]
}

// expectRenewal renews, and expects the term; 0: the lease is not to be held.
func expectRenewal(t *testing.T, l *Leases, id string, term int64) {
	t.Helper()
	g, err := l.Renew(t.Context(), id, longTTL)
	if term == 0 && !errors.Is(err, lock.ErrLost) || term > 0 && (err != nil || g.Tokens[leaseName] != term) {
		t.Errorf("renewal for %s: %+v, %v; want term %d", id, g, err, term)
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
	for _, id := range []string{"a", "b"} {
		if g, err := b.Acquire(t.Context(), leaseRequest(id, longTTL)); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("%s while it is held: %+v, %v", id, g, err)
		}
	}
	// Leases of other names are others.
	other := leaseRequest("c", longTTL)
	other.Keys = []string{"other"}
	if g, err := b.Acquire(t.Context(), other); err != nil || g.Tokens["other"] != 1 {
		t.Errorf("another lease: %+v, %v", g, err)
	}
	for what, r := range map[string]lock.Request{
		"two keys": {ID: "d", Keys: []string{"x", "y"}, TTL: longTTL}, "a maximum hold": {ID: "d", Keys: []string{"x"}, TTL: longTTL, MaxHold: longTTL},
	} {
		if _, err := a.Acquire(t.Context(), r); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	expectRenewal(t, a, "a", 1)
	expectRenewal(t, a, "b", 0)

	expire(t, db)
	expectRenewal(t, a, "a", 0)
	if err := a.Release(t.Context(), "a"); !errors.Is(err, lock.ErrLost) {
		t.Errorf("resigned what has expired: %v", err)
	}
	if term := acquired(t, a, "a2", longTTL); term != 2 {
		t.Errorf("term %d after the expiry", term)
	}
	expectRenewal(t, a, "a", 0)
	expectRenewal(t, a, "a2", 2)

	// Only what is held can be resigned.
	for _, err := range []error{a.Release(t.Context(), "a"), a.Release(t.Context(), "b")} {
		if !errors.Is(err, lock.ErrLost) {
			t.Errorf("resigned another's: %v", err)
		}
	}
	expectRenewal(t, a, "a2", 2)
	if err := a.Release(t.Context(), "a2"); err != nil {
		t.Error(err)
	}
	expectRenewal(t, a, "a2", 0)
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
	next := leaseRequest("b", longTTL)
	next.Wait = lock.Forever
	g, err := b.Acquire(t.Context(), next)
	if err != nil || g.Tokens[leaseName] != 2 {
		t.Errorf("the next: %+v, %v", g, err)
	}
	if took := time.Since(start); took < ttl {
		t.Errorf("free after %s", took)
	}
	next.ID, next.Wait = "c", ttl/10
	if _, err := a.Acquire(t.Context(), next); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("after too short a wait: %v", err)
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
				g, err := l.Acquire(t.Context(), leaseRequest(fmt.Sprint(round, "/", i), longTTL))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					terms = append(terms, g.Tokens[leaseName])
				case !errors.Is(err, lock.ErrHeld):
					t.Error(err)
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
	expectRenewal(t, l, "a", term)
	if err := l.Release(t.Context(), "a"); err != nil {
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
	if _, err := l.Renew(t.Context(), "a", longTTL); !errors.Is(err, command.ErrUnavailable) {
		t.Errorf("on a connection that is gone: %v", err)
	}
	expectRenewal(t, l, "a", term)
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
	if _, err := l.Renew(t.Context(), "a", longTTL); err == nil {
		t.Error("renewed a locked row")
	}
	if took := time.Since(start); took > 2*leaseTimeout {
		t.Errorf("took %s", took)
	}
	// Who only looks is in nobody's way.
	if _, err := newLeases(t, db).Acquire(t.Context(), leaseRequest("b", longTTL)); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("acquire: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	expectRenewal(t, l, "a", term)
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
	if _, err := l.Renew(ctx, "a", longTTL); !errors.Is(err, command.ErrUnavailable) {
		t.Errorf("a renewal: %v", err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	expectRenewal(t, l, "a", term)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Error(err)
	}
}
