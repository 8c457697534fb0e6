package main

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
)

// lockSweep is how often rows of locks are deleted that ended by themselves, and the gauges of locks are set.
const lockSweep = 10 * time.Second

// startLocks makes the lock service.
func (n *node) startLocks(registry *prometheus.Registry) {
	n.lockMetrics = telemetry.NewLocks(registry, postgres.LockClass)
	n.locks = postgres.NewLocks(n.db, n.lockMetrics)
	n.onClose(n.locks.Close)
}

// sweepLocks looks after the lock service's tables.
func (n *node) sweepLocks(ctx context.Context) (int, error) {
	snapshot, err := n.locks.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	n.lockMetrics.Sample(snapshot)
	_, err = n.locks.Sweep(ctx)
	return 0, err // Leases that expire are the holders' business, and no news.
}
