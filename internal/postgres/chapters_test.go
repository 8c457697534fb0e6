package postgres

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestBidsBesideALongSnapshot bids while somebody holds a snapshot, so that PostgreSQL may remove no version of the auction's row. Bids and
// looks then pass most of them over.
func TestBidsBesideALongSnapshot(t *testing.T) {
	pgtest.Needs(t, pgkit.RowVersions)
	h := newHouse(t, database(t))
	fund(t, newLedgerService(t, h.db), 1_000_000, "seller", "ann", "ben")
	id := h.open(nil)
	reader := pgtest.Connect(t, h.db.url)
	for _, sql := range []string{`BEGIN ISOLATION LEVEL REPEATABLE READ`, `SELECT FROM auctions`} {
		_, err := reader.Exec(t.Context(), sql)
		testwait.Check(t, err)
	}
	const bids = 600
	for i := range int64(bids) {
		if _, err := h.bid(id, []string{"ann", "ben"}[i%2], i+1); err != nil {
			t.Fatal(err)
		}
	}
	conn := pgtest.Connect(t, h.db.url)
	// entries counts what a statement meets in the index of ids.
	entries := func(sql string, args ...any) (n int64) {
		t.Helper()
		tx, err := conn.Begin(t.Context())
		testwait.Check(t, err)
		var met [2]int64
		for i := range met {
			testwait.Check(t, tx.QueryRow(t.Context(), `SELECT pg_stat_get_xact_tuples_returned('auctions_pkey'::regclass)`).Scan(&met[i]))
			if i == 0 {
				_, err = tx.Exec(t.Context(), sql, args...)
				testwait.Check(t, err)
			}
		}
		testwait.Check(t, tx.Rollback(t.Context()))
		return met[1] - met[0]
	}
	all := entries(`SELECT seq FROM auctions WHERE id = $1`, id)
	if all < bids/16 {
		t.Fatalf("a look for the id alone meets %d entries, so there is nothing to be saved, and this test tests nothing", all)
	}
	var (
		version, seq int64
		revision     uuid.UUID
	)
	testwait.Check(t, conn.QueryRow(t.Context(), `SELECT version, seq, revision FROM auctions WHERE id = $1`, id).Scan(&version, &seq, &revision))
	ids, versions, revisions := [][16]byte{id}, []int64{version}, [][16]byte{revision}
	// A chapter has an entry, and one more for each time that a page was full. To raise, the chapter is looked up, and then the row.
	const most = 10
	for _, look := range []struct {
		name, sql string
		args      []any
	}{
		{"read", selectAuction, []any{id}},
		{"heads of streams", NewEvents(h.db, EventViews{}).topics[0].heads, []any{ids}},
		{"lock", lockAuctionRow, []any{id}},
		{"guard", guardAuction, []any{ids, versions, revisions, 1}},
		{"raise", raiseAuction, []any{ids, versions, revisions, []int64{7}, []int64{seq}, []int64{version + 1}, revisions, []time.Time{time.Now().Add(time.Hour)}, 1}},
		{"raise under a lock", updateAuction, []any{id, version, revision, "active", 1, 7, seq, 0, time.Now(), nil, version + 1, revision}},
	} {
		if got := entries(look.sql, look.args...); got > most {
			t.Errorf("%s: it meets %d entries of the index, where a look for the id alone meets %d", look.name, got, all)
		}
	}
}

// TestAccountsWhoseKeyHasChapters opens accounts in two processes at once, on the tables as the next version will have them: the primary key of accounts has
// a chapter besides the id, so that it lets an id in again whose account has come to a later chapter.
func TestAccountsWhoseKeyHasChapters(t *testing.T) {
	url := database(t)
	admin := pgtest.Connect(t, url)
	_, err := admin.Exec(t.Context(), `ALTER TABLE accounts ADD COLUMN chapter bigint NOT NULL DEFAULT 0, DROP CONSTRAINT accounts_pkey, ADD CONSTRAINT accounts_pkey PRIMARY KEY (id, chapter)`)
	testwait.Check(t, err)
	here, there := open(t, Options{URL: url}), open(t, Options{URL: url})
	services := []*ledger.Service{newLedgerService(t, here), newLedgerService(t, there)}

	// An account that has come to a later chapter, of which nothing is remembered here.
	fund(t, services[1], 5, "moved")
	_, err = admin.Exec(t.Context(), `UPDATE accounts SET chapter = 3 WHERE id = 'moved'`)
	testwait.Check(t, err)
	for _, how := range []writes{countedWrites, guardedWrites} {
		var b pgx.Batch
		saveNewAccounts(&b, []ledger.Account{{ID: "moved", Currency: "EUR", Version: 1, CreatedAt: time.Now()}}, how)
		tx, err := admin.Begin(t.Context())
		testwait.Check(t, err)
		if err := tx.SendBatch(t.Context(), &b).Close(); err == nil {
			t.Errorf("writes %d: the account was opened once more", how)
		}
		testwait.Check(t, tx.Rollback(t.Context()))
	}

	const accounts = 40
	var (
		all  sync.WaitGroup
		made [accounts]atomic.Int32
	)
	for i := range accounts {
		for _, s := range services {
			all.Go(func() {
				a, err := s.Execute(t.Context(), own[ledger.Op](ledger.CreateAccount{ID: fmt.Sprintf("new-%d", i), Currency: "EUR"}))
				switch err = errors.Join(err, a.Err); {
				case err == nil:
					made[i].Add(1)
				case !errors.Is(err, ledger.ErrAccountExists):
					t.Errorf("open an account that another process opens, too: %v", err)
				}
			})
		}
	}
	all.Wait()
	for i := range made {
		if n := made[i].Load(); n != 1 {
			t.Errorf("account %d was opened %d times", i, n)
		}
	}
	rows, err := admin.Query(t.Context(), `SELECT id FROM accounts GROUP BY id HAVING count(*) <> 1`)
	testwait.Check(t, err)
	twice, err := pgx.CollectRows(rows, pgx.RowTo[string])
	testwait.Check(t, err)
	if len(twice) > 0 {
		t.Errorf("accounts with two rows: %q", twice)
	}
}
