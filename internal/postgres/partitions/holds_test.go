package partitions_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// withHolds makes a database in which 300 accounts have an open hold and two closed ones each, and one account has 150 open ones, one of them of an auction.
func withHolds(ctx context.Context, url string) error {
	if _, err := postgres.Migrate(ctx, url); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = pool.Exec(ctx, `
		INSERT INTO accounts SELECT 'a' || a, 'SIM', 100, 5, 1, now() FROM generate_series(1, 300) AS a;
		INSERT INTO accounts VALUES ('many', 'SIM', 1000, 150, 1, now());
		INSERT INTO hold_rows (id, account, amount, captured, status, created_at, closed_at, transfer)
			SELECT gen_random_uuid(), 'a' || a, 5, CASE k WHEN 1 THEN 4 ELSE 0 END, (ARRAY['open', 'captured', 'released'])[k + 1], now(),
				CASE WHEN k > 0 THEN now() END, CASE k WHEN 1 THEN gen_random_uuid() END
			FROM generate_series(1, 300) AS a, generate_series(0, 2) AS k;
		INSERT INTO hold_rows (id, account, amount, captured, status, expires_at, created_at)
			SELECT gen_random_uuid(), 'many', 1, 0, 'open', now() + interval '1 day', now() FROM generate_series(1, 149);
		INSERT INTO hold_rows (id, account, captured, status, created_at, owner) VALUES (gen_random_uuid(), 'many', 0, 'open', now(), 'auction:' || gen_random_uuid());
		INSERT INTO auction_standing SELECT auction, account, 1, NULL, 1, 1, now(), id, true FROM hold_rows WHERE auction IS NOT NULL;
		ALTER TABLE hold_rows SET (autovacuum_vacuum_scale_factor = 0.3);
		GRANT SELECT ON hold_rows TO PUBLIC;`)
	return err
}

func newHolds(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pgtest.Needs(t, pgkit.Partitions)
	pool, err := pgxpool.New(t.Context(), pgtest.NewDatabase(t, withHolds))
	testwait.Must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// begin begins a transaction that ends with the test.
func begin(t *testing.T, db *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := db.Begin(t.Context())
	testwait.Must(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }) // The pool waits for it.
	return tx
}

// nextMonth is a time at which the next turn is due.
func nextMonth() time.Time { return time.Now().AddDate(0, 1, 3) }

// allHolds tells the holds, in both forms of the view, and what is in each table.
const (
	allHolds = `SELECT coalesce(string_agg(h::text, ' ' ORDER BY id), '') FROM holds AS h`
	openOnes = `SELECT coalesce(string_agg(h::text, ' ' ORDER BY id), '') FROM current_holds AS h WHERE status = 'open'`
	// shape is what must be the same of each hold_rows.
	shape = `SELECT concat_ws(' ', (SELECT string_agg(pg_get_indexdef(indexrelid), ' ' ORDER BY indexrelid::regclass::text) FROM pg_index WHERE indrelid = c.oid),
			(SELECT string_agg(conname || pg_get_constraintdef(oid), ' ' ORDER BY conname) FROM pg_constraint WHERE conrelid = c.oid),
			(SELECT string_agg(concat_ws(' ', attname, atttypid::regtype, attnotnull, attgenerated, attcollation::regcollation), ' ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0),
			reloptions, relacl) FROM pg_class AS c WHERE oid = 'hold_rows'::regclass`
)

