package lockprom_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/lockprom"
	"github.com/fairlead-dev/fairlead/lock/pglock"
)

// One Metrics observes the locker, and what happens in the backend's store.
func Example() {
	registry := prometheus.NewRegistry()
	metrics := lockprom.New(registry, "reports")

	work := func(ctx context.Context, pool *pgxpool.Pool) error {
		backend := pglock.New(pool, pglock.Options{Observer: metrics})
		defer backend.Close()
		locker := lock.New(backend, lock.LockerOptions{Observer: metrics})
		held, err := locker.Acquire(ctx, []string{"report/7"}, lock.Options{Wait: time.Minute, Class: "reports"})
		if err != nil {
			return err
		}
		return held.Release(ctx)
	}
	_ = work

	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		for _, label := range f.GetMetric()[0].GetLabel() {
			if label.GetName() == "class" {
				fmt.Printf("%s{class=%q}\n", f.GetName(), label.GetValue())
			}
		}
	}
	// Output:
	// fairlead_lock_contended_total{class="reports"}
	// fairlead_lock_hold_seconds{class="reports"}
	// fairlead_lock_lost_total{class="reports"}
	// fairlead_lock_requests_total{class="reports"}
	// fairlead_lock_wait_seconds{class="reports"}
}
