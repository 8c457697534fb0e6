package pglock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

const (
	// wrong is how far the clock is off, for a while.
	wrong = time.Hour
	// stepTTL is the TTL of leases that a step meets, and soon is when they are over at the latest, on a loaded machine.
	stepTTL = time.Second
	soon    = testwait.Patience
)

// stepping is a database whose clock is ahead, until the test steps it.
func stepping(t *testing.T) (url string, step func(time.Duration)) {
	t.Helper()
	url = database(t)
	step = pgtest.Clock(t, url)
	step(wrong)
	return url, step
}

func ask(owner string, keys ...string) lock.Request {
	return lock.Request{ID: uuid.Must(uuid.NewV7()).String(), Keys: keys, Owner: owner, TTL: stepTTL}
}

// grant gives a lock to somebody who never renews it.
func grant(t *testing.T, b *Backend, r lock.Request) lock.Grant {
	t.Helper()
	g, err := b.Acquire(testwait.Context(t, soon), r)
	testwait.Must(t, err)
	return g
}

// TestLeaseWrittenByAClockThatWasAhead has holders die whose leases end in an hour, by a clock that is right again.
func TestLeaseWrittenByAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(t *testing.T, b *Backend, keys ...string){
		"WaitInLine": func(t *testing.T, b *Backend, keys ...string) {
			t.Helper()
			r := ask("next", keys...)
			r.Wait = lock.Forever
			grant(t, b, r)
		},
		"FailFast": func(t *testing.T, b *Backend, keys ...string) {
			t.Helper()
			testwait.Eventually(t, soon, "the lock is free", func() bool {
				_, err := b.Acquire(t.Context(), ask("next", keys...))
				if err != nil && !errors.Is(err, lock.ErrHeld) {
					t.Fatal(err)
				}
				return err == nil
			})
		},
		"Sweep": func(t *testing.T, b *Backend, keys ...string) {
			t.Helper()
			testwait.Must(t, testwait.Err(b.Sweep(t.Context())))
			testwait.Eventually(t, soon, "nobody holds the lock", func() bool {
				_, held, err := b.Find(t.Context(), keys[0])
				testwait.Must(t, err)
				return !held
			})
		},
	} {
		for count, keys := range map[string][]string{"OneKey": {"a"}, "TwoKeys": {"a", "b"}} {
			t.Run(name+count, func(t *testing.T) {
				t.Parallel()
				url, step := stepping(t)
				old := grant(t, open(t, url, Options{}), ask("dead", keys...))
				step(0)
				b := open(t, url, Options{})
				next(t, b, keys...)
				if err := b.Release(t.Context(), old); !errors.Is(err, lock.ErrLost) {
					t.Errorf("the dead holder's release: %v", err)
				}
			})
		}
	}
}

// TestStepBackUnderALivingHolder: whoever looks does not take the lock from a holder that renews it.
func TestStepBackUnderALivingHolder(t *testing.T) {
	t.Parallel()
	url, step := stepping(t)
	b := open(t, url, Options{})
	h := acquire(t, lock.New(b, lock.LockerOptions{}), "k", lock.Options{TTL: 20 * time.Second, MaxHold: wrong})
	before, _, err := b.Find(t.Context(), "k")
	testwait.Must(t, err)
	step(0)
	rival := open(t, url, Options{})
	if _, err := rival.Acquire(t.Context(), ask("rival", "k")); !errors.Is(err, lock.ErrHeld) {
		t.Fatalf("a rival, at once: %v", err)
	}
	looked, held, err := b.Find(t.Context(), "k")
	testwait.Must(t, err)
	if !held || !looked.ExpiresAt.Before(before.ExpiresAt.Add(-wrong/2)) || !looked.GrantedAt.Before(before.ExpiresAt.Add(-wrong/2)) {
		t.Errorf("after the look the lease is from %s to %s, before it ended at %s", looked.GrantedAt, looked.ExpiresAt, before.ExpiresAt)
	}
	testwait.Eventually(t, soon, "the holder has renewed", func() bool {
		now, _, err := b.Find(t.Context(), "k")
		testwait.Must(t, err)
		return now.ExpiresAt.After(looked.ExpiresAt)
	})
	if h.Context().Err() != nil {
		t.Errorf("the holder lost its lock: %v", context.Cause(h.Context()))
	}
	testwait.Check(t, h.Release(t.Context()))
}

