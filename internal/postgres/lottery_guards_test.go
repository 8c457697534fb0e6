package postgres

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// writeDraw writes a result row as the store does.
func writeDraw(t *testing.T, db *DB, d *lottery.Draw) {
	t.Helper()
	var b pgx.Batch
	testwait.Must(t, saveDraw(&b, d))
	testwait.Must(t, db.pool.SendBatch(t.Context(), &b).Close())
}

// TestTheGuardedTransition tries every change of status by SQL: from the version that was read, and from another.
func TestTheGuardedTransition(t *testing.T) {
	t.Parallel()
	v, _ := newVenue(t, lottery.Options{})
	id := v.create(t, 2)
	statuses := []lottery.Status{
		lottery.StatusPending, lottery.StatusActive, lottery.StatusDrawing, lottery.StatusCompleted, lottery.StatusCancelled,
	}
	type move struct{ from, to lottery.Status }
	allowed := map[move]bool{
		{lottery.StatusPending, lottery.StatusActive}: true, {lottery.StatusActive, lottery.StatusActive}: true,
		{lottery.StatusPending, lottery.StatusCancelled}: true, {lottery.StatusActive, lottery.StatusCancelled}: true,
		{lottery.StatusActive, lottery.StatusDrawing}: true, {lottery.StatusDrawing, lottery.StatusDrawing}: true,
		{lottery.StatusActive, lottery.StatusCompleted}: true, {lottery.StatusDrawing, lottery.StatusCompleted}: true,
	}
	around := sessionOf(t, v.db)
	// Each try is undone. sold is what the row is to say afterwards, of three positions.
	try := func(from, to lottery.Status, ahead int64, sold int) int64 {
		t.Helper()
		tx, err := around.Begin(t.Context())
		testwait.Must(t, err)
		defer func() { _ = tx.Rollback(t.Context()) }()
		var version int64
		if err := tx.QueryRow(t.Context(), `UPDATE campaigns SET status = $2, sold_positions = CASE WHEN $2 IN ('drawing', 'completed') THEN 3 ELSE 2 END
			WHERE id = $1 RETURNING version`, id, from).Scan(&version); err != nil {
			t.Fatal(err)
		}
		tag, err := tx.Exec(t.Context(), updateCampaign, id, version+ahead, to, sold, nil, nil, nil, nil, nil)
		if err != nil {
			t.Fatalf("%s to %s: %v", from, to, err)
		}
		return tag.RowsAffected()
	}
	for _, from := range statuses {
		for _, to := range statuses {
			if to == lottery.StatusPending {
				continue // No code path writes it.
			}
			want := int64(0)
			if allowed[move{from, to}] {
				want = 1
			}
			sold := 2
			if to == lottery.StatusDrawing || to == lottery.StatusCompleted {
				sold = 3
				if n := try(from, to, 1, 2); n != 0 {
					t.Errorf("%s to %s with a position left", from, to)
				}
			}
			if n := try(from, to, 1, sold); n != want {
				t.Errorf("%s to %s: %d rows, want %d", from, to, n, want)
			}
			for _, ahead := range []int64{0, 2, -1} {
				if n := try(from, to, ahead, sold); n != 0 {
					t.Errorf("%s to %s from another version", from, to)
				}
			}
		}
	}
}

// TestAStaleCampaignIsNotWritten has the store meet the guard: the row was changed behind its lock's back.
func TestAStaleCampaignIsNotWritten(t *testing.T) {
	t.Parallel()
	v, _ := newVenue(t, lottery.Options{})
	id := v.create(t, 2)
	runs := 0
	err := v.store.Commit(t.Context(), id,
		lottery.Want{Plan: func(c *lottery.Campaign, inv *lottery.Inventory) lottery.Need {
			return lottery.Plan(c, inv, []lottery.Op{lottery.Buy{Account: "ann"}})
		}},
		func(u *lottery.Unit) {
			runs++
			testwait.Check(t, testwait.Err(lottery.Decide(u.State, lottery.Buy{Account: "ann"})))
			u.State.Campaign.Version++
		})
	if !errors.Is(err, errLostRow) || runs != 1 {
		t.Errorf("%d runs: %v", runs, err)
	}
	if n := ask[int](t, v.db, `SELECT count(*) FROM purchases`); n != 0 {
		t.Errorf("%d purchases", n)
	}
	if _, ok := v.remembered(id); ok {
		t.Error("what was not committed is remembered")
	}
}

