package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// manyAccounts are so many that closings take them in several parts, on the pages that they take, too.
const manyAccounts = 2000

// makeAccounts makes new accounts without any money.
func makeAccounts(t *testing.T, db *DB) {
	t.Helper()
	exec(t, db, `INSERT INTO accounts SELECT 'new-' || i, 'EUR', 0, 0, 0, now() FROM generate_series(1, $1::integer) AS i`, manyAccounts)
}

// TestClosingsRest cancels a closing while it pauses after its first part. The part stays closed, and the next closing closes the other accounts.
func TestClosingsRest(t *testing.T) {
	t.Parallel()
	const forever = 1 << 20 // times a millisecond are a quarter of an hour
	db := open(t, Options{URL: database(t), MaxConns: 4})
	books := large(db)
	fund(t, newLedgerService(t, db), 1000, "ann")
	recounted(t, books, true)
	makeAccounts(t, db)
	closed := func() int {
		return ask[int](t, db, `SELECT count(*)::integer FROM closed_accounts WHERE account LIKE 'new-%'`)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	over := make(chan error, 1)
	go func() { over <- testwait.Err(books.CloseAccounts(ctx, Pace{Rest: forever})) }()
	testwait.Eventually(t, testwait.Patience, "the first part is closed", func() bool { return closed() > 0 })
	if n := closed(); n > manyAccounts/2 {
		t.Errorf("closed %d accounts before the first pause", n)
	}
	stop()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("a closing that was cancelled ends with %v", err)
	}
	left := int64(manyAccounts - closed())
	if closing, err := books.CloseAccounts(t.Context(), Pace{}); err != nil || *closing != (Closing{Closed: left, Balanced: true}) {
		t.Errorf("the next closing, of %d accounts: %+v, %v", left, closing, err)
	}
}

// TestClosingsPlanOnce closes accounts in several parts, whose statement is planned for all of them at once: with a year of partitions a plan takes as
// long as 500 accounts.
func TestClosingsPlanOnce(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowPlaces, pgkit.RowVersions)
	db := open(t, Options{URL: database(t)})
	books := large(db)
	fund(t, newLedgerService(t, db), 1000, "ann")
	recounted(t, books, true)
	makeAccounts(t, db)
	if closing, err := books.CloseAccounts(t.Context(), Pace{}); err != nil || closing.Closed != manyAccounts {
		t.Fatalf("%+v, %v", closing, err)
	}
	var each, once int
	for _, conn := range db.pool.AcquireAllIdle(t.Context()) {
		var custom, generic int
		err := conn.QueryRow(t.Context(), `SELECT coalesce(sum(custom_plans), 0), coalesce(sum(generic_plans), 0) FROM pg_prepared_statements WHERE statement = $1`,
			closeAccounts).Scan(&custom, &generic)
		conn.Release()
		testwait.Check(t, err)
		each, once = each+custom, once+generic
	}
	if each != 0 || once < 3 {
		t.Errorf("%d parts were planned each, %d by a plan for all", each, once)
	}
}

// TestClosingBesideASnapshot closes accounts of many dead versions, while somebody holds a snapshot and they go on to change.
func TestClosingBesideASnapshot(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowPlaces, pgkit.RowVersions)
	url := database(t)
	db := open(t, Options{URL: url})
	books, money := large(db), newLedgerService(t, db)
	var accounts []string
	for i := range 20 {
		accounts = append(accounts, fmt.Sprintf("acc-%02d", i))
	}
	fund(t, money, 1000, accounts...)
	recounted(t, books, true)
	snapshot(t, url)
	db.chapters.Store(true)
	for round := range 3 {
		for i := range 10 * len(accounts) {
			// The last three stay as they are.
			testwait.Check(t, transferOf(t, money, accounts[i%17], accounts[(i+1)%17]))
		}
		if closing, err := books.CloseAccounts(t.Context(), Pace{}); err != nil || *closing != (Closing{Closed: 17, Balanced: true}) {
			t.Errorf("round %d: %+v, %v", round, closing, err)
		}
	}
	if in, err := books.Integrity(t.Context()); err != nil || !in.Valid {
		t.Errorf("%+v, %v", in, err)
	}
	exec(t, db, `UPDATE accounts SET available = available + 1 WHERE id = 'acc-03'`)
	if closing, err := books.CloseAccounts(t.Context(), Pace{}); err != nil || closing.Balanced || closing.Bad != 1 {
		t.Errorf("of an account that was changed by hand: %+v, %v", closing, err)
	}
	exec(t, db, `UPDATE accounts SET available = available - 1 WHERE id = 'acc-03'`)
}

