package lockprom_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/lockprom"
	"github.com/fairlead-dev/fairlead/lock/pglock"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func install(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return pglock.Schema("").Install(ctx, conn)
}

// TestADeadlock has two owners wait for each other in PostgreSQL, and reads the metrics and the backend's log.
func TestADeadlock(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), pgtest.NewDatabase(t, install))
	testwait.Must(t, err)
	defer pool.Close()
	registry := prometheus.NewRegistry()
	metrics := lockprom.New(registry, "reports")
	var log bytes.Buffer // It is read once the backend is closed.
	backend := pglock.New(pool, pglock.Options{Observer: metrics, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	locker := lock.New(backend, lock.LockerOptions{Observer: metrics})
	o := func(owner string) lock.Options {
		return lock.Options{Owner: owner, Wait: time.Minute, TTL: time.Minute, Class: "reports"}
	}
	x, err := locker.Acquire(t.Context(), []string{"x"}, o("ann"))
	testwait.Must(t, err)
	y, err := locker.Acquire(t.Context(), []string{"y"}, o("ben"))
	testwait.Must(t, err)
	second := make(chan error)
	go func() {
		h, err := locker.Acquire(t.Context(), []string{"x"}, o("ben"))
		if err == nil {
			err = h.Release(t.Context())
		}
		second <- err
	}()
	testwait.Eventually(t, testwait.Patience, "ben waits", func() bool {
		s, err := backend.Snapshot(t.Context())
		testwait.Must(t, err)
		metrics.Sample(s)
		return len(s.Waiters) == 1
	})
	_, err = locker.Acquire(t.Context(), []string{"y"}, o("ann")) // The youngest request gives way.
	if d, ok := errors.AsType[*lock.DeadlockError](err); !ok || strings.Join(d.Cycle, " ") != "ann ben" {
		t.Errorf("ann's second request: %v", err)
	}
	testwait.Must(t, x.Release(t.Context()))
	testwait.Must(t, <-second)
	testwait.Must(t, y.Release(t.Context()))
	backend.Close()

	if want := `level=WARN msg="deadlock broken" cycle="[ann ben]" keys="[y x]" victim=`; strings.Count(log.String(), want) != 1 {
		t.Errorf("the log has not once %q:\n%s", want, &log)
	}
	got := gather(t, registry)
	for name, want := range map[string]float64{
		`fairlead_lock_requests_total{class="reports",outcome="granted"}`:  3,
		`fairlead_lock_requests_total{class="reports",outcome="deadlock"}`: 1,
		`fairlead_lock_contended_total{class="reports"}`:                   1,
		`fairlead_lock_wait_seconds{class="reports"}`:                      4,
		`fairlead_lock_hold_seconds{class="reports"}`:                      3,
		`fairlead_lock_deadlock_victims_total`:                             1,
		`fairlead_lock_handovers_total`:                                    1,
		`fairlead_locks_held`:                                              2,
		`fairlead_locks_waiting`:                                           1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}
