package partitions_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// inOnePiece makes the tables as they were before they had partitions.
func inOnePiece(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `
		CREATE TABLE entries (account text COLLATE "C" NOT NULL, id uuid NOT NULL, version bigint NOT NULL, amount bigint NOT NULL CHECK (amount <> 0),
			memo text NOT NULL DEFAULT '', PRIMARY KEY (account, version, id));
		CREATE TABLE transfers (id uuid PRIMARY KEY, status text NOT NULL CHECK (status IN ('pending', 'completed')));
		CREATE INDEX transfers_not_completed ON transfers (status, id) WHERE status <> 'completed';
		CREATE TABLE auction_bids (auction uuid NOT NULL, seq bigint NOT NULL, amount bigint NOT NULL, PRIMARY KEY (auction, seq));
		CREATE TABLE auction_events (auction uuid NOT NULL, seq bigint NOT NULL, type text NOT NULL, PRIMARY KEY (auction, seq));
		CREATE TABLE audit_log (id uuid PRIMARY KEY, action text NOT NULL);
		CREATE TABLE purchases (campaign uuid NOT NULL, seq integer NOT NULL, ordinal integer NOT NULL, PRIMARY KEY (campaign, seq), UNIQUE (campaign, ordinal));
		CREATE INDEX audit_log_action ON audit_log (action, id);`)
	return errors.Join(err, conn.Close(ctx))
}

func open(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), pgtest.NewDatabase(t, inOnePiece))
	testwait.Must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func exec(t *testing.T, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func ask[T any](t *testing.T, db *pgxpool.Pool, sql string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// day is a time of the tests.
func day(month, day int) time.Time {
	return time.Date(2026, time.Month(month), day, 12, 0, 0, 0, time.UTC)
}

// names lists partitions with their bounds, as days.
func names(t *testing.T, db *pgxpool.Pool, table string) (all []string) {
	t.Helper()
	found, err := partitions.List(t.Context(), db, table)
	testwait.Must(t, err)
	for _, p := range found {
		text := p.Name
		if !p.Rest {
			text += " < " + partitions.Time(p.To).Format(time.DateOnly)
		}
		all = append(all, text)
	}
	return all
}

func want(t *testing.T, what, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestConvert puts tables with rows into partitions, several times at once, and makes the next partitions.
func TestConvert(t *testing.T) {
	t.Parallel()
	db := open(t)
	far := partitions.At(day(12, 24)) // of a clock that is a month ahead
	for i := range 100 {
		exec(t, db, `INSERT INTO entries VALUES ('ann', $1, $2, 1)`, partitions.At(day(10, 1).Add(time.Duration(i)*time.Hour)), i)
	}
	exec(t, db, `INSERT INTO transfers VALUES ($1, 'completed'), ($2, 'pending')`, partitions.At(day(10, 2)), far)
	exec(t, db, `INSERT INTO auction_bids VALUES ($1, 1, 5), ($2, 1, 5)`, partitions.At(day(10, 2)), far)
	exec(t, db, `GRANT SELECT ON transfers TO PUBLIC`)

	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				err := partitions.Convert(t.Context(), db, day(11, 20))
				if code := pgkit.Code(err); code == "55P03" || code == "40P01" {
					continue // As migrate does.
				}
				testwait.Check(t, err)
				return
			}
		})
	}
	all.Wait()
	for _, table := range partitions.Tables() {
		want(t, table, names(t, db, table), fmt.Sprintf("[%s_first < 2026-12-01 %[1]s_rest]", table))
	}
	want(t, "entries", ask[int](t, db, `SELECT count(*) FROM entries_first`), 100)
	want(t, "the row ahead", ask[string](t, db, `SELECT tableoid::regclass::text FROM transfers WHERE id = $1`, far), "transfers_rest")
	want(t, "bids ahead", ask[string](t, db, `SELECT tableoid::regclass::text FROM auction_bids WHERE auction = $1`, far), "auction_bids_rest")
	want(t, "indexes of transfers", ask[string](t, db, `SELECT string_agg(indexname, ' ' ORDER BY indexname) FROM pg_indexes WHERE tablename = 'transfers'`), "transfers_not_completed transfers_pkey")
	want(t, "constraints that were only for the change", ask[int](t, db, `SELECT count(*) FROM pg_constraint WHERE conname LIKE '%until%'`), 0)
	want(t, "the grant", ask[bool](t, db, `SELECT has_table_privilege('pg_monitor', 'transfers', 'SELECT')`), true)
	if _, err := db.Exec(t.Context(), `INSERT INTO entries VALUES ('ann', $1, 7, 1)`, partitions.At(day(10, 1).Add(7*time.Hour))); pgkit.Code(err) != "23505" {
		t.Errorf("a second entry with its key: %v", err)
	}

	for day, made := range map[time.Time]int{day(11, 22): 0} {
		n, err := partitions.Extend(t.Context(), db, day)
		testwait.Must(t, err)
		want(t, "made", n, made)
	}
	n, err := partitions.Extend(t.Context(), db, day(11, 25))
	testwait.Must(t, err)
	want(t, "made, a week before the month's end", n, len(partitions.Tables()))
	want(t, "transfers", names(t, db, "transfers"), "[transfers_first < 2026-12-01 transfers_20261201 < 2027-01-01 transfers_rest]")
	want(t, "the row ahead", ask[string](t, db, `SELECT tableoid::regclass::text FROM transfers WHERE id = $1`, far), "transfers_20261201")
	n, err = partitions.Extend(t.Context(), db, day(3, 1).AddDate(1, 0, 0)) // Nobody was there for months.
	testwait.Must(t, err)
	want(t, "made after months", n, 3*len(partitions.Tables()))
}