// TestAccountsMoveDuringAClosing: between two parts of a closing, accounts that it has not come to get places that it has passed. The next one
// closes them, whether they were changed or the table was written anew.
func TestAccountsMoveDuringAClosing(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowPlaces, pgkit.RowVersions)
	for what, move := range map[string][]string{
		// Deleted rows make room on the first pages.
		"changed": {
			`DELETE FROM accounts WHERE id LIKE 'old-%' OR id = 'new-2000'`, `VACUUM accounts`,
			`INSERT INTO accounts SELECT 'new-2000', 'EUR', 1, 0, 0, now()`,
		},
		"anew": {`DELETE FROM accounts WHERE id LIKE 'old-%'`, `VACUUM FULL accounts`},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			db := open(t, Options{URL: database(t)})
			books := large(db)
			fund(t, newLedgerService(t, db), 1000, "ann")
			exec(t, db, `INSERT INTO accounts SELECT 'old-' || i, 'EUR', 0, 0, 0, now() FROM generate_series(1, $1::integer) AS i`, manyAccounts)
			recounted(t, books, true)
			makeAccounts(t, db)
			exec(t, db, `UPDATE accounts SET available = 1 WHERE id = 'new-2000'`) // It has no entry.
			var c *closingWork
			testwait.Eventually(t, testwait.Patience, "all transactions of before have ended, also those of other databases", func() bool {
				var err error
				c, err = books.beginClosing(t.Context())
				testwait.Must(t, err)
				return ask[bool](t, db, `SELECT age(xmin) > age(($1::bigint % 4294967296)::text::xid) FROM accounts WHERE id = 'new-2000'`, c.horizon)
			})
			c.limit = c.blocks / 2
			if more, err := books.closeSome(t.Context(), c); err != nil || !more || c.Bad != 0 {
				t.Fatalf("%v, %+v, %v", more, c, err)
			}
			// Deleted rows stay as long as somebody's snapshot has them, such as that of an ANALYZE.
			testwait.Eventually(t, testwait.Patience, "the bad account has a place that the closing has passed", func() bool {
				for _, sql := range move {
					exec(t, db, sql)
				}
				return ask[int64](t, db, `SELECT ((ctid::text::point)[0])::bigint FROM accounts WHERE id = 'new-2000'`) < c.block
			})
			c.limit = closeAtMost
			if more, err := books.closeSome(t.Context(), c); err != nil || more {
				t.Fatalf("%v, %v", more, err)
			}
			if c.Bad != 0 {
				t.Error("the closing has found the bad account")
			}
			settled, upto, _, err := books.closeFlows(t.Context(), c.base, c.began)
			testwait.Must(t, errors.Join(err, books.moveClosing(t.Context(), c, upto, settled)))
			if closing, err := books.CloseAccounts(t.Context(), Pace{}); err != nil || closing.Bad != 1 {
				t.Errorf("the next closing: %+v, %v", closing, err)
			}
			if in, err := books.Integrity(t.Context()); err != nil || in.FirstBadAccount != "new-2000" {
				t.Errorf("%+v, %v", in, err)
			}
			exec(t, db, `UPDATE accounts SET available = 0 WHERE id = 'new-2000'`)
		})
	}
}

// TestNewEntriesAreInNewPartitions: checks and closings look for new entries in the partitions of the time since the last closing, and in no older ones.
func TestNewEntriesAreInNewPartitions(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowPlaces, pgkit.RowVersions, pgkit.Partitions)
	db := open(t, Options{URL: pgtest.NewDatabase(t, longAgo), MaxConns: 4})
	books := large(db)
	recounted(t, books, true)
	do(t, newLedgerService(t, db), ledger.Deposit{Account: "old-05", Amount: 12})
	var base *closedBooks
	testwait.Must(t, books.snapshot(t.Context(), func(ctx context.Context, tx pgx.Tx) (err error) {
		base, err = books.closedBooks(ctx, tx)
		return err
	}))
	for name, statement := range map[string]struct {
		sql  string
		args []any
	}{
		"a check":   {suspectAccounts, []any{maxSuspects, base.horizon, base.from}},
		"a closing": {closeAccounts, []any{"(0,0)", base.horizon, base.from, "(10,0)"}},
	} {
		tx, err := sessionOf(t, db).Begin(t.Context())
		testwait.Must(t, err)
		lines, err := pgkit.Rows(t.Context(), tx, pgx.RowTo[string], `EXPLAIN (ANALYZE, COSTS OFF) `+statement.sql, statement.args...)
		testwait.Must(t, errors.Join(err, tx.Rollback(t.Context())))
		plan := strings.Join(lines, "\n")
		if strings.Contains(plan, "entries_first") || !strings.Contains(plan, "entries_") {
			t.Errorf("%s reads these:\n%s", name, plan)
		}
	}
}

