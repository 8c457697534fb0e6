package pglock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock/locktest"
)

// ahead and behind make a database whose clock is a day from the process's: its search path has another clock_timestamp before
// PostgreSQL's own.
func ahead(ctx context.Context, url string) error  { return skewed(ctx, url, 24*time.Hour) }
func behind(ctx context.Context, url string) error { return skewed(ctx, url, -24*time.Hour) }

func skewed(ctx context.Context, url string, by time.Duration) error {
	if err := install(ctx, url); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, fmt.Sprintf(`CREATE SCHEMA skew;
		CREATE FUNCTION skew.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
			AS $$ SELECT pg_catalog.clock_timestamp() + interval '%[1]f seconds' $$;
		ALTER FUNCTION %[2]s.lock_ask SET search_path = skew, %[2]s, pg_catalog;
		ALTER FUNCTION %[2]s.lock_release SET search_path = skew, %[2]s, pg_catalog;
		ALTER FUNCTION %[2]s.lock_settle SET search_path = skew, %[2]s, pg_catalog;
		DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET search_path = skew, public, pg_catalog', current_database()); END $$`,
		by.Seconds(), pgx.Identifier{string(testSchema)}.Sanitize()), pgx.QueryExecModeSimpleProtocol)
	return err
}

// TestConformanceWithAWrongClock runs the suite with the process's clock a day behind the database's, and a day ahead.
func TestConformanceWithAWrongClock(t *testing.T) {
	t.Parallel()
	only := []string{ // In a short run: what has to do with time.
		"WaitLimit", "DeadHolderIsReplaced", "DeadWaiterIsPassedOver", "LostRenewalsEndTheContextInTime", "RenewalNeverRevives", "MaximumHold", "DeadlockRings",
	}
	if testwait.Torture() {
		only = nil
	}
	for name, migrate := range map[string]pgtest.Migrate{"ahead": ahead, "behind": behind} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pool(t, clocked(t, migrate))
			var now time.Time
			testwait.Must(t, p.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&now))
			if off := time.Until(now).Abs(); off < 23*time.Hour || off > 25*time.Hour {
				t.Fatalf("the clocks differ by %s", off)
			}
			locktest.Run(t, func(t *testing.T) locktest.Harness {
				t.Helper()
				return harness(t, clocked(t, migrate))
			}, only...)
		})
	}
}

// clocked is a database of its own: what was set for its template is not copied.
func clocked(t *testing.T, set pgtest.Migrate) string {
	t.Helper()
	url := pgtest.NewDatabase(t, nil)
	testwait.Must(t, set(t.Context(), url))
	return url
}
