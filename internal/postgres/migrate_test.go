package postgres

import (
	"context"
	_ "embed"
	"errors"
	"io/fs"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

//go:embed testdata/step20.sql
var step20 string

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
		if m.AppliedAt == nil || m.AppliedAt.IsZero() || i > 0 && m.Version <= status[i-1].Version || m.Name == "" {
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

// TestMigrateFromBeforeTheFirstRelease: a database that the twenty earlier steps made has the same schema as a new one, and one
// that lacks some of them is refused.
func TestMigrateFromBeforeTheFirstRelease(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Functions, pgkit.Deferrable)
	load := func(more string) string {
		url := pgtest.NewDatabase(t, nil)
		conn := pgtest.Connect(t, url)
		testwait.Must(t, testwait.Err(conn.Exec(t.Context(), step20+more, pgx.QueryExecModeSimpleProtocol)))
		return url
	}
	old, fresh := load(`
		INSERT INTO public.auctions (id, title, status, currency, seller, current_round, min_bid, min_increment, snipe_window, snipe_extension, snipe_max,
			cooldown, unique_amounts, total_bids, seq, version, revision, created_at)
		VALUES (gen_random_uuid(), 'a lamp', 'pending', 'EUR', 'seller', 0, 1, 1, 0, 0, 0, 0, true, 0, 0, 1, gen_random_uuid(), now())`), pgtest.NewDatabase(t, nil)
	if applied, err := Migrate(t.Context(), old); err != nil || len(applied) != steps(t)-1 {
		t.Fatalf("applied %+v, %v", applied, err)
	}
	testwait.Must(t, testwait.Err(Migrate(t.Context(), fresh)))
	checkApplied(t, old)
	if got := ask[string](t, open(t, Options{URL: old}), `SELECT format('%s %s %s', seen_campaigns, seen_auctions, seen_multidraws) FROM log_state`); got != "0 1 0" {
		t.Errorf("the log begins behind %s, not behind the one auction that was there", got)
	}
	got, want := describe(t, old), describe(t, fresh)
	if len(want) < 500 || !slices.Equal(got, want) {
		t.Errorf("the old database has %d things and a new one %d", len(got), len(want))
		for _, line := range slices.Concat(got, want) {
			if slices.Contains(got, line) != slices.Contains(want, line) {
				t.Errorf("in the new one %t: %s", slices.Contains(want, line), line)
			}
		}
	}
	older := load("DELETE FROM public.goose_db_version WHERE version_id > 13")
	if _, err := Migrate(t.Context(), older); !errors.Is(err, ErrTooOld) || !strings.Contains(err.Error(), "13") {
		t.Errorf("a database at step 13: %v", err)
	}
}

// TestStatusOfANewerSchema names steps that only a newer version knows.
func TestStatusOfANewerSchema(t *testing.T) {
	t.Parallel()
	url := database(t)
	exec(t, open(t, Options{URL: url}), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, true)`)
	status, err := MigrationStatus(t.Context(), url)
	testwait.Must(t, err)
	if n := steps(t); len(status) != n+1 || status[n].Version != 999 || status[n].Name != newerStep || status[n].AppliedAt == nil {
		t.Errorf("%+v", status)
	}
}

// TestASilentDatabase: migrations don't wait for one that takes a connection and says nothing.
func TestASilentDatabase(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	testwait.Must(t, err)
	defer func() { _ = silent.Close() }()
	url := "postgres://nobody@" + silent.Addr().String() + "/fairlead?sslmode=disable"
	if _, err := MigrationStatus(t.Context(), url); !pgconn.Timeout(err) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("its migrations: %v", err)
	}
}

// describe lists what a database's schema has: columns, constraints, indexes, functions and views.
func describe(t *testing.T, url string) []string {
	t.Helper()
	db := open(t, Options{URL: url})
	rows, err := db.pool.Query(t.Context(), `
		SELECT format('column %s.%s %s %s %s %s %s', c.oid::regclass, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
			a.attidentity, a.attstorage, pg_get_expr(d.adbin, d.adrelid))
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v') AND a.attnum > 0 AND NOT a.attisdropped
		UNION ALL SELECT format('table %s %s %s', oid::regclass, reloptions, relreplident) FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')
		UNION ALL SELECT format('constraint %s %s %s %s', conrelid::regclass, conname, convalidated, pg_get_constraintdef(oid)) FROM pg_constraint
		WHERE connamespace = 'public'::regnamespace
		UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = 'public'
		UNION ALL SELECT format('function %s %s %s %s', proname, pg_get_function_arguments(oid), proconfig, prosrc) FROM pg_proc
		WHERE pronamespace = 'public'::regnamespace
		UNION ALL SELECT format('view %s %s', viewname, definition) FROM pg_views WHERE schemaname = 'public'
		ORDER BY 1`)
	testwait.Must(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	testwait.Must(t, err)
	return lines
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
			testwait.Check(t, err)
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

// TestMigrateInOneSchema: a schema that somebody makes in front of the tables' is not filled with empty ones.
func TestMigrateInOneSchema(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	execAll(t, db, `CREATE SCHEMA before`, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = before, public', current_database()); END $$`)
	_, err := Migrate(t.Context(), db.url)
	if !errors.Is(err, ErrOtherSchema) || !strings.Contains(err.Error(), `in "public"`) || !strings.Contains(err.Error(), "(before, public)") {
		t.Errorf("Migrate: %v", err)
	}
	if n := ask[int](t, db, `SELECT count(*) FROM pg_class WHERE relnamespace = 'before'::regnamespace`); n > 0 {
		t.Errorf("%d relations were made in front of the others", n)
	}
	exec(t, db, `DROP SCHEMA before`)
	if applied, err := Migrate(t.Context(), db.url); err != nil || len(applied) > 0 {
		t.Errorf("without it: %v, %v", applied, err)
	}
}
