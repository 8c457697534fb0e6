package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestBooksAddUpUnderLoad closes and recounts the books on two servers at once, while transfers, deposits, withdrawals and holds are made
// on both. Every closing, recount and check in between agrees, and recounts agree by themselves: none needs the count in one snapshot.
func TestBooksAddUpUnderLoad(t *testing.T) {
	t.Parallel()
	url := database(t)
	var accounts []string
	for i := range 40 {
		accounts = append(accounts, fmt.Sprintf("acc-%02d", i))
	}
	var seen recorder
	servers := []*DB{open(t, Options{URL: url, Observer: &seen}), open(t, Options{URL: url, Observer: &seen})}
	money := []*ledger.Service{newLedgerService(t, servers[0]), newLedgerService(t, servers[1])}
	fund(t, money[0], 1000, accounts...)
	recounted(t, large(servers[0]), true)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	load, inLoad := errgroup.WithContext(ctx)
	for i := range 16 {
		load.Go(func() error {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for ctx.Err() == nil {
				from, to := accounts[r.IntN(len(accounts))], accounts[r.IntN(len(accounts))]
				ops := []ledger.Op{
					ledger.MakeTransfer{From: from, To: to, Amount: 1 + r.Int64N(50)},
					ledger.Deposit{Account: to, Amount: 1 + r.Int64N(50)},
					ledger.Withdraw{Account: from, Amount: 1 + r.Int64N(50)},
					ledger.PlaceHold{Account: from, Amount: 1 + r.Int64N(5)},
				}
				op := ops[r.IntN(len(ops))*r.IntN(2)]
				if _, err := money[i%2].Execute(inLoad, own[ledger.Op](op)); err != nil && ctx.Err() == nil {
					return err
				}
			}
			return nil
		})
	}
	books, inBooks := errgroup.WithContext(t.Context())
	var ended [2]int
	for i, db := range servers {
		books.Go(func() error {
			l := large(db)
			for round := range 6 {
				closing, err := l.CloseAccounts(inBooks, Pace{})
				if err != nil || closing == nil || !closing.Balanced || closing.Bad != 0 {
					return fmt.Errorf("closing %d: %+v: %w", round, closing, errors.Join(err))
				}
				in, err := l.Integrity(inBooks)
				if err != nil || !in.Valid || in.ClosedAt.Before(in.RecountedAt.Add(-time.Hour)) {
					return fmt.Errorf("check %d: %+v: %w", round, in, errors.Join(err))
				}
				o := RecountOptions{Runner: []string{RunnerServer, RunnerOperator}[round%2], Blocks: 1, AtOnce: 2}
				if in, err = l.Recount(inBooks, o); errors.Is(err, errRecountEnded) {
					continue // By the other server.
				}
				if err != nil || !in.Valid {
					return fmt.Errorf("recount %d: %+v: %w", round, in, errors.Join(err))
				}
				ended[i]++
			}
			return nil
		})
	}
	testwait.Check(t, books.Wait())
	stop()
	testwait.Check(t, load.Wait())
	if ended[0]+ended[1] == 0 {
		t.Error("no recount came to its end")
	}
	for _, reason := range []string{"recount", "closings"} {
		if n := seen.fallbacks()[reason]; n > 0 {
			t.Errorf("%d times only a count of everything has agreed: %s", n, reason)
		}
	}
	if in, err := NewLedger(servers[0]).Integrity(t.Context()); err != nil || !in.Valid {
		t.Errorf("at the end: %+v, %v", in, err)
	}
}

