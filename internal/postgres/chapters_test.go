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
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestBidsBesideALongSnapshot bids while somebody holds a snapshot, so that PostgreSQL may remove no version of the auction's row, nor of the standing
// bids'. Bids and looks then pass most of them over.
func TestBidsBesideALongSnapshot(t *testing.T) {
	pgtest.Needs(t, pgkit.RowVersions)
	h := newHouse(t, database(t))
	fund(t, newLedgerService(t, h.db), 1_000_000, "seller", "ann", "ben")
	id := h.open(func(c *auction.Create) { c.UniqueAmounts = false })
	snapshot(t, h.db.url)
	h.db.chapters.Store(true)
	const bids = 600
	for i := range int64(bids) {
		if _, err := h.bid(id, []string{"ann", "ben"}[i%2], i+1); err != nil {
			t.Fatal(err)
		}
	}
	entries := entriesMet(t, h.db.url, "auctions_pkey")
	all := entries(`SELECT seq FROM auctions WHERE id = $1`, id)
	if all < bids/16 {
		t.Fatalf("a look for the id alone meets %d entries, so there is nothing to be saved, and this test tests nothing", all)
	}
	var (
		version, seq int64
		revision     uuid.UUID
	)
	conn := pgtest.Connect(t, h.db.url)
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

	entries = entriesMet(t, h.db.url, "auction_standing_by_chapter")
	all = entries(`SELECT seq FROM auction_standing WHERE auction::text = $1::text AND account = 'ann' AND coalesce(unique_amount, 0) = 0
		ORDER BY chapter LIMIT 1`, id)
	if all < bids/4 {
		t.Fatalf("a look from the first chapter on meets %d entries, so there is nothing to be saved, and this test tests nothing", all)
	}
	var hold uuid.UUID
	testwait.Check(t, conn.QueryRow(t.Context(), `SELECT hold FROM auction_standing WHERE account = 'ann'`).Scan(&hold))
	if got := entries(guardedRaiseStanding, ids, []string{"ann"}, []int64{bids + 1}, []int32{1}, []int64{bids + 1}, []time.Time{time.Now()}, [][16]byte{hold},
		[]int64{bids - 1}, 1, 1); got > 2 {
		t.Errorf("a raise meets %d entries of the standing bids' index, where one from the first chapter on meets %d", got, all)
	}
}

// entriesMet returns what counts the entries of an index that a statement meets, which is undone. The planner has the settings that it has for the
// product, and knows the tables, as it does sooner or later.
func entriesMet(t *testing.T, url, index string) func(sql string, args ...any) int64 {
	t.Helper()
	conn := pgtest.Connect(t, url)
	testwait.Must(t, testwait.Err(conn.Exec(t.Context(), "ANALYZE")))
	for setting, value := range planning() {
		testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `SELECT set_config($1, $2, false)`, setting, value)))
	}
	return func(sql string, args ...any) int64 {
		t.Helper()
		tx, err := conn.Begin(t.Context())
		testwait.Check(t, err)
		var met [2]int64
		for i := range met {
			testwait.Check(t, tx.QueryRow(t.Context(), `SELECT pg_stat_get_xact_tuples_returned($1::regclass)`, index).Scan(&met[i]))
			if i == 0 {
				_, err = tx.Exec(t.Context(), sql, args...)
				testwait.Check(t, err)
			}
		}
		testwait.Check(t, tx.Rollback(t.Context()))
		return met[1] - met[0]
	}
}

// snapshot has somebody hold one, and returns who.
func snapshot(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	reader := pgtest.Connect(t, url)
	for _, sql := range []string{`BEGIN ISOLATION LEVEL REPEATABLE READ`, `SELECT FROM accounts`} {
		_, err := reader.Exec(t.Context(), sql)
		testwait.Check(t, err)
	}
	return reader
}

// TestTransfersBesideALongSnapshot moves money while somebody holds a snapshot, so that PostgreSQL may remove no version of the accounts' rows. Commands and
// looks then pass most of them over.
func TestTransfersBesideALongSnapshot(t *testing.T) {
	pgtest.Needs(t, pgkit.RowVersions)
	url := database(t)
	db := open(t, Options{URL: url})
	money := newLedgerService(t, db)
	fund(t, money, 1_000, "ann", "ben")
	snapshot(t, url)
	db.chapters.Store(true)
	const transfers = 600
	for range transfers {
		if err := transferOf(t, money, "ann", "ben"); err != nil {
			t.Fatal(err)
		}
	}
	entries := entriesMet(t, url, "accounts_pkey")
	ids := []string{"ann"}
	all := entries(`SELECT version FROM accounts WHERE id = ANY($1)`, ids)
	if all < transfers/ledger.VersionsInChapter {
		t.Fatalf("a look for the id alone meets %d entries, so there is nothing to be saved, and this test tests nothing", all)
	}
	a, err := queryOne(t.Context(), db, nil, scanAccount, selectAccounts, ids)
	if err != nil || a.Chapter != a.Version/ledger.VersionsInChapter || a.Version <= transfers {
		t.Fatalf("%+v, %v", a, err)
	}
	// one is a column with one row.
	one := func(n int64) []int64 { return []int64{n} }
	// A chapter has an entry, and one more for each time that a page was full.
	const most = 5
	for _, look := range []struct {
		name, sql string
		args      []any
	}{
		{"read one", selectAccount, []any{"ann"}},
		{"read", selectAccounts, []any{ids}},
		{"lock", lockAccounts, []any{ids}},
		{"lock what is free", lockFreeAccounts, []any{ids}},
		{"guard", guardSameAccounts, []any{ids, one(a.Available), one(a.Held), one(a.Version), one(a.Chapter), 1}},
		{"write", guardedUpdateAccounts, []any{ids, one(a.Available), one(a.Held), one(a.Version + 1), one(a.Chapter + 1), one(a.Available), one(a.Held), one(a.Version), one(a.Chapter), 1}},
	} {
		if got := entries(look.sql, look.args...); got > most {
			t.Errorf("%s: it meets %d entries of the index, where a look for the id alone meets %d", look.name, got, all)
		}
	}
}