// TestTurnHolds turns the table of holds twice. No hold is lost, doubled or changed, and the table is what it was.
func TestTurnHolds(t *testing.T) {
	t.Parallel()
	db := newHolds(t)
	before, open, was := ask[string](t, db, allHolds), ask[string](t, db, openOnes), ask[string](t, db, shape)
	if n, err := partitions.TurnHolds(t.Context(), db, time.Now()); err != nil || n != 0 {
		t.Fatalf("in the month of the migration: %d, %v", n, err)
	}
	if n, err := partitions.TurnHolds(t.Context(), db, nextMonth()); err != nil || n != 1 {
		t.Fatalf("in the next month: %d, %v", n, err)
	}
	want(t, "all holds", ask[string](t, db, allHolds), before)
	want(t, "the open ones", ask[string](t, db, openOnes), open)
	want(t, "the table", ask[string](t, db, shape), was)
	want(t, "parts of hold_rows are looked for", ask[bool](t, db, `SELECT relhassubclass FROM pg_class WHERE oid = 'hold_rows'::regclass`), false)
	want(t, "in hold_rows", ask[int](t, db, `SELECT count(*) FROM hold_rows`), 450)
	want(t, "in closed_holds", ask[int](t, db, `SELECT count(*) FROM closed_holds`), 600)
	want(t, "closed ones that moved", ask[int](t, db, `SELECT count(*) FROM hold_rows WHERE status <> 'open'`), 0)
	if _, err := db.Exec(t.Context(), `UPDATE closed_holds SET status = 'open', closed_at = NULL, captured = 0 WHERE account = 'a7'`); pgkit.Code(err) != "23514" {
		t.Errorf("a hold that was opened again: %v", err)
	}

	exec(t, db, `UPDATE hold_rows SET status = 'released', closed_at = now() WHERE account = 'a7'; UPDATE hold_turns SET settled_at = settled_at - interval '40 days'`)
	if n, err := partitions.TurnHolds(t.Context(), db, time.Now()); err != nil || n != 1 {
		t.Fatalf("a month later: %d, %v", n, err)
	}
	want(t, "the table after two turns", ask[string](t, db, shape), was)
	want(t, "of the second turn", ask[int](t, db, `SELECT count(*) FROM closed_holds_2`), 1)
	turns, err := partitions.Settled(t.Context(), db)
	if err != nil || len(turns) != 2 || turns[0].Table() != "closed_holds_1" || !turns[1].SettledAt.After(*turns[0].SettledAt) {
		t.Errorf("the turns: %+v, %v", turns, err)
	}
	if n, err := partitions.TurnHolds(t.Context(), db, time.Now()); err != nil || n != 0 {
		t.Errorf("once more: %d, %v", n, err)
	}
}

