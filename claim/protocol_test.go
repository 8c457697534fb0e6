package claim_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/claim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// protocol reads the statements of the page on the protocol, by the comments that name them.
func protocol(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../docs/design/claim.md")
	testwait.Must(t, err)
	statements := map[string]string{}
	for _, block := range strings.Split(string(page), "```sql\n-- ")[1:] {
		name, rest, _ := strings.Cut(block, "\n")
		sql, _, closed := strings.Cut(rest, "```")
		if _, twice := statements[name]; twice || !closed {
			t.Fatalf("the block %q is there twice, or does not end", name)
		}
		statements[name] = sql
	}
	for _, name := range []string{"table", "indexes", "claim one", "claim many", "claimed under", "heartbeat", "finish", "fail", "release stale"} {
		if statements[name] == "" {
			t.Fatalf("the page has no statement %q", name)
		}
		if name != "table" && name != "indexes" {
			statements[name] = strings.TrimSuffix(strings.TrimSpace(statements[name]), ";")
		}
	}
	return statements
}

// worker follows the page, as a program in another language would: every parameter is text or a number, and nothing is of the package.
type worker struct {
	*prisma

	sql map[string]string
}

type row struct {
	ID      string
	Version int32
}

func (w *worker) rows(db claim.DB, name string, args ...any) []row {
	w.Helper()
	rows, err := db.Query(w.Context(), w.sql[name], args...)
	testwait.Check(w, err)
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	testwait.Check(w, err)
	return got
}

// holds runs a statement under a claim, and reports whether the claim was in force.
func (w *worker) holds(name, id, lock string, version int32) bool {
	w.Helper()
	tag, err := w.pool.Exec(w.Context(), w.sql[name], id, lock, version)
	testwait.Check(w, err)
	return tag.RowsAffected() == 1
}

func newWorker(t *testing.T, n int) *worker {
	t.Helper()
	w := &worker{prisma: newPrisma(t, deviations(), n), sql: protocol(t)}
	w.exec(w.sql["indexes"])
	return w
}

// TestProtocolsTable: the page's table is the one that Prisma makes.
func TestProtocolsTable(t *testing.T) {
	t.Parallel()
	w := newWorker(t, 0)
	columns := func(db claim.DB) string {
		rows, err := db.Query(t.Context(), `SELECT string_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod), attnotnull), ', ' ORDER BY attnum)
			FROM pg_attribute WHERE attrelid = '"Deviation"'::regclass AND attnum > 0`)
		testwait.Must(t, err)
		got, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
		testwait.Must(t, err)
		return got
	}
	prismas := columns(w.pool)
	err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `DROP TABLE "Deviation"; DROP TYPE "Status"; `+w.sql["table"]); err != nil {
			return err
		}
		if got := columns(tx); got != prismas {
			t.Errorf("the page's table is %s, Prisma's is %s", got, prismas)
		}
		return nil
	})
	testwait.Check(t, err)
}

// TestProtocol takes one row through the page's statements.
func TestProtocol(t *testing.T) {
	t.Parallel()
	w := newWorker(t, 3)
	lock, other := uuid.NewString(), uuid.NewString()
	if got := w.rows(w.pool, "claim one", "cm1", lock); len(got) != 1 || got[0] != (row{"cm1", 1}) {
		t.Fatalf("%v", got)
	}
	if got := w.rows(w.pool, "claim one", "cm1", other); len(got) != 0 {
		t.Errorf("claimed twice: %v", got)
	}
	if got := w.rows(w.pool, "claimed under", lock); len(got) != 1 {
		t.Errorf("found %v", got)
	}
	if !w.holds("heartbeat", "cm1", lock, 1) || w.holds("heartbeat", "cm1", other, 1) || w.holds("heartbeat", "cm1", lock, 2) {
		t.Error("a heartbeat does not tell whether the claim is in force")
	}
	if got := w.rows(w.pool, "release stale", "1 minute", 10); len(got) != 0 {
		t.Errorf("released %v", got)
	}
	w.exec(`UPDATE "Deviation" SET "executionLockedAt" = "executionLockedAt" - interval '2 minutes' WHERE "id" = 'cm1'`)
	if got := w.rows(w.pool, "release stale", "1 minute", 10); len(got) != 1 || got[0] != (row{"cm1", 1}) {
		t.Errorf("released %v", got)
	}
	if w.holds("heartbeat", "cm1", lock, 1) || w.holds("finish", "cm1", lock, 1) || w.holds("fail", "cm1", lock, 1) {
		t.Error("a lost claim is in force")
	}
	w.want("cm1", "scheduled 1 f f")
	if got := w.rows(w.pool, "claim many", other, 2); len(got) != 2 || got[0].ID == got[1].ID {
		t.Fatalf("%v", got)
	}
	if w.holds("finish", "cm1", lock, 1) || !w.holds("finish", "cm1", other, 2) || w.holds("finish", "cm1", other, 2) || !w.holds("fail", "cm2", other, 1) {
		t.Error("a finish or a failure is not held to its claim")
	}
	w.want("cm1", "published 2 f f")
	w.want("cm2", "failed 1 f f")
	w.want("cm3", "scheduled 0 f f")
	// A claim that was written while the clock was ahead.
	w.rows(w.pool, "claim one", "cm3", lock)
	w.exec(`UPDATE "Deviation" SET "executionLockedAt" = "executionLockedAt" + interval '1 hour' WHERE "id" = 'cm3'`)
	if got := w.rows(w.pool, "release stale", "1 hour", 10); len(got) != 0 {
		t.Errorf("a claim from later than now is released: %v", got)
	}
	var ahead bool
	testwait.Must(t, w.pool.QueryRow(t.Context(), `SELECT "executionLockedAt" > clock_timestamp() AT TIME ZONE 'UTC' FROM "Deviation" WHERE "id" = 'cm3'`).Scan(&ahead))
	if ahead || !w.holds("heartbeat", "cm3", lock, 1) {
		t.Error("the sweep leaves the claim's time ahead, or takes the claim")
	}
	testwait.Eventually(t, patience, "it goes stale", func() bool { return len(w.rows(w.pool, "release stale", "100 milliseconds", 10)) == 1 })
}

