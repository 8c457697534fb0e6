package pglock

import (
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock/locktest"
)

// TestConformanceWithAWrongClock runs the suite with the process's clock a day behind the database's, and a day ahead.
func TestConformanceWithAWrongClock(t *testing.T) {
	t.Parallel()
	only := []string{ // In a short run: what has to do with time.
		"WaitLimit", "DeadHolderIsReplaced", "DeadWaiterIsPassedOver", "LostRenewalsEndTheContextInTime", "RenewalNeverRevives", "MaximumHold", "DeadlockRings",
	}
	if testwait.Torture() {
		only = nil
	}
	for name, by := range map[string]time.Duration{"ahead": 24 * time.Hour, "behind": -24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pool(t, clocked(t, by))
			var now time.Time
			testwait.Must(t, p.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&now))
			if off := time.Until(now).Abs(); off < 23*time.Hour || off > 25*time.Hour {
				t.Fatalf("the clocks differ by %s", off)
			}
			locktest.Run(t, func(t *testing.T) locktest.Harness {
				t.Helper()
				return harness(t, clocked(t, by))
			}, only...)
		})
	}
}

// clocked is a database whose clock is off by so much.
func clocked(t *testing.T, by time.Duration) string {
	t.Helper()
	url := database(t)
	pgtest.Clock(t, url)(by)
	return url
}