// TestMaximumHoldOverAStepBack: it is counted from the first renewal after the step, at the latest.
func TestMaximumHoldOverAStepBack(t *testing.T) {
	t.Parallel()
	url, step := stepping(t)
	b := open(t, url, Options{})
	r := ask("long", "k")
	r.TTL, r.MaxHold = time.Minute, 2*time.Second
	g := grant(t, b, r)
	step(0)
	testwait.Eventually(t, soon, "the maximum hold is over", func() bool {
		_, err := b.Renew(t.Context(), g.ID, 0)
		if err != nil && !errors.Is(err, lock.ErrLost) {
			t.Fatal(err)
		}
		return err != nil
	})
}

// TestDeadWaiterOverAStepBack: a request that died while the clock was ahead stands in nobody's way, and the sweep deletes it.
func TestDeadWaiterOverAStepBack(t *testing.T) {
	t.Parallel()
	url, step := stepping(t)
	b := open(t, url, Options{})
	p := pool(t, url)
	long := ask("long", "a")
	long.TTL = wrong
	grant(t, b, long)
	doomed := open(t, url, Options{})
	go func() {
		r := ask("dead", "a", "b")
		r.Wait = lock.Forever
		_, _ = doomed.Acquire(context.WithoutCancel(t.Context()), r)
	}()
	testwait.Eventually(t, soon, "it waits", func() bool { return waits(t, p, "dead") })
	doomed.pool.Close() // Without a connection, nothing that it would still like to say is heard.
	step(0)
	r := ask("next", "b")
	r.Wait = lock.Forever
	grant(t, b, r)
	testwait.Must(t, testwait.Err(b.Sweep(t.Context())))
	step(2 * forgetAfter)
	testwait.Must(t, testwait.Err(b.Sweep(t.Context())))
	if waits(t, p, "dead") {
		t.Error("its row is still there")
	}
}

func waits(t *testing.T, p *pgxpool.Pool, owner string) (there bool) {
	t.Helper()
	testwait.Must(t, p.QueryRow(t.Context(), testSchema.in(`SELECT EXISTS (SELECT FROM @lock_waiters WHERE owner = $1)`), owner).Scan(&there))
	return there
}

// TestStepForwardUnderALivingHolder: its lease is over early. It is told with a cause, and once the next holder has written,
// nothing that it writes is accepted.
func TestStepForwardUnderALivingHolder(t *testing.T) {
	t.Parallel()
	url, step := stepping(t)
	step(0)
	b := open(t, url, Options{})
	h := acquire(t, lock.New(b, lock.LockerOptions{}), "k", lock.Options{TTL: stepTTL * 3})
	step(wrong)
	next := acquire(t, lock.New(open(t, url, Options{}), lock.LockerOptions{}), "k", lock.Options{Wait: lock.Forever})
	<-h.Context().Done()
	if cause := context.Cause(h.Context()); !errors.Is(cause, lock.ErrLost) {
		t.Errorf("the holder was told %v", cause)
	}
	if h.Token("k") >= next.Token("k") {
		t.Errorf("tokens %d and then %d", h.Token("k"), next.Token("k"))
	}
	p := pool(t, url)
	fence := func(token int64) error {
		return pgx.BeginFunc(t.Context(), p, func(tx pgx.Tx) error { return testSchema.Fence(t.Context(), tx, "k", token) })
	}
	testwait.Must(t, fence(next.Token("k")))
	if err := fence(h.Token("k")); !errors.Is(err, lock.ErrStaleToken) {
		t.Errorf("a write of the holder that lost: %v", err)
	}
	if err := h.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("its release: %v", err)
	}
	testwait.Check(t, next.Release(t.Context()))
}