// TestTheDatabaseRefusesByItself goes around all code: what is left are the constraints.
func TestTheDatabaseRefusesByItself(t *testing.T) {
	t.Parallel()
	v, _ := newVenue(t, lottery.Options{})
	id := v.create(t, 2)
	for range 3 {
		v.must(t, id, lottery.Buy{Account: "ann"})
	}
	open := v.create(t, 2)
	v.must(t, open, lottery.Buy{Account: "ben", Layer: 1})
	const sale = `INSERT INTO purchases (campaign, seq, id, account, layer, number, ordinal, price, transfer, at)
		VALUES ('%s', %d, '%s', 'zoe', 1, 1, %d, 10, '%s', now())`
	for name, c := range map[string]struct{ sql, code string }{
		"a position twice":         {fmt.Sprintf(sale, id, 9, uuid.New(), 0, uuid.New()), "23505"},
		"a sale number twice":      {fmt.Sprintf(sale, id, 1, uuid.New(), 9, uuid.New()), "23505"},
		"a second result":          {fmt.Sprintf(`INSERT INTO draws (campaign, root, winners, completed_at) SELECT campaign, root, winners, completed_at FROM draws WHERE campaign = '%s'`, id), "23505"},
		"a result of no campaign":  {fmt.Sprintf(`INSERT INTO draws VALUES ('%s', sha256(''), NULL, '[]', now())`, uuid.New()), "23503"},
		"more sold than there are": {fmt.Sprintf(`UPDATE campaigns SET sold_positions = 4 WHERE id = '%s'`, open), "23514"},
		"a layer oversold":         {fmt.Sprintf(`UPDATE campaign_layers SET sold = 2 WHERE campaign = '%s' AND layer = 1`, open), "23514"},
		"fewer sold than none":     {fmt.Sprintf(`UPDATE campaign_layers SET sold = -1 WHERE campaign = '%s'`, open), "23514"},
		"drawing too early":        {fmt.Sprintf(`UPDATE campaigns SET status = 'drawing' WHERE id = '%s'`, open), "23514"},
		"a state that is none":     {fmt.Sprintf(`UPDATE campaigns SET status = 'drawn' WHERE id = '%s'`, open), "23514"},
		"a negative balance":       {`UPDATE accounts SET available = -1 WHERE id = 'ann'`, "23514"},
		"a negative held":          {`UPDATE accounts SET held = -1 WHERE id = 'ann'`, "23514"},
		"a transfer to its source": {`INSERT INTO transfers VALUES (gen_random_uuid(), 'transfer', 'a', 'a', 1, 'EUR', 'completed', '', '', now())`, "23514"},
		"a transfer of nothing":    {`INSERT INTO transfers VALUES (gen_random_uuid(), 'transfer', 'a', 'b', 0, 'EUR', 'completed', '', '', now())`, "23514"},
		"an open hold that ended":  {`INSERT INTO hold_rows VALUES (gen_random_uuid(), 'ann', 1, 0, 'open', NULL, now(), now(), NULL)`, "23514"},
		"captured more than held":  {`INSERT INTO hold_rows VALUES (gen_random_uuid(), 'ann', 1, 2, 'captured', NULL, now(), now(), NULL)`, "23514"},
		"a key of another length":  {`INSERT INTO idempotency_keys VALUES ('short', sha256(''), gen_random_uuid(), 200, '', now())`, "23514"},
	} {
		_, err := v.db.pool.Exec(t.Context(), c.sql)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
}

// TestSalesBesideAnOlderServer has another server sell that does not know of the column with the latest sale, as those of before step 42: what this one sells next is
// decided under locks, and the column is right again.
func TestSalesBesideAnOlderServer(t *testing.T) {
	t.Parallel()
	here, url := newVenue(t, lottery.Options{})
	there := enter(t, url, lottery.Options{})
	id := here.create(t, 4)
	const latest = `SELECT last_sale FROM campaigns WHERE id = $1`
	here.must(t, id, lottery.Buy{Account: "ann"})
	known := ask[uuid.UUID](t, here.db, latest, id)
	for _, forgotten := range []*uuid.UUID{&known, nil} {
		there.must(t, id, lottery.Buy{Account: "ben"})
		exec(t, here.db, `UPDATE campaigns SET last_sale = $2 WHERE id = $1`, id, forgotten)
		for range 2 {
			here.must(t, id, lottery.Buy{Account: "ann"})
			if got, want := ask[uuid.UUID](t, here.db, latest, id), ask[uuid.UUID](t, here.db, `SELECT id FROM purchases WHERE campaign = $1 ORDER BY seq DESC LIMIT 1`, id); got != want {
				t.Errorf("the latest sale is %s, and the campaign has %s", want, got)
			}
		}
	}
	for range 3 { // The last is also the draw.
		there.must(t, id, lottery.Buy{Account: "ben"})
	}
	if n := ask[int](t, here.db, `SELECT count(*) FROM draws WHERE campaign = $1`, id); n != 1 {
		t.Errorf("%d draws", n)
	}
}