// TestRecountGoesOn interrupts a recount after each of its parts. The next run goes on, whoever makes it, and its sums are the same.
func TestRecountGoesOn(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowPlaces, pgkit.RowVersions)
	db := open(t, Options{URL: database(t), MaxConns: 4})
	books := large(db)
	money := newLedgerService(t, db)
	fund(t, money, 1000, "ann", "ben")
	for range 200 { // Several blocks.
		do(t, money, ledger.MakeTransfer{From: "ann", To: "ben", Amount: 2, Memo: fmt.Sprintf("%0200d", 7)})
	}
	o := RecountOptions{Runner: RunnerOperator, Blocks: 1, AtOnce: 1}
	interrupted := 0
	var last int64
	var began time.Time
	for {
		ctx, stop := context.WithCancel(t.Context())
		parts := 0
		o.Progress = func(at RecountProgress) {
			if parts++; parts == 2 {
				stop()
			}
			if parts == 1 && (at.Resumed != (interrupted > 0) || at.Done < last) {
				t.Errorf("begins at %+v, after %d interruptions at %d", at, interrupted, last)
			}
			last, began = at.Done, at.Began
		}
		in, err := books.Recount(ctx, o)
		stop()
		if err == nil {
			if !in.Valid || in.Currencies[0].Deposits.Int64() != 2000 || !in.RecountedAt.Equal(began) {
				t.Errorf("%+v", in)
			}
			break
		}
		if interrupted++; !errors.Is(err, context.Canceled) || interrupted > 1000 {
			t.Fatal(err)
		}
		// What is written meanwhile is left out, and what was written before it is not.
		do(t, money, ledger.Deposit{Account: "ann", Amount: 5})
	}
	if interrupted < 4 {
		t.Errorf("%d interruptions", interrupted)
	}
	b, err := books.Books(t.Context(), RunnerOperator)
	if err != nil || !b.Large || b.UnderWay || !b.Valid || b.Closed == nil || b.Recounted == nil || *b.Recounted <= 0 {
		t.Errorf("%+v, %v", b, err)
	}
}

// TestRecountBeginsAnew has rows get other places in the middle of a recount, and asks for a new beginning.
func TestRecountBeginsAnew(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowPlaces, pgkit.RowVersions)
	db := open(t, Options{URL: database(t), MaxConns: 4})
	books := large(db)
	fund(t, newLedgerService(t, db), 1000, "ann", "ben")
	o := RecountOptions{Runner: RunnerOperator, Blocks: 1, AtOnce: 1}
	interrupt := func() time.Time {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var began time.Time
		o.Progress = func(at RecountProgress) { began = at.Began; stop() }
		if _, err := books.Recount(ctx, o); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		return began
	}
	first := interrupt()
	if again := interrupt(); !again.Equal(first) {
		t.Errorf("began at %s and %s", first, again)
	}
	o.Restart = true
	second := interrupt()
	if o.Restart = false; !second.After(first) {
		t.Errorf("began anew at %s, not after %s", second, first)
	}
	exec(t, db, `VACUUM FULL entries`)
	o.Progress = nil
	if in, err := books.Recount(t.Context(), o); err != nil || !in.Valid || !in.RecountedAt.After(second) {
		t.Errorf("after VACUUM FULL: %+v, %v", in, err)
	}
}

// TestClosingsHeal: a closing that is wrong is no proof against an account, nor do sums of the outside that are.
func TestClosingsHeal(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t), MaxConns: 4})
	books := large(db)
	money := newLedgerService(t, db)
	fund(t, money, 1000, "ann", "ben")
	if closing, err := books.CloseAccounts(t.Context(), Pace{}); closing != nil || err != nil {
		t.Errorf("a closing before the first recount: %+v, %v", closing, err)
	}
	recounted(t, books, true)
	// Entries whose ids are passed already, as from a server whose clock is late.
	exec(t, db, `UPDATE ledger_closing SET settled = $1, sums = '{"EUR":{"Deposits":2000,"Withdrawals":0}}'`, uuidAt(time.Now().Add(time.Hour)))
	do(t, money, ledger.Deposit{Account: "ann", Amount: 5})
	exec(t, db, `UPDATE closed_accounts SET available = available + 7 WHERE account = 'ben'`)
	valid := func(when string) {
		t.Helper()
		if in, err := books.Integrity(t.Context()); err != nil || !in.Valid || in.Currencies[0].Deposits.Int64() != 2005 {
			t.Errorf("%s: %+v, %v", when, in, err)
		}
	}
	valid("before the closing")
	if closing, err := books.CloseAccounts(t.Context(), Pace{}); err != nil || *closing != (Closing{Closed: 2, Balanced: true}) {
		t.Errorf("%+v, %v", closing, err)
	}
	valid("after it")
	if n := ask[int64](t, db, `SELECT sum(available)::bigint FROM closed_accounts`); n != 2005 {
		t.Errorf("closed at %d", n)
	}
	if closing, err := books.CloseAccounts(t.Context(), Pace{}); err != nil || *closing != (Closing{Balanced: true}) {
		t.Errorf("%+v, %v", closing, err)
	}
}

