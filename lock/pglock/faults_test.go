package pglock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// acquire takes a lock, for longer than a machine stalls where a test does not say for how long.
func acquire(t *testing.T, l *lock.Locker, k string, o lock.Options) *lock.Held {
	t.Helper()
	o.TTL = cmp.Or(o.TTL, time.Minute) // A release that a stall keeps from being answered leaves the lock to its TTL.
	ctx, cancel := context.WithTimeout(t.Context(), testwait.Patience)
	t.Cleanup(cancel)
	h, err := l.Acquire(ctx, []string{k}, o)
	testwait.Must(t, err)
	return h
}

// TestLossIsKnownBeforeTheLeaseEnds cuts a holder off from the database, and asks the database when the lease ended.
func TestLossIsKnownBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	direct := database(t)
	p, url := wire.Through(t, direct, wire.Options{})
	b := open(t, url, Options{})
	l := lock.New(b, lock.LockerOptions{})
	watch := pool(t, direct)
	rounds := testwait.Count(5, 200)
	least := time.Hour
	defer func() { t.Logf("%d times, at least %s before the lease's end", rounds, least) }()
	for i := range rounds {
		k := fmt.Sprint("k", i)
		h := acquire(t, l, k, lock.Options{TTL: time.Second})
		p.Refuse(true)
		late := lateness(h.Context())
		knew := time.Now()
		var left time.Duration // of the lease, by the database's clock, when it was asked
		sql := testSchema.in(`SELECT expires_at - clock_timestamp() FROM @lock_grants WHERE id = $1`)
		testwait.Must(t, watch.QueryRow(t.Context(), sql, h.ID()).Scan(&left))
		left += time.Since(knew) // Asking takes its time.
		least = min(least, left)
		// A process that the machine does not let run is told late, which is not promised otherwise.
		if cause := context.Cause(h.Context()); left+late <= 0 || !errors.Is(cause, lock.ErrUnrenewed) {
			t.Errorf("round %d: %s were left of the lease, the machine was late by %s; cause %v", i, left, late, cause)
		}
		p.Refuse(false)
		_ = h.Release(t.Context()) // Lost or not: it may just not have expired.
	}
}

// lateness waits for the end of a context, and tells by how much the machine was late meanwhile, at worst, in waking who
// asked for it.
func lateness(ctx context.Context) (worst time.Duration) {
	const nap = 2 * time.Millisecond
	for {
		began := time.Now()
		timer := time.NewTimer(nap)
		select {
		case <-ctx.Done():
			timer.Stop()
			return max(worst, time.Since(began)-nap)
		case <-timer.C:
			worst = max(worst, time.Since(began)-nap)
		}
	}
}

// TestPassingFaultsLoseNothing cuts connections every now and then, under a holder and those who wait.
func TestPassingFaultsLoseNothing(t *testing.T) {
	t.Parallel()
	direct := database(t)
	p, url := wire.Through(t, direct, wire.Options{})
	a := open(t, url, Options{})
	b := open(t, url, Options{})
	lockers := []*lock.Locker{lock.New(a, lock.LockerOptions{}), lock.New(b, lock.LockerOptions{})}
	stop := make(chan struct{})
	var faults sync.WaitGroup
	faults.Go(func() {
		// Long enough to connect again in, on a machine that does much else, too.
		pauses := map[bool]time.Duration{true: 500 * time.Millisecond, false: 100 * time.Millisecond}
		for off := true; ; off = !off {
			tick := time.NewTimer(pauses[off])
			select {
			case <-stop:
				tick.Stop()
				p.Refuse(false)
				return
			case <-tick.C:
				p.Refuse(off)
			}
		}
	})
	var inside atomic.Int32
	var granted atomic.Int64
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			for range 4 {
				var h *lock.Held
				var err error
				for asked, until := time.Now(), time.Now().Add(testwait.Patience); ; asked = time.Now() {
					h, err = lockers[i%2].Acquire(t.Context(), []string{"k"}, lock.Options{TTL: 2 * time.Second, Wait: lock.Forever})
					// A database that is kept away for longer than it is tried again, as by a machine that stalls, is reported.
					if err == nil || time.Since(asked) < pgkit.RetryFor-2*pgkit.MaxBackoff || time.Now().After(until) {
						break
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two are inside")
				}
				granted.Add(1)
				inside.Add(-1)
				// A release whose answer was lost, and which is tried again, finds that nothing is held.
				if err := h.Release(t.Context()); err != nil && !errors.Is(err, lock.ErrLost) {
					t.Logf("release: %v", err)
				}
			}
		})
	}
	all.Wait()
	close(stop)
	faults.Wait()
	if granted.Load() != 24 {
		t.Errorf("%d grants", granted.Load())
	}
}

