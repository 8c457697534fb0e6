package lockotel_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/lockotel"
	"github.com/fairlead-dev/fairlead/lock/pglock"
)

// One Metrics observes the locker, and what happens in the backend's store. The reader is usually one that sends to a collector.
func Example() {
	reader := sdk.NewManualReader()
	metrics, err := lockotel.New(sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("locks"), "reports")
	if err != nil {
		panic(err)
	}

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

	var collected metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &collected); err != nil {
		panic(err)
	}
	for _, m := range collected.ScopeMetrics[0].Metrics {
		fmt.Println(m.Name, m.Unit)
	}
	// Output:
	// fairlead.lock.requests {request}
	// fairlead.lock.contended {request}
	// fairlead.lock.lost {lock}
	// fairlead.lock.deadlock.victims {request}
	// fairlead.lock.expired {lease}
	// fairlead.lock.handovers {lock}
}