// TestWrongClosingsHideNoAccount: a bad account is found behind more wrong closings than a check looks at, and one that was never closed is
// not taken as it is by a recount that begins.
func TestWrongClosingsHideNoAccount(t *testing.T) {
	t.Parallel()
	db := tampered(t)
	var seen recorder
	db.observer = &seen
	books := large(db)
	fund(t, newLedgerService(t, db), 1000, "ann", "ben")
	exec(t, db, `INSERT INTO accounts SELECT 'aaa-' || i, 'EUR', 0, 0, 0, now() FROM generate_series(1, $1::integer) AS i`, maxSuspects)
	recounted(t, books, true)
	exec(t, db, `UPDATE closed_accounts SET available = 1 WHERE account LIKE 'aaa-%'`)
	if in, err := books.Integrity(t.Context()); err != nil || !in.Valid {
		t.Errorf("wrong closings: %+v, %v", in, err)
	}
	move := `UPDATE accounts SET available = available + CASE id WHEN 'ann' THEN $1::bigint ELSE -$1::bigint END WHERE id IN ('ann', 'ben')`
	exec(t, db, move, 1)
	if in, err := books.Integrity(t.Context()); err != nil || in.Valid || in.FirstBadAccount != "ann" {
		t.Errorf("wrong closings, and a bad account: %+v, %v", in, err)
	}
	if n := seen.fallbacks()["closings"]; n != 2 {
		t.Errorf("counted everything for wrong closings %d times, want 2", n)
	}
	recounted(t, books, false)
	want := 1
	if !books.tellsRows() {
		want = 0 // It has no parts that could disagree.
	}
	if n := seen.fallbacks()["recount"]; n != want {
		t.Errorf("counted everything for a recount %d times, want %d", n, want)
	}
	exec(t, db, move, -1)
	exec(t, db, `INSERT INTO accounts VALUES ('eve', 'USD', 0, 0, 1, now()), ('fay', 'USD', 0, 0, 1, now())`)
	exec(t, db, `INSERT INTO entries VALUES ('eve', $1::uuid, 1, gen_random_uuid(), 5, 'USD', now()), ('fay', $1::uuid, 1, gen_random_uuid(), -5, 'USD', now())`, newID())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if _, err := books.Recount(ctx, RecountOptions{Runner: RunnerServer, Blocks: 1, AtOnce: 1, Progress: func(RecountProgress) { stop() }}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if in, err := books.Integrity(t.Context()); err != nil || in.Valid || in.FirstBadAccount != "eve" {
		t.Errorf("new accounts, and a recount under way: %+v, %v", in, err)
	}
}

// TestHorizonHidesNoAccount: a closing passes over rows that are older than the last one's horizon, and over no others.
func TestHorizonHidesNoAccount(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowVersions)
	db := tampered(t)
	books, money := large(db), newLedgerService(t, db)
	fund(t, money, 1000, "ann", "ben")
	fund(t, money, 0, "zoe")
	do(t, money, ledger.MakeTransfer{From: "ann", To: "zoe", Amount: 5})
	do(t, money, ledger.MakeTransfer{From: "zoe", To: "ann", Amount: 5})
	recounted(t, books, true)
	closes := func(when string, closed int64) {
		t.Helper()
		if closing, err := books.CloseAccounts(t.Context(), Pace{}); err != nil || *closing != (Closing{Closed: closed, Balanced: true}) {
			t.Errorf("%s: %+v, %v", when, closing, err)
		}
	}
	closes("at first", 0) // The recount has closed all.
	// A wrong closing shows which accounts are looked at.
	for _, horizon := range []struct {
		when, sql string
		closed    int64
	}{
		{"the account is older", `UPDATE ledger_closing SET horizon = ` + nextTransaction, 0},
		{"the account may be newer", `UPDATE ledger_closing SET horizon = (SELECT xmin::text::bigint FROM accounts WHERE id = 'ann')`, 1},
		{"restored into another cluster", `UPDATE ledger_closing SET cluster = cluster + 1, horizon = ` + nextTransaction, 1},
		{"as many transactions as there are numbers ago", `UPDATE ledger_closing SET horizon = ` + nextTransaction + ` - 2147483648`, 1},
		{"nothing is known", `UPDATE ledger_closing SET horizon = NULL, cluster = NULL`, 1},
	} {
		exec(t, db, `UPDATE closed_accounts SET available = available + 1 WHERE account = 'ann'`)
		exec(t, db, horizon.sql)
		closes(horizon.when, horizon.closed)
		exec(t, db, `UPDATE closed_accounts SET available = 1000 WHERE account = 'ann'`)
	}

	finds := func(when, account string) {
		t.Helper()
		if in, err := books.Integrity(t.Context()); err != nil || in.Valid || in.FirstBadAccount != account {
			t.Errorf("%s: %+v, %v", when, in, err)
		}
	}
	// What a nested transaction writes has a number that no snapshot tells.
	tx, err := sessionOf(t, db).Begin(t.Context())
	testwait.Must(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	testwait.Must(t, testwait.Err(tx.Exec(t.Context(), `SAVEPOINT a; UPDATE accounts SET available = available + 7 WHERE id = 'ann'; RELEASE a`)))
	do(t, money, ledger.Deposit{Account: "ben", Amount: 5})
	closes("beside a transaction", 1)
	testwait.Must(t, tx.Commit(t.Context()))
	finds("committed after the closing", "ann")
	for range 2 {
		if closing, err := books.CloseAccounts(t.Context(), Pace{}); err != nil || closing.Bad != 1 || closing.Balanced {
			t.Errorf("a bad account: %+v, %v", closing, err)
		}
		finds("after a closing that has seen it", "ann")
	}
	exec(t, db, `UPDATE accounts SET available = available - 7 WHERE id = 'ann'`)
	closes("after the repair", 0)                        // It is as it was closed.
	exec(t, db, `DELETE FROM accounts WHERE id = 'zoe'`) // It has entries, and no money.
	finds("an account is gone", "zoe")
}

// nextTransaction has a number that is greater than that of each row.
const nextTransaction = `pg_snapshot_xmax(pg_current_snapshot())::text::bigint`

// TestNewEntriesAreCheckedAtOnce changes what was written since the last closing.
func TestNewEntriesAreCheckedAtOnce(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"an amount":                 `UPDATE entries SET amount = amount + 1 WHERE account = 'ben' AND amount = 3`,
		"a currency":                `UPDATE entries SET currency = 'USD' WHERE account = 'ben' AND amount = 3`,
		"an entry is gone":          `DELETE FROM entries WHERE account = 'ben' AND amount = 3`,
		"an entry of no transfer":   `UPDATE entries SET transfer = gen_random_uuid() WHERE account = 'ben' AND amount = 3`,
		"another payee":             `UPDATE transfers SET destination = 'zoe' WHERE amount = 3`,
		"a transfer's amount":       `UPDATE transfers SET amount = 4 WHERE amount = 3`,
		"a transfer that failed":    `UPDATE transfers SET status = 'failed' WHERE amount = 3`,
		"an outside entry is gone":  `DELETE FROM entries WHERE account LIKE 'outside/%' AND amount = -5`,
		"an account that was never": `INSERT INTO accounts VALUES ('eve', 'EUR', 1, 0, 1, now())`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := tampered(t)
			books := large(db)
			money := newLedgerService(t, db)
			fund(t, money, 1000, "ann", "ben")
			recounted(t, books, true)
			do(t, money, ledger.MakeTransfer{From: "ann", To: "ben", Amount: 3})
			do(t, money, ledger.Deposit{Account: "ann", Amount: 5})
			if in, err := books.Integrity(t.Context()); err != nil || !in.Valid {
				t.Fatalf("%+v, %v", in, err)
			}
			exec(t, db, sql)
			if in, err := books.Integrity(t.Context()); err != nil || in.Valid {
				t.Errorf("%+v, %v", in, err)
			}
			if closing, err := books.CloseAccounts(t.Context(), Pace{}); err != nil {
				t.Errorf("%+v, %v", closing, err)
			}
			if in, err := books.Integrity(t.Context()); err != nil || in.Valid {
				t.Errorf("after a closing, which must not hide it: %+v, %v", in, err)
			}
			recounted(t, books, false)
		})
	}
}