// TestLateEntriesAreFound: entries with ids of long before the last closing, as from a server whose clock is days late, are counted; and an account that no
// closing can close is looked at until it is repaired.
func TestLateEntriesAreFound(t *testing.T) {
	t.Parallel()
	db := tampered(t)
	books, money := large(db), newLedgerService(t, db)
	fund(t, money, 1000, "ann", "ben")
	recounted(t, books, true)
	do(t, money, ledger.Deposit{Account: "ann", Amount: 5})
	late := func(amount int) {
		t.Helper()
		exec(t, db, `UPDATE entries SET id = $1 WHERE abs(amount) = $2`, uuidAt(time.Now().Add(-3*lateIDs)), amount)
	}
	late(5)
	valid := func(when string, want bool) {
		t.Helper()
		if in, err := books.Integrity(t.Context()); err != nil || in.Valid != want {
			t.Errorf("%s: %+v, %v", when, in, err)
		}
	}
	valid("a late entry", true)
	if closing, err := books.CloseAccounts(t.Context(), Pace{}); err != nil || *closing != (Closing{Closed: 1, Balanced: true}) {
		t.Errorf("a closing of a late entry: %+v, %v", closing, err)
	}
	valid("after its closing", true)
	// The books were last closed before these entries.
	do(t, money, ledger.MakeTransfer{From: "ann", To: "ben", Amount: 3})
	late(3)
	exec(t, db, `UPDATE ledger_closing SET at = $1`, time.Now().Add(-4*lateIDs))
	exec(t, db, `UPDATE entries SET transfer = gen_random_uuid() WHERE account = 'ben' AND amount = 3`)
	for range 3 {
		valid("an entry of no transfer", false)
		if closing, err := books.CloseAccounts(t.Context(), Pace{}); err != nil || closing.Bad != 1 {
			t.Errorf("an entry of no transfer: %+v, %v", closing, err)
		}
	}
	exec(t, db, `UPDATE entries AS e SET transfer = (SELECT id FROM transfers WHERE amount = 3) WHERE abs(amount) = 3`)
	valid("after its repair", true)
	if closing, err := books.CloseAccounts(t.Context(), Pace{}); err != nil || closing.Bad != 0 {
		t.Errorf("after its repair: %+v, %v", closing, err)
	}
	if at := ask[time.Time](t, db, `SELECT at FROM ledger_closing`); time.Since(at) > lateIDs {
		t.Errorf("closed at %s", at)
	}
}

func TestClosingsTakeParts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why                     string
		limit, n, entries, next int64
	}{
		{"as much as a part should do", 8, 512, 256, 8},
		{"hot accounts", 8, 512, 19_000, closeAtLeast},
		{"an account with very many entries", closeAtFirst, 1, 1 << 20, closeAtLeast},
		{"four times as much", 8, 512, 1792, 2},
		{"little", 8, 128, 64, 16},
		{"nothing has changed", 8, 0, 0, 16},
		{"the most", closeAtMost, 0, 0, closeAtMost},
		{"the least", closeAtLeast, 100, 1 << 40, closeAtLeast},
		{"from the least up", closeAtLeast, 10, 10, 2 * closeAtLeast},
	} {
		if next := closeNext(c.limit, c.n, c.entries); next != c.next {
			t.Errorf("%s, %d accounts in %d blocks with %d entries: %d, want %d", c.why, c.n, c.limit, c.entries, next, c.next)
		}
	}
}

func TestClosingsKeepUp(t *testing.T) {
	t.Parallel()
	minute := Pace{Rest: 9, Within: time.Minute}
	for _, c := range []struct {
		pace Pace
		took time.Duration
		want float64
	}{
		{Pace{}, time.Hour, 0},
		{Pace{Rest: 7}, time.Hour, 7},
		{minute, 0, 9},
		{minute, 20 * time.Second, 6},
		{minute, 55 * time.Second, 0.75},
		{minute, time.Minute, 0},
		{minute, time.Hour, 0},
	} {
		if n := c.pace.after(c.took); n != c.want {
			t.Errorf("%+v after %v: %g, want %g", c.pace, c.took, n, c.want)
		}
	}
}

func TestRecountsTakeParts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ most, least, accounts, want int64 }{
		{8192, 64, 0, 64},
		{8192, 64, 1000, 500},
		{8192, 64, 100_000, 8192},
		{32768, 0, 10, 32768},
		{0, 0, 10, 1},
	} {
		r := newRecount()
		r.Beside = c.accounts
		if n := r.atOnce(RecountOptions{Blocks: c.most, Least: c.least}); n != c.want {
			t.Errorf("%d to %d blocks beside %d of accounts: %d, want %d", c.least, c.most, c.accounts, n, c.want)
		}
	}
}
