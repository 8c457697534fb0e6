package postgres

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// insertLot inserts an auction that was created at a time, and so many bids in it: the first one was placed so long after that, and each
// other one a step after the one before.
func insertLot(tb testing.TB, tx pgx.Tx, created time.Time, bids int, first, step time.Duration) (id uuid.UUID) {
	tb.Helper()
	id = uuid.Must(uuid.NewV7())
	for _, insert := range []struct {
		sql  string
		args []any
	}{
		{`INSERT INTO auctions (id, title, status, currency, seller, current_round, min_bid, min_increment, snipe_window, snipe_extension, snipe_max, cooldown,
			unique_amounts, total_bids, seq, version, revision, created_at, started_at)
			VALUES ($1, 'lot', 'active', 'EUR', 'seller', 1, 1, 1, 0, 0, 0, 0, true, $2, $2, 1, gen_random_uuid(), $3, $3)`, []any{id, bids, created}},
		{`INSERT INTO auction_bids (auction, seq, account, amount, previous_amount, round, rank, at, hold, outbid, floor)
			SELECT $1, i, 'bidder-' || i % 1000, i, 0, 1, 1, $3::timestamptz + (i - 1) * $4::interval, gen_random_uuid(), 0, 0
			FROM generate_series(1, $2::bigint) AS i`, []any{id, bids, created.Add(first), step}},
		{`INSERT INTO auction_rounds (auction, round, winners, duration, status, extensions) VALUES ($1, 1, 10, 1000000, 'active', 0)`, []any{id}},
	} {
		testwait.Must(tb, testwait.Err(tx.Exec(tb.Context(), insert.sql, insert.args...)))
	}
	return id
}

// TestALookOrdersFactsByTime: what one look has found is ordered by fifths of a second, and a topic's facts in one of them are one run.
func TestALookOrdersFactsByTime(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: pgtest.NewDatabase(t, migrated)}) // These bids hold no money.
	base := time.Now().Add(time.Second).Truncate(200 * time.Millisecond)
	var ann, bob, eve uuid.UUID
	testwait.Check(t, pgx.BeginFunc(t.Context(), sessionOf(t, db), func(tx pgx.Tx) error {
		eve = insertLot(t, tx, base.Add(450*time.Millisecond), 3, 200*time.Millisecond, 0)
		ann = insertLot(t, tx, base, 300, 10*time.Millisecond, 500*time.Microsecond)
		bob = insertLot(t, tx, base.Add(5*time.Millisecond), 300, 400*time.Millisecond, 500*time.Microsecond)
		return nil
	}))
	l := newKeptLog(t, db)
	l.keep(t, 1, nil)
	topics := l.topics(t, l.published(t, func() int64 { return 301 + 301 + 4 }))
	for _, id := range []uuid.UUID{ann, bob} {
		if got := len(topics["auction:"+id.String()]); got != 301 {
			t.Errorf("%d facts of 301", got)
		}
	}
	names := map[uuid.UUID]string{ann: "ann's", bob: "bob's", eve: "eve's"}
	rows, err := db.pool.Query(t.Context(), `SELECT id, count FROM log_runs WHERE kind = 2 ORDER BY index`)
	testwait.Check(t, err)
	runs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var id uuid.UUID
		var count int
		err := row.Scan(&id, &count)
		return fmt.Sprintf("%d of %s", count, names[id]), err
	})
	testwait.Check(t, err)
	want := []string{"301 of ann's", "1 of bob's", "1 of eve's", "300 of bob's", "3 of eve's"}
	if !slices.Equal(runs, want) {
		t.Errorf("the log has %q, not %q", runs, want)
	}
}
