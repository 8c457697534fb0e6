package pgtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// migrations counts the runs of migrate in this binary.
var migrations atomic.Int64

func migrate(ctx context.Context, url string) error {
	migrations.Add(1)
	return run(ctx, url, "CREATE TABLE things (n int PRIMARY KEY)")
}

func run(ctx context.Context, url, sql string) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

func TestDatabasesAreMigratedOnceAndShareNothing(t *testing.T) {
	t.Parallel()
	for n := range 8 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			url := pgtest.NewDatabase(t, migrate)
			t.Logf("took %v", time.Since(began))
			// The same key in each: a shared table would refuse the second.
			testwait.Must(t, run(t.Context(), url, "INSERT INTO things VALUES (1)"))
			if got := migrations.Load(); got != 1 {
				t.Errorf("migrated %d times; want once", got)
			}
		})
	}
}

func TestEmptyDatabaseAndDropAtTheEnd(t *testing.T) { //nolint:tparallel // It looks at what its subtest leaves.
	t.Parallel()
	var url string
	t.Run("inner", func(t *testing.T) {
		url = pgtest.NewDatabase(t, nil)
		testwait.Must(t, run(t.Context(), url, "SELECT 1"))
		if err := run(t.Context(), url, "SELECT * FROM things"); err == nil {
			t.Error("the empty database isn't empty")
		}
		// An open connection doesn't keep the database.
		conn, err := pgx.Connect(t.Context(), url)
		testwait.Must(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
	})
	if err := run(t.Context(), url, "SELECT 1"); err == nil {
		t.Error("the database outlived its test")
	}
}

func TestServerSurvivesBeingKilled(t *testing.T) {
	t.Parallel()
	i := pgtest.Server(t)
	testwait.Must(t, run(t.Context(), i.URL(), "CREATE TABLE things (n int)"))
	p, err := os.FindProcess(i.PID())
	testwait.Must(t, err)
	testwait.Must(t, p.Kill())
	deadline := time.Now().Add(testwait.Patience)
	for i.Restarts() == 0 {
		if time.Now().After(deadline) {
			t.Fatal("PostgreSQL didn't come back")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := run(t.Context(), i.URL(), "SELECT * FROM things"); err != nil {
		t.Error(err)
	}
}
