package claim_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/claim"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// bulkTable has rows that are claimed many at a time.
type bulkTable struct {
	*testing.T

	env    *env
	table  claim.Table
	claims *claim.Claims[int64]
}

func newBulkTable(t *testing.T, timeType string) *bulkTable {
	t.Helper()
	b := &bulkTable{T: t, env: newEnv(t), table: claim.Table{
		Name: "app.rows", Ready: "status = 'scheduled'", Due: "due_at", TimeType: timeType,
		OnClaim: "status = 'running'", OnFinish: "status = 'completed'", OnFail: "status = 'scheduled'",
	}}
	b.claims = claim.Must[int64](b.table)
	b.exec(fmt.Sprintf(`CREATE TABLE app.rows (id bigint PRIMARY KEY, status text NOT NULL DEFAULT 'scheduled', due_at %s NOT NULL)`, timeType))
	b.exec(b.table.DDL())
	for _, index := range b.table.Indexes() {
		b.exec(index)
	}
	return b
}

func (b *bulkTable) exec(sql string) {
	b.Helper()
	testwait.Must(b.T, testwait.Err(b.env.pool.Exec(b.Context(), sql)))
}

// claim claims due rows, of which there are so many.
func (b *bulkTable) claim(limit, want int) (claimed []claim.Claim[int64]) {
	b.Helper()
	claimed, err := b.claims.ClaimDue(b.Context(), b.env.pool, limit)
	if err != nil || len(claimed) != want {
		b.Fatalf("claimed %d rows, want %d: %v", len(claimed), want, err)
	}
	return claimed
}

// TestBulkClaimsBesideALongSnapshot claims and finishes rows while somebody holds a snapshot, so that PostgreSQL may remove no entry of the index of claimable rows.
// A claim in bulk meets few of them.
func TestBulkClaimsBesideALongSnapshot(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowVersions)
	b := newBulkTable(t, "timestamptz")
	b.exec(`INSERT INTO app.rows SELECT n, 'scheduled', clock_timestamp() - interval '1 hour' + n * interval '1 millisecond' FROM generate_series(1, 6000) AS n`)
	reader, err := b.env.pool.Begin(t.Context())
	testwait.Must(t, err)
	defer func() { testwait.Check(t, reader.Rollback(t.Context())) }()
	testwait.Must(t, testwait.Err(reader.Exec(t.Context(), `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT FROM app.rows LIMIT 1`)))
	const batch = 200
	met := func(limit int) (entries int64) {
		testwait.Must(t, pgx.BeginFunc(t.Context(), b.env.pool, func(tx pgx.Tx) error {
			var counted [2]int64 // The count has earlier transactions of the session in it, too.
			for i := range counted {
				testwait.Must(t, tx.QueryRow(t.Context(), `SELECT pg_stat_get_xact_tuples_returned('app.rows_claimable'::regclass)`).Scan(&counted[i]))
				if i > 0 {
					break
				}
				if got, err := b.claims.ClaimDue(t.Context(), tx, limit); err != nil || len(got) != limit {
					t.Fatalf("%d rows, %v", len(got), err)
				}
			}
			entries = counted[1] - counted[0]
			return nil
		}))
		return entries
	}
	for range 4000 / batch {
		claimed := b.claim(batch, batch)
		if lost, err := b.claims.FinishAll(t.Context(), b.env.pool, claimed...); err != nil || len(lost) > 0 {
			t.Fatalf("%v, %v", lost, err)
		}
	}
	// A look from the beginning is made each second, perhaps just now, and not again and again.
	few := met(batch)
	for try := 0; few > 2*batch && try < 8; try++ {
		few = met(batch)
	}
	if all := met(batch / 4); few > 2*batch || all < 4000 {
		t.Errorf("a claim in bulk meets %d entries, one from the beginning %d", few, all)
	}
}

