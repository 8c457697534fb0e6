package pglock

import (
	"testing"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/locktest"
)

// bouncer starts a PgBouncer that assigns connections by transaction, few for many, and returns what makes a database's
// URL one through it.
func bouncer(t *testing.T, database string) func(database string) string {
	t.Helper()
	b := pgtest.PgBouncer(t, database, "pool_mode = transaction", "default_pool_size = 5", "query_wait_timeout = 60", "ignore_startup_parameters = extra_float_digits")
	return func(database string) string {
		through := b.Through(t, database)
		if !b.Prepares {
			through += "&default_query_exec_mode=exec"
		}
		return through
	}
}

// TestConformanceThroughPgBouncer runs the whole suite behind a pooler in transaction mode, with fewer connections than
// those who ask.
func TestConformanceThroughPgBouncer(t *testing.T) {
	t.Parallel()
	through := bouncer(t, database(t))
	only := []string{ // In a short run: what rests on sessions, if anything does.
		"TokensGrow", "InOrderOfAsking", "DeadHolderIsReplaced", "DeadWaiterIsPassedOver", "LostRenewalsEndTheContextInTime",
		"DeadlockRings", "FenceRefusesOldTokens", "Histories",
	}
	if testwait.Torture() {
		only = nil
	}
	t.Run("suite", func(t *testing.T) {
		t.Parallel()
		locktest.Run(t, func(t *testing.T) locktest.Harness {
			t.Helper()
			return harness(t, through(database(t)))
		}, only...)
	})
}

// TestHandOverThroughPgBouncer: a waiter that hears no notifications knows so, and is quick nevertheless.
func TestHandOverThroughPgBouncer(t *testing.T) {
	t.Parallel()
	direct := database(t)
	url := bouncer(t, direct)(direct)
	a := open(t, url, Options{})
	b := open(t, url, Options{})
	l, other := lock.New(a, lock.LockerOptions{}), lock.New(b, lock.LockerOptions{})
	for range 5 {
		h := acquire(t, l, "k", lock.Options{Wait: testwait.Patience})
		got := make(chan *lock.Held, 1)
		go func() {
			h, err := other.Acquire(t.Context(), []string{"k"}, lock.Options{Wait: testwait.Patience})
			testwait.Check(t, err)
			got <- h
		}()
		oneWaits(t, a)
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
	if b.hearing.Load() {
		t.Error("notifications are said to arrive")
	}
}
