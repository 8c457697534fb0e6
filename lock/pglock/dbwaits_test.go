package pglock

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestAdvisoryKeyIsStable(t *testing.T) {
	t.Parallel()
	p := pool(t, database(t))
	for name, want := range map[string]int64{
		"":          -2039914840885289964,
		"invoice/7": -5781043316014161609,
		"Ärger ✓":   6864539507192760370,
	} {
		if got := AdvisoryKey(name); got != want {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
		var sql int64
		if err := p.QueryRow(t.Context(),
			`SELECT ('x' || substr(encode(sha256(convert_to($1, 'UTF8')), 'hex'), 1, 16))::bit(64)::bigint`, name).Scan(&sql); err != nil || sql != want {
			t.Errorf("%q: %d in SQL, %v; want %d", name, sql, err, want)
		}
	}
}

// TestAdvisoryLocks holds names in one transaction and asks for them in others.
func TestAdvisoryLocks(t *testing.T) {
	t.Parallel()
	p := pool(t, database(t))
	begin := func() pgx.Tx {
		t.Helper()
		tx, err := p.Begin(t.Context())
		testwait.Must(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		return tx
	}
	try := func(tx pgx.Tx, want bool, name string) {
		t.Helper()
		var got bool
		if err := tx.QueryRow(t.Context(), `SELECT pg_try_advisory_xact_lock($1)`, AdvisoryKey(name)).Scan(&got); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", name, got, err, want)
		}
	}
	first, second := begin(), begin()
	testwait.Must(t, AdvisoryXactLock(t.Context(), first, "b", "a", "b"))
	try(second, false, "a")
	try(second, false, "b")
	try(second, true, "c")
	testwait.Must(t, first.Commit(t.Context()))
	try(second, true, "a")
	testwait.Must(t, second.Rollback(t.Context()))
	// Opposing orders.
	var all sync.WaitGroup
	for i := range 4 {
		names := []string{"x", "y", "z"}
		if i%2 == 1 {
			names = []string{"z", "y", "x"}
		}
		all.Go(func() {
			for range 20 {
				testwait.Check(t, pgx.BeginFunc(t.Context(), p, func(tx pgx.Tx) error { return AdvisoryXactLock(t.Context(), tx, names...) }))
			}
		})
	}
	all.Wait()
}

// TestDatabaseWaits makes two sessions wait for a third, one behind the other.
func TestDatabaseWaits(t *testing.T) {
	t.Parallel()
	url := database(t)
	p, look := pool(t, url), pool(t, url)
	if _, err := p.Exec(t.Context(), `CREATE TABLE things (id int PRIMARY KEY, n int); INSERT INTO things VALUES (1, 0)`); err != nil {
		t.Fatal(err)
	}
	if got, err := DatabaseWaits(t.Context(), look); err != nil || len(got) != 0 {
		t.Fatalf("before: %+v, %v", got, err)
	}
	holder, err := p.Begin(t.Context())
	testwait.Must(t, err)
	defer func() { _ = holder.Rollback(context.Background()) }()
	testwait.Must(t, testwait.Err(holder.Exec(t.Context(), `UPDATE things SET n = 1`)))
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			testwait.Check(t, testwait.Err(p.Exec(t.Context(), `UPDATE things SET n = n + 1 WHERE id = $1`, 1)))
		})
	}
	all.Go(func() {
		err := pgx.BeginFunc(t.Context(), p, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `LOCK TABLE things IN ACCESS EXCLUSIVE MODE`)
			return err
		})
		testwait.Check(t, err)
	})
	var seen []DatabaseWait
	waitFor(t, "three sessions wait", func() bool {
		seen, err = DatabaseWaits(t.Context(), look)
		return err != nil || len(seen) == 3
	})
	testwait.Must(t, err)
	pid := int32(holder.Conn().PgConn().PID())
	relation := false
	for i, w := range seen {
		if len(w.Blockers) == 0 || w.Since.IsZero() || w.Mode == "" || w.Statement == "" || i > 0 && w.Since.Before(seen[i-1].Since) {
			t.Errorf("%+v", w)
		}
		if w.Kind == "relation" && w.Relation == "things" && strings.HasPrefix(w.Statement, "LOCK TABLE") {
			relation = true
		}
	}
	if first := seen[0].Blockers; len(first) == 0 || first[0].PID != pid || first[0].State != "idle in transaction" || first[0].TransactionSince.IsZero() {
		t.Errorf("the first waits for %+v, and %d holds", first, pid)
	}
	if !relation {
		t.Errorf("nobody waits for the table: %+v", seen)
	}
	testwait.Must(t, holder.Rollback(t.Context()))
	all.Wait()
}