// TestBulkClaimsMissNothing has rows put back, and inserted with an earlier time, behind a claim in bulk.
func TestBulkClaimsMissNothing(t *testing.T) {
	t.Parallel()
	for _, timeType := range []string{"timestamptz", "timestamp"} {
		t.Run(timeType, func(t *testing.T) {
			t.Parallel()
			b := newBulkTable(t, timeType)
			b.exec(`INSERT INTO app.rows SELECT n, 'scheduled', clock_timestamp() AT TIME ZONE 'UTC' - interval '1 day' + n * interval '1 millisecond' FROM generate_series(1, 500) AS n`)
			first := b.claim(100, 100)
			for _, c := range first {
				if c.ID > 100 {
					t.Fatalf("row %d before earlier ones", c.ID)
				}
			}
			lost, err := b.claims.FailAll(t.Context(), b.env.pool, first[:50]...)
			if err != nil || len(lost) > 0 {
				t.Fatalf("%v, %v", lost, err)
			}
			b.exec(`INSERT INTO app.rows VALUES (501, 'scheduled', '2001-01-01'), (502, 'scheduled', '-infinity')`)
			// All are claimed, in whatever order, and a claim of nothing says that there is nothing.
			had := map[int64]int{}
			for left := 452; left > 0; {
				claimed, err := b.claims.ClaimDue(t.Context(), b.env.pool, 100)
				if err != nil || len(claimed) == 0 {
					t.Fatalf("%d rows are left, and a claim has %d: %v", left, len(claimed), err)
				}
				for _, c := range claimed {
					had[c.ID]++
				}
				left -= len(claimed)
			}
			b.claim(100, 0)
			if len(had) != 452 {
				t.Errorf("%d different rows", len(had))
			}
			for id := range maps.Keys(had) {
				if had[id] != 1 {
					t.Errorf("row %d was claimed %d times", id, had[id])
				}
			}
			b.exec(`INSERT INTO app.rows VALUES (503, 'scheduled', '2001-01-01')`)
			b.claim(100, 1)
		})
	}
}

// TestBulkClaimsComeBack: a row that is put back is claimed within about a second although later ones are always there.
func TestBulkClaimsComeBack(t *testing.T) {
	t.Parallel()
	b := newBulkTable(t, "timestamptz")
	b.exec(`INSERT INTO app.rows SELECT n, 'scheduled', clock_timestamp() - interval '1 day' + n * interval '1 millisecond' FROM generate_series(1, 300) AS n`)
	first := b.claim(100, 100)
	testwait.Must(t, testwait.Err(b.claims.FailAll(t.Context(), b.env.pool, first[0])))
	next := 1000
	testwait.Eventually(t, time.Minute, "the row that was put back is claimed", func() bool {
		b.exec(fmt.Sprintf(`INSERT INTO app.rows SELECT n, 'scheduled', clock_timestamp() FROM generate_series(%d, %d) AS n`, next, next+199))
		next += 200
		for _, c := range b.claim(100, 100) {
			if c.ID == first[0].ID {
				return true
			}
		}
		return false
	})
}

// secondFails is a pool whose second query fails.
type secondFails struct {
	*pgxpool.Pool

	queries int
}

var errSecond = errors.New("the second query")

func (s *secondFails) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if s.queries++; s.queries == 2 {
		return nil, errSecond
	}
	return s.Pool.Query(ctx, sql, args...)
}

// TestBulkClaimsKeepWhatTheyHave: where the look from the beginning fails, the caller gets the rows that the look before it has claimed.
func TestBulkClaimsKeepWhatTheyHave(t *testing.T) {
	t.Parallel()
	b := newBulkTable(t, "timestamptz")
	b.exec(`INSERT INTO app.rows SELECT n, 'scheduled', clock_timestamp() - interval '1 day' + n * interval '1 millisecond' FROM generate_series(1, 100) AS n`)
	for {
		b.claim(100, 100)
		b.exec(`DELETE FROM app.rows; INSERT INTO app.rows SELECT n, 'scheduled', clock_timestamp() - interval '1 hour' FROM generate_series(1, 50) AS n`)
		db := &secondFails{Pool: b.env.pool}
		claimed, err := b.claims.ClaimDue(t.Context(), db, 100)
		if err != nil || len(claimed) != 50 {
			t.Fatalf("%d rows, %v", len(claimed), err)
		}
		if db.queries == 2 {
			return
		}
		// More than a second had passed, so that the first look was one from the beginning.
		b.exec(`DELETE FROM app.rows; INSERT INTO app.rows SELECT n, 'scheduled', clock_timestamp() - interval '1 day' FROM generate_series(1, 100) AS n`)
	}
}
