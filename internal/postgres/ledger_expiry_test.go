package postgres

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// expiring makes accounts with open holds whose time is over, and returns the holds by account.
func expiring(t *testing.T, db *DB, accounts, each int) map[string][]uuid.UUID {
	t.Helper()
	holds := map[string][]uuid.UUID{}
	store := NewLedger(db)
	for i := range accounts {
		id := fmt.Sprintf("holder-%03d", i)
		if err := store.Commit(t.Context(), ledger.Want{Accounts: []string{id}}, func(u *ledger.Unit) {
			holds[id] = nil
			ops := []ledger.Op{ledger.CreateAccount{ID: id, Currency: "EUR"}, ledger.Deposit{Account: id, Amount: 1_000_000}}
			for range each {
				ops = append(ops, ledger.PlaceHold{Account: id, Amount: 10, ExpiresIn: new(time.Duration)})
			}
			for _, op := range ops {
				done, err := ledger.Decide(u.Book, op)
				testwait.Check(t, err)
				if h, ok := done.(ledger.Hold); ok {
					holds[id] = append(holds[id], h.ID)
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	pastDue(t, db)
	return holds
}

// pastDue waits until the time of holds that were placed for no time is over by the database's clock. A commit that reads nothing
// writes the latest time that it may be, which is ahead by as much as this process's view of that clock is uncertain.
func pastDue(t *testing.T, db *DB) {
	t.Helper()
	testwait.Eventually(t, patience, "the holds are past due", func() bool {
		return ask[int](t, db, `SELECT count(*) FROM holds WHERE expires_at BETWEEN clock_timestamp() AND clock_timestamp() + interval '1 minute'`) == 0
	})
}

// left is how many holds are open.
func left(t *testing.T, db *DB) int {
	t.Helper()
	return ask[int](t, db, `SELECT count(*) FROM holds WHERE status = 'open'`)
}

// sweep sweeps once, and must end.
func sweep(t *testing.T, s *ledger.Service) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n, err := s.Sweep(ctx)
	if err != nil {
		t.Errorf("sweep: %v", err)
	}
	return n
}

// TestSweepTakesPages counts transactions: far fewer than holds.
func TestSweepTakesPages(t *testing.T) {
	t.Parallel()
	seen := &recorder{}
	db := open(t, Options{URL: database(t), Observer: seen})
	s := newLedgerService(t, db)
	expiring(t, db, 20, 100)
	_, before, _ := seen.seen()
	if n := sweep(t, s); n != 2000 {
		t.Errorf("closed %d", n)
	}
	_, after, _ := seen.seen()
	if n := len(after) - len(before); n > 20 || left(t, db) > 0 {
		t.Errorf("%d transactions for 2000 holds, of which %d are left", n, left(t, db))
	}
}

// TestSweepWaitsForNobody has accounts and holds locked from outside, as by a psql that was left alone and by another server
// that is in the middle of a page. They are more than a page, and the first by expiry.
func TestSweepWaitsForNobody(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]string{
		"account": `SELECT FROM accounts WHERE id = 'holder-000' FOR UPDATE`,
		"holds":   `SELECT FROM hold_rows WHERE account = 'holder-000' FOR UPDATE`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := database(t)
			db := open(t, Options{URL: url})
			s := newLedgerService(t, db)
			expiring(t, db, 1, 1500)
			fund(t, s, 1000, "ann")
			for range 3 {
				do(t, s, ledger.PlaceHold{Account: "ann", Amount: 10, ExpiresIn: new(time.Duration)})
			}
			pastDue(t, db)
			around := pgtest.Connect(t, url)
			tx, err := around.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			testwait.Must(t, testwait.Err(tx.Exec(t.Context(), lock)))
			if n := sweep(t, s); n != 3 || left(t, db) != 1500 {
				t.Errorf("closed %d of the others, %d are left", n, left(t, db))
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := sweep(t, s); n != 1500 || left(t, db) != 0 {
				t.Errorf("closed %d afterwards, %d are left", n, left(t, db))
			}
		})
	}
}

// TestSweepsMeetCaptures sweeps by several servers while the holds are captured, and stops sweeps between pages. Each hold ends
// once, and the audit at the end finds no money missing.
func TestSweepsMeetCaptures(t *testing.T) {
	t.Parallel()
	url := database(t)
	db := open(t, Options{URL: url})
	holds := expiring(t, db, 10, 400)
	var (
		group  sync.WaitGroup
		mu     sync.Mutex
		closed int
	)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		seen := &recorder{}
		s := newLedgerService(t, open(t, Options{URL: url, Observer: seen}))
		group.Go(func() {
			n, _ := s.Sweep(ctx) // One of them is stopped.
			mu.Lock()
			defer mu.Unlock()
			closed += n
			cancel()
		})
	}
	s := newLedgerService(t, db)
	refused := 0
	for account, ids := range holds {
		for _, id := range ids[:20] {
			// Its time is over: the capture closes it as expired, if the sweeper has not.
			if a, err := s.Execute(t.Context(), own[ledger.Op](ledger.CaptureHold{Hold: id, To: "holder-000"})); err != nil || a.Err == nil {
				t.Errorf("capture of %s: %v, %v", account, err, a.Err)
			}
			refused++
		}
	}
	group.Wait()
	closed += sweep(t, s)
	if left(t, db) != 0 || closed > 4000 || closed < 4000-refused {
		t.Errorf("swept %d of 4000, %d are left", closed, left(t, db))
	}
	if n := ask[int](t, db, `SELECT count(*) FROM holds WHERE status = 'expired'`); n != 4000 {
		t.Errorf("%d have expired", n)
	}
}

// TestSweepsAreFast is a promise about time, for a machine that has nothing else to do.
func TestSweepsAreFast(t *testing.T) {
	t.Parallel()
	if os.Getenv("FAIRLEAD_TORTURE") == "" {
		t.Skip("FAIRLEAD_TORTURE is not set")
	}
	const limit = 15 * time.Second
	db := open(t, Options{URL: database(t)})
	expiring(t, db, 100, 1000)
	began := time.Now()
	if n := sweep(t, newLedgerService(t, db)); n != 100_000 || time.Since(began) > limit {
		t.Errorf("closed %d in %s", n, time.Since(began))
	}
}