// TestDatabaseRestarts kills PostgreSQL under a holder and a waiter: what was granted stays, and tokens go on.
func TestDatabaseRestarts(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	testwait.Must(t, install(t.Context(), server.URL()))
	a := open(t, server.URL(), Options{})
	b := open(t, server.URL(), Options{})
	l, other := lock.New(a, lock.LockerOptions{}), lock.New(b, lock.LockerOptions{})
	acquire(t, l, "earlier", lock.Options{TTL: time.Hour})
	h := acquire(t, l, "k", lock.Options{TTL: testwait.Patience})
	got := make(chan *lock.Held, 1)
	go func() {
		h, err := other.Acquire(t.Context(), []string{"k"}, lock.Options{Wait: testwait.Patience})
		testwait.Check(t, err)
		got <- h
	}()
	oneWaits(t, a)
	// Sessions of the old one may still answer when it is dead, and what they commit without waiting for the disk is lost.
	pgtest.Restart(t, server)
	waitFor(t, "PostgreSQL is back", func() bool { _, err := a.Snapshot(t.Context()); return err == nil })
	if err := h.Context().Err(); err != nil {
		t.Fatalf("lost: %v", context.Cause(h.Context()))
	}
	if _, err := other.Acquire(t.Context(), []string{"earlier"}, lock.Options{}); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("what was granted before: %v", err)
	}
	testwait.Must(t, h.Release(t.Context()))
	next := <-got
	if next == nil {
		t.FailNow()
	}
	if next.Token("k") <= h.Token("k") {
		t.Errorf("token %d after %d", next.Token("k"), h.Token("k"))
	}
	testwait.Check(t, next.Release(t.Context()))
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testwait.Eventually(t, testwait.Patience, what, ok)
}

func oneWaits(t *testing.T, b *Backend) {
	t.Helper()
	waitFor(t, "one waits", func() bool { s, err := b.Snapshot(t.Context()); return err == nil && len(s.Waiters) == 1 })
}

// TestDrainedPoolLosesNoLock takes every connection of the pool: renewals have their own.
func TestDrainedPoolLosesNoLock(t *testing.T) {
	t.Parallel()
	p := pool(t, database(t))
	b := New(p, Options{Schema: testSchema})
	t.Cleanup(b.Close)
	ctx, cancel := context.WithTimeout(t.Context(), testwait.Patience)
	defer cancel()
	g, err := b.Acquire(ctx, lock.Request{ID: uuid.NewString(), Keys: []string{"k"}, Owner: "o", TTL: time.Hour})
	testwait.Must(t, err)
	for range p.Config().MaxConns {
		c, err := p.Acquire(ctx)
		testwait.Must(t, err)
		t.Cleanup(c.Release)
	}
	for range 3 {
		testwait.Must(t, testwait.Err(b.Renew(ctx, g.ID, 0)))
	}
}

// TestBlindHandOver hands over between processes that hear no notifications.
func TestBlindHandOver(t *testing.T) {
	t.Parallel()
	url := database(t)
	a := open(t, url, Options{})
	_, pooled := wire.Through(t, url, wire.Options{Deaf: true})
	b := open(t, pooled, Options{})
	l, other := lock.New(a, lock.LockerOptions{}), lock.New(b, lock.LockerOptions{})
	for range 5 {
		h := acquire(t, l, "k", lock.Options{Wait: testwait.Patience})
		got := make(chan time.Time, 1)
		var released sync.WaitGroup
		released.Go(func() {
			h, err := other.Acquire(t.Context(), []string{"k"}, lock.Options{Wait: testwait.Patience})
			got <- time.Now()
			if err != nil {
				t.Error(err)
				return
			}
			testwait.Check(t, h.Release(t.Context()))
		})
		oneWaits(t, a)
		began := time.Now()
		testwait.Must(t, h.Release(t.Context()))
		if took := (<-got).Sub(began); took > testwait.Patience {
			t.Errorf("handed over after %s", took)
		}
		released.Wait()
	}
	if b.hearing.Load() {
		t.Error("the deaf one hears")
	}
}

// TestHandOverThatEndsWhileItIsTaken: a waiter that looks at the moment at which it is handed the lock may ask anew, and find the lock its own.
// Should the hand-over end before it is taken, the waiter has not waited for as long as it wants to, and so is not refused.
func TestHandOverThatEndsWhileItIsTaken(t *testing.T) {
	t.Parallel()
	b := open(t, database(t), Options{})
	id := uuid.Must(uuid.NewV7()).String()
	r := lock.Request{ID: id, Keys: []string{"k"}, Owner: "waiter", TTL: time.Minute, Wait: testwait.Patience}
	first, err := b.Acquire(t.Context(), r)
	testwait.Must(t, err)
	looks := 0
	g, err := b.AcquireWith(t.Context(), r, Hooks{Known: func(ctx context.Context, _ pgx.Tx, _ *pgx.Batch) func() (bool, error) {
		return func() (bool, error) {
			if looks++; looks > 1 {
				return false, nil
			}
			_, err := b.pool.Exec(ctx, testSchema.in(`UPDATE @lock_grants SET expires_at = clock_timestamp() WHERE id = $1`), id)
			return false, err
		}
	}})
	if err != nil || looks != 2 || g.Tokens["k"] <= first.Tokens["k"] {
		t.Errorf("after %d looks: %+v, %v", looks, g, err)
	}
}