// TestChaptersBeginBesideASnapshot: accounts that change come to chapters while somebody holds a snapshot for seconds, and not before or after.
func TestChaptersBeginBesideASnapshot(t *testing.T) {
	pgtest.Needs(t, pgkit.RowVersions)
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	become := func(state string, chapters bool) {
		t.Helper()
		testwait.Eventually(t, patience, state, func() bool {
			_, err := db.SampleSnapshots(t.Context())
			testwait.Check(t, err)
			return db.chapters.Load() == chapters
		})
	}
	become("nobody holds one", false)
	reader := snapshot(t, db.url)
	become("somebody holds one", true)
	_, err := reader.Exec(t.Context(), `ROLLBACK`)
	testwait.Check(t, err)
	become("it has ended", false)
}

// TestChaptersComeAndGo has two processes move, hold and pay the money of a few accounts while each begins chapters and ends with it again and again, as
// snapshots come and go. No account gets a second row, and no money is lost or made.
func TestChaptersComeAndGo(t *testing.T) {
	t.Parallel()
	url := database(t)
	processes := []*DB{open(t, Options{URL: url}), open(t, Options{URL: url})}
	services := []*ledger.Service{newLedgerService(t, processes[0]), newLedgerService(t, processes[1])}
	accounts := []string{"ann", "ben", "cid"}
	const each = 1_000
	fund(t, services[0], each, accounts...)
	const turns = 150
	var all sync.WaitGroup
	for p, s := range services {
		for w := range accounts {
			all.Go(func() {
				from, to := accounts[w], accounts[(w+1)%len(accounts)]
				for i := range turns {
					processes[p].chapters.Store((i/5+w)%2 == 0)
					if err := transferOf(t, s, from, to); err != nil {
						t.Errorf("transfer: %v", err)
					}
					a, err := s.Execute(t.Context(), own[ledger.Op](ledger.PlaceHold{Account: from, Amount: 2}))
					if err = answerErr(a, err); err != nil {
						t.Errorf("hold: %v", err)
						continue
					}
					capture := ledger.CaptureHold{Hold: a.Result.(ledger.Hold).ID, To: to, Amount: new(int64(1))} //nolint:errcheck // Else the test panics. It goes by locks.
					if err := answerErr(s.Execute(t.Context(), own[ledger.Op](capture))); err != nil {
						t.Errorf("capture: %v", err)
					}
				}
			})
		}
	}
	all.Wait()
	rows, err := query(t.Context(), processes[0], scanAccount, `SELECT `+accountFields+` FROM accounts ORDER BY id`)
	if err != nil || len(rows) != len(accounts) {
		t.Fatalf("%d accounts, %v", len(rows), err)
	}
	for _, a := range rows {
		// Everybody pays as often as they are paid.
		if a.Available != each || a.Held != 0 || a.Chapter == 0 && processes[0].engine.Has(pgkit.RowVersions) {
			t.Errorf("%+v", a)
		}
	}
	if in, err := NewLedger(processes[0]).Integrity(t.Context()); err != nil || !in.Valid {
		t.Errorf("integrity: %+v, %v", in, err)
	}
}

// TestAccountsWhoseKeyHasChapters opens accounts in two processes at once. Their key has a chapter besides the id, so that it lets an id in again whose account
// has come to a later chapter.
func TestAccountsWhoseKeyHasChapters(t *testing.T) {
	url := database(t)
	admin := pgtest.Connect(t, url)
	here, there := open(t, Options{URL: url}), open(t, Options{URL: url})
	services := []*ledger.Service{newLedgerService(t, here), newLedgerService(t, there)}

	// An account that has come to a later chapter, of which nothing is remembered here.
	fund(t, services[1], 5, "moved")
	_, err := admin.Exec(t.Context(), `UPDATE accounts SET chapter = 3 WHERE id = 'moved'`)
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
