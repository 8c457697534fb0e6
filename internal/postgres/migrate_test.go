package postgres

import (
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
)

// steps is how many migrations there are.
func steps(t *testing.T) int {
	t.Helper()
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("migrations %v, %v", files, err)
	}
	return len(files)
}

// checkApplied makes sure that the status lists every step as done, in order, and that the schema is there.
func checkApplied(t *testing.T, url string) {
	t.Helper()
	status, err := MigrationStatus(t.Context(), url)
	if err != nil || len(status) != steps(t) {
		t.Fatalf("status %+v, %v", status, err)
	}
	for i, m := range status {
		if m.AppliedAt == nil || m.AppliedAt.IsZero() || m.Version != int64(i+1) || m.Name == "" {
			t.Errorf("step %d: %+v", i+1, m)
		}
	}
	db := open(t, Options{URL: url})
	for _, table := range []string{"accounts", "idempotency_keys", "campaigns", "purchases", "draws", "api_keys", "audit_log"} {
		if !ask[bool](t, db, `SELECT to_regclass($1) IS NOT NULL`, table) {
			t.Errorf("no table %s", table)
		}
	}
}

func TestMigrateFromEmptyAndAgain(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, nil)
	status, err := MigrationStatus(t.Context(), url)
	if err != nil || len(status) != steps(t) {
		t.Fatalf("status of an empty database: %+v, %v", status, err)
	}
	for _, m := range status {
		if m.AppliedAt != nil {
			t.Errorf("applied before: %+v", m)
		}
	}
	applied, err := Migrate(t.Context(), url)
	if err != nil || len(applied) != steps(t) {
		t.Fatalf("applied %+v, %v", applied, err)
	}
	checkApplied(t, url)
	if again, err := Migrate(t.Context(), url); err != nil || len(again) != 0 {
		t.Errorf("the second time: %+v, %v", again, err)
	}
	checkApplied(t, url)
}

func TestMigrateFromFourAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, nil)
	var (
		group sync.WaitGroup
		count atomic.Int64
	)
	for range 4 {
		group.Go(func() {
			applied, err := Migrate(t.Context(), url)
			if err != nil {
				t.Error(err)
			}
			count.Add(int64(len(applied)))
		})
	}
	group.Wait()
	if n := count.Load(); n != int64(steps(t)) {
		t.Errorf("%d steps were applied, want each once", n)
	}
	checkApplied(t, url)
}

func TestMigrateWithoutADatabase(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://localhost:port/x", "postgres://fairlead@127.0.0.1:1/nothing?sslmode=disable&connect_timeout=2"} {
		if _, err := Migrate(t.Context(), url); err == nil {
			t.Errorf("migrated %s", url)
		}
		if _, err := MigrationStatus(t.Context(), url); err == nil {
			t.Errorf("the status of %s", url)
		}
	}
}
