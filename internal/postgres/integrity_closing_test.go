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

// TestClosingsRest cancels a closing while it pauses after its first part. The part stays closed, and the next closing closes the other accounts.
func TestClosingsRest(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowVersions)
	const (
		accounts = 3 * closeAtFirst
		forever  = 1 << 20 // times a millisecond are a quarter of an hour
	)
	for _, walking := range []bool{false, true} {
		t.Run(fmt.Sprintf("walking %v", walking), func(t *testing.T) {
			t.Parallel()
			db := open(t, Options{URL: database(t), MaxConns: 4})
			books := large(db)
			if walking {
				walks(books)
			}
			fund(t, newLedgerService(t, db), 1000, "ann")
			recounted(t, books, true)
			exec(t, db, `INSERT INTO accounts SELECT 'new-' || i, 'EUR', 0, 0, 0, now() FROM generate_series(1, $1::integer) AS i`, accounts)
			closed := func() int {
				return ask[int](t, db, `SELECT count(*)::integer FROM closed_accounts WHERE account LIKE 'new-%'`)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			over := make(chan error, 1)
			go func() { over <- testwait.Err(books.CloseAccounts(ctx, Pace{Rest: forever})) }()
			testwait.Eventually(t, testwait.Patience, "the first part is closed", func() bool { return closed() > 0 })
			if n := closed(); n > closeAtFirst {
				t.Errorf("closed %d accounts before the first pause", n)
			}
			stop()
			if err := <-over; !errors.Is(err, context.Canceled) {
				t.Errorf("a closing that was cancelled ends with %v", err)
			}
			left := int64(accounts - closed())
			if closing, err := books.CloseAccounts(t.Context(), Pace{}); err != nil || *closing != (Closing{Closed: left, Balanced: true}) {
				t.Errorf("the next closing, of %d accounts: %+v, %v", left, closing, err)
			}
		})
	}
}

// TestClosingsPlanOnce closes accounts in several parts, whose statement is planned for all of them at once: with a year of partitions a plan takes as
// long as 500 accounts.
func TestClosingsPlanOnce(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowVersions)
	db := open(t, Options{URL: database(t)})
	books := large(db)
	fund(t, newLedgerService(t, db), 1000, "ann")
	recounted(t, books, true)
	exec(t, db, `INSERT INTO accounts SELECT 'new-' || i, 'EUR', 0, 0, 0, now() FROM generate_series(1, $1::integer) AS i`, 40*closeAtFirst)
	if closing, err := books.CloseAccounts(t.Context(), Pace{}); err != nil || closing.Closed != 40*closeAtFirst {
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
	if each != 0 || once < 5 {
		t.Errorf("%d parts were planned each, %d by a plan for all", each, once)
	}
}

// walks is a ledger whose closings go past dead versions, however few there are.
func walks(l *Ledger) *Ledger {
	l.walkFrom = 0
	return l
}

// TestClosingBesideASnapshot closes accounts of many dead versions, while somebody holds a snapshot and they go on to change.
func TestClosingBesideASnapshot(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowVersions)
	url := database(t)
	db := open(t, Options{URL: url})
	books, money := walks(large(db)), newLedgerService(t, db)
	// chooses reports how closings would go by themselves.
	chooses := func() string {
		_, _, _, statement, err := large(db).beginClosing(t.Context())
		testwait.Check(t, err)
		return statement
	}
	var accounts []string
	for i := range 20 {
		accounts = append(accounts, fmt.Sprintf("acc-%02d", i))
	}
	fund(t, money, 1000, accounts...)
	recounted(t, books, true)
	if chooses() != closeAccounts {
		t.Error("a closing walks where there are no dead versions")
	}
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
	// Before PostgreSQL 15, a session tells its last counts with its next transaction.
	from, to := accounts[0], accounts[1]
	testwait.Eventually(t, patience, "PostgreSQL counts the dead versions, and closings walk", func() bool {
		testwait.Check(t, transferOf(t, money, from, to))
		from, to = to, from
		return chooses() == walkAccounts
	})
	if in, err := books.Integrity(t.Context()); err != nil || !in.Valid {
		t.Errorf("%+v, %v", in, err)
	}
	exec(t, db, `UPDATE accounts SET available = available + 1 WHERE id = 'acc-03'`)
	if closing, err := books.CloseAccounts(t.Context(), Pace{}); err != nil || closing.Balanced || closing.Bad != 1 {
		t.Errorf("of an account that was changed by hand: %+v, %v", closing, err)
	}
	exec(t, db, `UPDATE accounts SET available = available - 1 WHERE id = 'acc-03'`)
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
		"a check":                     {suspectAccounts, []any{maxSuspects, base.horizon, base.from}},
		"a closing":                   {closeAccounts, []any{closeFrom, base.horizon, base.from, closeAtFirst}},
		"a closing beside a snapshot": {walkAccounts, []any{closeFrom, base.horizon, base.from, closeAtFirst}},
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
		{"as much as a part should do", 512, 512, 256, 512},
		{"hot accounts", 512, 512, 19_000, closeAtLeast},
		{"an account with very many entries", closeAtFirst, 1, 1 << 20, closeAtLeast},
		{"four times as much", 512, 512, 1792, 128},
		{"little", 128, 128, 64, 256},
		{"the last part", 512, 3, 0, 1024},
		{"nothing has changed", closeAtMost, 0, 0, closeAtMost},
		{"the least", closeAtLeast, closeAtLeast, 1 << 40, closeAtLeast},
		{"from the least up", closeAtLeast, closeAtLeast, closeAtLeast, 2 * closeAtLeast},
	} {
		if next := closeNext(c.limit, c.n, c.entries); next != c.next {
			t.Errorf("%s, %d accounts of %d with %d entries: %d, want %d", c.why, c.n, c.limit, c.entries, next, c.next)
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
