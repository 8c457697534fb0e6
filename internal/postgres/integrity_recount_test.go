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
				closing, err := l.CloseBooks(inBooks, Pace{})
				if err != nil || closing == nil || !closing.Valid {
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
	for _, reason := range []string{"recount", "closings", "late"} {
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
			if closing, err := books.CloseBooks(t.Context(), Pace{}); err != nil {
				t.Errorf("%+v, %v", closing, err)
			}
			if in, err := books.Integrity(t.Context()); err != nil || in.Valid {
				t.Errorf("after a closing, which must not hide it: %+v, %v", in, err)
			}
			recounted(t, books, false)
		})
	}
}