// TestTurnsAtOnce has several processes turn the table, while others place and close holds as the ledger does, and read them. None ever sees a hold twice, or
// misses one.
func TestTurnsAtOnce(t *testing.T) {
	t.Parallel()
	db := newHolds(t)
	ctx, stop := context.WithCancel(t.Context())
	var all, turning sync.WaitGroup
	var placed [3]int
	for who := range placed {
		all.Go(func() {
			for ctx.Err() == nil {
				id, account := uuid.New(), fmt.Sprintf("a%d", who+1)
				tx, err := db.Begin(t.Context())
				testwait.Check(t, err)
				for _, sql := range []string{
					fmt.Sprintf(`SELECT FROM accounts WHERE id = '%s' FOR NO KEY UPDATE`, account),
					fmt.Sprintf(`INSERT INTO hold_rows (id, account, amount, captured, status, created_at) VALUES ('%s', '%s', 1, 0, 'open', now())`, id, account),
				} {
					_, err := tx.Exec(t.Context(), sql)
					testwait.Check(t, err)
				}
				testwait.Check(t, tx.Commit(t.Context()))
				placed[who]++
				tx, err = db.Begin(t.Context())
				testwait.Check(t, err)
				_, err = tx.Exec(t.Context(), `SELECT FROM accounts WHERE id = $1 FOR NO KEY UPDATE`, account)
				testwait.Check(t, err)
				tag, err := tx.Exec(t.Context(), `UPDATE hold_rows AS h SET status = 'released', closed_at = now() WHERE h.id = ANY (ARRAY[$1::uuid]) AND h.closed_at IS NULL`, id)
				if err != nil || tag.RowsAffected() != 1 {
					t.Errorf("%d of 1 hold was closed: %v", tag.RowsAffected(), err)
					return
				}
				testwait.Check(t, tx.Commit(t.Context()))
			}
		})
	}
	all.Go(func() {
		for ctx.Err() == nil {
			var held, twice int
			err := db.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE account = 'many' OR account > 'a4'), count(*) - count(DISTINCT id) FROM holds`).Scan(&held, &twice)
			if err != nil || twice != 0 || held != ask[int](t, db, `SELECT count(*) FROM holds WHERE account = 'many' OR account > 'a4'`) {
				t.Errorf("a reader saw %d holds, %d of them twice: %v", held, twice, err)
				return
			}
		}
	})
	for month := range 3 {
		for range 3 {
			turning.Go(func() {
				for {
					_, err := partitions.TurnHolds(t.Context(), db, time.Now().AddDate(0, 0, 3))
					if code := pgkit.Code(err); code == "55P03" || code == "40P01" {
						continue
					}
					testwait.Check(t, err)
					return
				}
			})
		}
		turning.Wait()
		exec(t, db, `UPDATE hold_turns SET settled_at = settled_at - interval '40 days'`)
		_ = month
	}
	stop()
	all.Wait()
	sum := placed[0] + placed[1] + placed[2]
	want(t, "all holds", ask[int](t, db, `SELECT count(*) FROM holds`), 1050+sum)
	want(t, "open ones", ask[int](t, db, `SELECT count(*) FROM holds WHERE status = 'open'`), 450)
	if sum == 0 {
		t.Error("no hold was placed")
	}
}

// TestTurnIsInterrupted has somebody keep an open hold for long: the turn can't be settled, and everything is in its place meanwhile. The next call settles it.
func TestTurnIsInterrupted(t *testing.T) {
	t.Parallel()
	db := newHolds(t)
	before, open := ask[string](t, db, allHolds), ask[string](t, db, openOnes)
	tx := begin(t, db)
	_, err := tx.Exec(t.Context(), `SELECT FROM accounts WHERE id = 'a9' FOR NO KEY UPDATE`)
	testwait.Must(t, err)
	n, err := partitions.TurnHolds(t.Context(), db, nextMonth())
	if pgkit.Code(err) != "55P03" || n != 0 {
		t.Fatalf("beside somebody who keeps an account: %d, %v", n, err)
	}
	want(t, "open ones in the old table", ask[int](t, db, `SELECT count(*) FROM closed_holds_1 WHERE status = 'open'`), 1)
	want(t, "all holds", ask[string](t, db, allHolds), before)
	want(t, "the open ones", ask[string](t, db, openOnes), open)
	if turns, err := partitions.Settled(t.Context(), db); err != nil || len(turns) != 0 {
		t.Errorf("settled: %+v, %v", turns, err)
	}
	if _, err := tx.Exec(t.Context(), `UPDATE hold_rows SET status = 'released', closed_at = now() WHERE account = 'a9' AND closed_at IS NULL`); err != nil {
		t.Errorf("whoever keeps the account closes its hold: %v", err)
	}
	testwait.Must(t, tx.Commit(t.Context()))
	if n, err := partitions.TurnHolds(t.Context(), db, time.Now()); err != nil || n != 1 {
		t.Fatalf("afterwards: %d, %v", n, err)
	}
	want(t, "in closed_holds", ask[int](t, db, `SELECT count(*) FROM closed_holds`), 601)

	// A table that somebody reads for long is not turned: commands do not wait behind it.
	tx = begin(t, db)
	_, err = tx.Exec(t.Context(), `SELECT count(*) FROM hold_rows`)
	testwait.Must(t, err)
	exec(t, db, `UPDATE hold_turns SET settled_at = settled_at - interval '40 days'`)
	if n, err := partitions.TurnHolds(t.Context(), db, time.Now()); pgkit.Code(err) != "55P03" || n != 0 || ask[int](t, db, `SELECT max(number) FROM hold_turns`) != 1 {
		t.Errorf("beside a reader: %d, %v", n, err)
	}
}
