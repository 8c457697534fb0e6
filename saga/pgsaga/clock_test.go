package pgsaga_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/saga"
)

// TestStepBackOfTheClock: what was written while the log's clock was an hour ahead holds a saga up for no longer than a lease
// or a pause once the clock is right.
func TestStepBackOfTheClock(t *testing.T) {
	t.Parallel()
	stepping := func(t *testing.T) (url string, step func(time.Duration)) {
		t.Helper()
		url = pgtest.NewDatabase(t, install)
		step = pgtest.Clock(t, url)
		step(time.Hour)
		return url, step
	}
	defined := func(do func(context.Context, saga.Call) (saga.Outcome, error)) saga.Options {
		return saga.Options{Definitions: []saga.Definition{{Name: "one", Plan: func(*saga.Saga) (saga.Plan, error) {
			return saga.Plan{Steps: []saga.Step{{Name: "s", Do: do}}}, nil
		}}}}
	}
	t.Run("LeaseOfADeadProcess", func(t *testing.T) {
		t.Parallel()
		url, step := stepping(t)
		entered, over := make(chan struct{}), make(chan struct{})
		doomed := newProcess(t, poolOf(t, url), defined(func(context.Context, saga.Call) (saga.Outcome, error) {
			close(entered)
			<-over
			return saga.Outcome{}, errFlaky
		}))
		t.Cleanup(func() { close(over) })
		s, err := doomed.Start(testwait.Context(t, patience), saga.New{Name: "one"})
		testwait.Must(t, err)
		<-entered
		doomed.die()
		step(0)
		next := newProcess(t, poolOf(t, url), defined(func(context.Context, saga.Call) (saga.Outcome, error) { return saga.Outcome{}, nil }))
		ended(t, next, s)
	})
	t.Run("BookedRetry", func(t *testing.T) {
		t.Parallel()
		url, step := stepping(t)
		pool := poolOf(t, url)
		var right atomic.Bool
		p := newProcess(t, pool, defined(func(context.Context, saga.Call) (saga.Outcome, error) {
			if !right.Load() {
				return saga.Outcome{}, errFlaky
			}
			return saga.Outcome{}, nil
		}))
		s, err := p.Start(testwait.Context(t, patience), saga.New{Name: "one"})
		testwait.Must(t, err)
		testwait.Eventually(t, patience, "a retry is booked", func() (booked bool) {
			testwait.Must(t, pool.QueryRow(t.Context(), `SELECT attempts > 0 AND lease_expires_at < clock_timestamp() FROM "some sagas".sagas`).Scan(&booked))
			return booked
		})
		step(0)
		right.Store(true)
		ended(t, p, s)
	})
}

func ended(t *testing.T, p *process, s *saga.Saga) {
	t.Helper()
	testwait.Eventually(t, patience, "the saga is completed", func() bool {
		now, err := p.Saga(t.Context(), s.ID)
		testwait.Must(t, err)
		return now.Status == saga.Completed
	})
}