// TestProtocolIsShared has workers that follow the page and workers that use the package on one table, while rows go stale and are
// released: no row has two claims of one version, and each is finished once, by the claim of its last version.
func TestProtocolIsShared(t *testing.T) {
	t.Parallel()
	const rows, workers = 300, 6
	w := newWorker(t, rows)
	type key struct {
		id      string
		version int64
	}
	var (
		mu       sync.Mutex
		claimed  = map[key]bool{}
		finished = map[string]int64{}
		group    sync.WaitGroup
	)
	took := func(id string, version int64) {
		mu.Lock()
		defer mu.Unlock()
		if claimed[key{id, version}] {
			t.Errorf("row %s has two claims of version %d", id, version)
		}
		claimed[key{id, version}] = true
	}
	done := func(id string, version int64) {
		mu.Lock()
		defer mu.Unlock()
		if finished[id] != 0 {
			t.Errorf("row %s is finished twice, under %d and %d", id, finished[id], version)
		}
		finished[id] = version
	}
	left := func() (n int) {
		testwait.Check(t, w.pool.QueryRow(t.Context(), `SELECT count(*) FROM "Deviation" WHERE "status" = 'scheduled'`).Scan(&n))
		return n
	}
	// Every third claim is abandoned, as by a worker that died.
	abandoned := func(n int) bool { return n%3 == 2 }
	byThePage := func(n int) {
		lock := uuid.NewString()
		for _, r := range w.rows(w.pool, "claim many", lock, 5) {
			took(r.ID, int64(r.Version))
			if !abandoned(n) && w.holds("heartbeat", r.ID, lock, r.Version) && w.holds("finish", r.ID, lock, r.Version) {
				done(r.ID, int64(r.Version))
			}
		}
		w.rows(w.pool, "release stale", "200 milliseconds", 100)
	}
	byThePackage := func(n int) {
		got, err := w.claims.ClaimDue(t.Context(), w.pool, 5)
		testwait.Check(t, err)
		for _, c := range got {
			took(c.ID, c.Version)
			if abandoned(n) {
				continue
			}
			if err := w.claims.Finish(t.Context(), w.pool, c, nil); err == nil {
				done(c.ID, c.Version)
			} else if !errors.Is(err, claim.ErrLost) {
				t.Error(err)
			}
		}
		testwait.Check(t, testwait.Err(w.claims.ReleaseStale(t.Context(), w.pool, 200*time.Millisecond, 100)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	for i := range workers {
		group.Go(func() {
			for n := i; left() > 0 && ctx.Err() == nil && !t.Failed(); n++ {
				if i%2 == 0 {
					byThePage(n)
				} else {
					byThePackage(n)
				}
			}
		})
	}
	group.Wait()
	if n := left(); n > 0 {
		t.Fatalf("%d rows are left", n)
	}
	for i := range rows {
		id := fmt.Sprint("cm", i+1)
		var version int64
		testwait.Must(t, w.pool.QueryRow(t.Context(), `SELECT "executionVersion" FROM "Deviation" WHERE "id" = $1 AND "status" = 'published'`, id).Scan(&version))
		if finished[id] != version {
			t.Errorf("row %s was finished under version %d, and has %d", id, finished[id], version)
		}
	}
	t.Logf("%d claims of %d rows", len(claimed), rows)
}