// TestConvertLater has a table that another version has left in one piece, months after the others were put into partitions: its rows stay where they are,
// and its partitions end where those of the others do.
func TestConvertLater(t *testing.T) {
	t.Parallel()
	db := open(t)
	exec(t, db, `ALTER TABLE purchases RENAME TO aside`)
	if err := partitions.Convert(t.Context(), db, day(3, 20)); pgkit.Code(err) != "42P01" {
		t.Fatalf("without the table: %v", err)
	}
	exec(t, db, `ALTER TABLE aside RENAME TO purchases`)
	_, err := partitions.Extend(t.Context(), db, day(6, 20))
	testwait.Must(t, err)
	for month := 3; month <= 6; month++ {
		exec(t, db, `INSERT INTO purchases VALUES ($1, 1, 1)`, partitions.At(day(month, 20)))
	}
	testwait.Must(t, partitions.Convert(t.Context(), db, day(6, 20)))
	want(t, "the others", names(t, db, "transfers"), "[transfers_first < 2026-04-01 transfers_20260401 < 2026-05-01 transfers_20260501 < 2026-06-01 transfers_20260601 < 2026-07-01 transfers_rest]")
	want(t, "purchases", names(t, db, "purchases"), "[purchases_first < 2026-07-01 purchases_rest]")
	want(t, "rows", ask[int](t, db, `SELECT count(*) FROM purchases_first`), 4)
	if _, err := db.Exec(t.Context(), `INSERT INTO purchases VALUES ($1, 2, 1)`, partitions.At(day(4, 20))); pgkit.Code(err) != "23505" {
		t.Errorf("a position sold twice: %v", err)
	}
	n, err := partitions.Extend(t.Context(), db, day(6, 25))
	testwait.Must(t, err)
	want(t, "made", n, len(partitions.Tables()))
}

// TestConvertGivesWay has a table in use while it is to be converted: commands on it go on, and the conversion says that it could not be done.
func TestConvertGivesWay(t *testing.T) {
	t.Parallel()
	db := open(t)
	exec(t, db, `INSERT INTO entries VALUES ('ann', $1, 1, 1)`, partitions.At(day(10, 1)))
	reader, err := db.Begin(t.Context())
	testwait.Must(t, err)
	_, err = reader.Exec(t.Context(), `SELECT FROM entries`)
	testwait.Must(t, err)
	if err := partitions.Convert(t.Context(), db, day(11, 20)); pgkit.Code(err) != "55P03" {
		t.Errorf("with a reader: %v", err)
	}
	exec(t, db, `INSERT INTO entries VALUES ('ann', $1, 2, 1)`, partitions.At(day(10, 2)))
	testwait.Must(t, reader.Rollback(t.Context()))
	testwait.Must(t, partitions.Convert(t.Context(), db, day(12, 20))) // A later month: what the first one left is for another bound.
	want(t, "entries", names(t, db, "entries"), "[entries_first < 2027-01-01 entries_rest]")
	want(t, "rows", ask[int](t, db, `SELECT count(*) FROM entries`), 2)
	want(t, "constraints that were only for the change", ask[int](t, db, `SELECT count(*) FROM pg_constraint WHERE conname LIKE '%until%'`), 0)
}

func TestTimes(t *testing.T) {
	t.Parallel()
	for _, at := range []time.Time{day(1, 1), time.UnixMilli(0).UTC(), time.UnixMilli(1<<48 - 1).UTC()} {
		if got := partitions.Time(partitions.At(at)); !got.Equal(at) {
			t.Errorf("%v became %v", at, got)
		}
	}
	id := uuid.Must(uuid.NewV7())
	if before, after := partitions.At(partitions.Time(id)), partitions.At(partitions.Time(id).Add(time.Millisecond)); before.String() > id.String() || after.String() < id.String() {
		t.Errorf("%v is not between %v and %v", id, before, after)
	}
	want(t, "a bound at a month's end", partitions.Time(partitions.Bound(day(12, 31))), "2027-02-01 00:00:00 +0000 UTC")
	want(t, "a bound", partitions.Time(partitions.Bound(day(11, 1))), "2026-12-01 00:00:00 +0000 UTC")
}
