package postgres

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres/speculation"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// gathered are transactions on one pipeline, the first of which waits for a row of somebody else. Each takes 1 from an account.
type gathered struct {
	t        *testing.T
	db       *DB
	seen     *recorder
	pipeline *speculation.Pipeline
	around   pgx.Tx // has ann's row
	sent     int
	ends     map[string]chan error
}

func newGathered(t *testing.T, accounts int) *gathered {
	t.Helper()
	g := &gathered{t: t, seen: &recorder{}, ends: map[string]chan error{}}
	g.db = open(t, Options{URL: pgtest.NewDatabase(t, migrated), Observer: g.seen}) // Its accounts have no entries.
	waitLong(g.db)
	g.pipeline = g.db.spec.Pipeline(0)
	exec(t, g.db, `INSERT INTO accounts SELECT 'acc-' || i, 'EUR', 10, 0, 1, now() FROM generate_series(1, $1::integer) AS i`, accounts)
	exec(t, g.db, `INSERT INTO accounts VALUES ('ann', 'EUR', 10, 0, 1, now()), ('ben', 'EUR', 10, 0, 1, now())`)
	g.around = lockAnn(t, sessionOf(t, g.db))
	g.take("ann", 10)
	oneWaits(t, g.db)
	g.take("ben", 10)
	return g
}

// take sends a transaction that takes 1 from an account that has so much, if that is true.
func (g *gathered) take(id string, has int64) {
	g.t.Helper()
	end := make(chan error, 1)
	g.ends[id] = end
	go func() {
		end <- g.pipeline.Commit(g.t.Context(), speculation.Work{Touched: []string{id}, Commands: 1}, func(b *pgx.Batch) error {
			b.Queue(guardedUpdateAccounts, []string{id}, []int64{has - 1}, []int64{0}, []int64{2}, []int64{0}, []int64{has}, []int64{0}, []int64{1}, []int64{0}, 1)
			return nil
		})
	}()
	g.sent++
	testwait.Eventually(g.t, patience, "it is sent or gathered", func() bool { n, _ := g.pipeline.UnderWay(); return n == g.sent })
}

// transactions counts the transactions that have written accounts: each row has the number of its own.
func (g *gathered) transactions() int {
	return ask[int](g.t, g.db, `SELECT count(DISTINCT xmin::text) FROM accounts WHERE available = 9`)
}

func TestTransactionsAreGathered(t *testing.T) {
	t.Parallel()
	g := newGathered(t, 40)
	for i := range 40 {
		g.take(fmt.Sprint("acc-", i+1), 10)
	}
	testwait.Must(t, g.around.Rollback(t.Context()))
	for id, end := range g.ends {
		if err := <-end; err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if n := ask[int](t, g.db, `SELECT count(*) FROM accounts WHERE available = 9 AND version = 2`); n != 42 {
		t.Errorf("%d of 42 accounts are written", n)
	}
	if g.db.engine.Has(pgkit.RowVersions) {
		if n := g.transactions(); n != 3 {
			t.Errorf("%d transactions, want 3: two, and the gathered ones", n)
		}
	}
	if fell := g.seen.fallbacks(); len(fell) > 0 {
		t.Errorf("fallbacks %v", fell)
	}
}

// TestOneOfTheGatheredFails: a transaction that is wrong fails, and its neighbours do not.
func TestOneOfTheGatheredFails(t *testing.T) {
	t.Parallel()
	g := newGathered(t, 20)
	for i := range 20 {
		has := int64(10)
		if i == 7 {
			has = 11
		}
		g.take(fmt.Sprint("acc-", i+1), has)
	}
	testwait.Must(t, g.around.Rollback(t.Context()))
	for id, end := range g.ends {
		switch err := <-end; {
		case id == "acc-8" && speculation.Reason(err) != speculation.Stale, id != "acc-8" && err != nil:
			t.Errorf("%s: %v", id, err)
		}
	}
	if n := ask[int](t, g.db, `SELECT count(*) FROM accounts WHERE available = 9 AND version = 2`); n != 21 {
		t.Errorf("%d of 21 accounts are written", n)
	}
	if fell := g.seen.fallbacks(); fell[speculation.Stale] != 20 {
		t.Errorf("fallbacks %v, want 20: each of the gathered was sent again", fell)
	}
}

// TestTheGatheredLoseTheirConnection: those that were not sent are known not to be committed, the others' outcomes are not known.
func TestTheGatheredLoseTheirConnection(t *testing.T) {
	t.Parallel()
	g := newGathered(t, 3)
	for i := range 3 {
		g.take(fmt.Sprint("acc-", i+1), 10)
	}
	exec(t, g.db, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`)
	for id, end := range g.ends {
		err := <-end
		if sent := id == "ann" || id == "ben"; sent && !errors.Is(err, speculation.ErrLinkLost) || !sent && !speculation.IsNotSent(err) {
			t.Errorf("%s: %v", id, err)
		}
	}
	testwait.Must(t, g.around.Rollback(t.Context()))
	if n := ask[int](t, g.db, `SELECT count(*) FROM accounts WHERE available <> 10`); n != 0 {
		t.Errorf("%d accounts are written", n)
	}
}

// TestTheGatheredShareNoAccount: a transaction on an account of a gathered one is sent behind it.
func TestTheGatheredShareNoAccount(t *testing.T) {
	t.Parallel()
	g := newGathered(t, 1)
	g.take("acc-1", 10)
	again := make(chan error, 1)
	go func() {
		again <- g.pipeline.Commit(t.Context(), speculation.Work{Touched: []string{"acc-1"}, Commands: 1}, func(b *pgx.Batch) error {
			b.Queue(guardedUpdateAccounts, []string{"acc-1"}, []int64{8}, []int64{0}, []int64{3}, []int64{0}, []int64{9}, []int64{0}, []int64{2}, []int64{0}, 1)
			return nil
		})
	}()
	testwait.Eventually(t, patience, "it is gathered", func() bool { n, _ := g.pipeline.UnderWay(); return n == g.sent+1 })
	testwait.Must(t, g.around.Rollback(t.Context()))
	g.ends["again"] = again
	for id, end := range g.ends {
		if err := <-end; err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if n := ask[int64](t, g.db, `SELECT available FROM accounts WHERE id = 'acc-1'`); n != 8 {
		t.Errorf("%d are left, want 8", n)
	}
	if fell := g.seen.fallbacks(); len(fell) > 0 {
		t.Errorf("fallbacks %v: two on one account were gathered, and undone", fell)
	}
}
