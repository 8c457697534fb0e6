package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestOneKeyFromTwoProcesses sends one request many times, at once, over two pools that know nothing of each other.
func TestOneKeyFromTwoProcesses(t *testing.T) {
	t.Parallel()
	url := database(t)
	db := open(t, Options{URL: url})
	services := []*ledger.Service{newLedgerService(t, db), newLedgerService(t, open(t, Options{URL: url}))}
	fund(t, services[0], 100, "ann", "ben")
	for name, op := range map[string]ledger.Op{
		"transfer": ledger.MakeTransfer{From: "ann", To: "ben", Amount: 30},
		"refusal":  ledger.MakeTransfer{From: "ben", To: "ann", Amount: 1000},
		"account":  ledger.CreateAccount{ID: "cleo", Currency: "EUR"}, // Nothing is there yet that could be locked.
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var (
				group    sync.WaitGroup
				executed atomic.Int64
				bodies   sync.Map
			)
			for n := range 24 {
				group.Go(func() {
					a, err := services[n%2].Execute(t.Context(), keyed(op, name, "same"))
					if err != nil {
						t.Error(err)
						return
					}
					if !a.Replayed {
						executed.Add(1)
					}
					bodies.Store(string(a.Body), a.Status)
				})
			}
			group.Wait()
			if n := executed.Load(); n != 1 {
				t.Errorf("%d requests were told that they were executed", n)
			}
			different := 0
			bodies.Range(func(any, any) bool { different++; return true })
			if different != 1 {
				t.Errorf("%d different answers", different)
			}
			reused, err := services[1].Execute(t.Context(), keyed(op, name, "another content"))
			if err != nil || string(reused.Body) != `{"detail":"`+idempotency.ErrKeyReused.Error()+`"}` {
				t.Errorf("reused: %s, %v", reused.Body, err)
			}
		})
	}
	t.Cleanup(func() { // After the parallel parts, when the test's own context is over.
		if t.Failed() {
			return
		}
		if a, err := services[0].Account(context.WithoutCancel(t.Context()), "ann"); err != nil || a.Available != 70 {
			t.Errorf("ann has %+v, %v", a, err)
		}
	})
}

// TestAKeyWrittenMeanwhile has another process decide under the key after this one has looked for it.
func TestAKeyWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	url := database(t)
	seen := &recorder{}
	db, other := open(t, Options{URL: url, Observer: seen}), open(t, Options{URL: url})
	fund(t, newLedgerService(t, other), 100, "ann", "ben")
	theirs := keyed[ledger.Op](ledger.Deposit{Account: "ben", Amount: 1}, "k", "")
	ours := keyed[ledger.Op](ledger.Deposit{Account: "ann", Amount: 1}, "k", "")
	runs := 0
	var answer command.Answer
	store := NewLedger(db)
	batch := []command.Command[ledger.Op]{ours}
	err := store.Commit(t.Context(), ledger.Want{Accounts: []string{"ann"}, Keys: command.Keys(batch)}, func(u *ledger.Unit) {
		if runs++; runs == 1 {
			commitOne(t, NewLedger(other), theirs, "ben")
		}
		answer = command.Decide(batch, u.Keys, func(c command.Command[ledger.Op]) (any, error) { return ledger.Decide(u.Book, c.Op) })[0]
	})
	if err != nil || runs != 2 || !answer.Replayed || answer.Status != 201 {
		t.Errorf("%d runs, answer %+v, %v", runs, answer, err)
	}
	expectRuns(t, seen, "committed", pgkit.UniqueViolation)
	for id, want := range map[string]int64{"ann": 100, "ben": 101} {
		if a, err := store.Account(t.Context(), id); err != nil || a.Available != want {
			t.Errorf("%s has %+v, %v", id, a, err)
		}
	}
}

// commitOne executes one command straight on a store.
func commitOne(t *testing.T, store *Ledger, c command.Command[ledger.Op], accounts ...string) {
	t.Helper()
	batch := []command.Command[ledger.Op]{c}
	if err := store.Commit(t.Context(), ledger.Want{Accounts: accounts, Keys: command.Keys(batch)}, func(u *ledger.Unit) {
		command.Decide(batch, u.Keys, func(c command.Command[ledger.Op]) (any, error) { return ledger.Decide(u.Book, c.Op) })
	}); err != nil {
		t.Error(err)
	}
}

// TestStoredKeys compares the estimate with a count: while PostgreSQL has its counters, and after it has lost them, as in a crash.
func TestStoredKeys(t *testing.T) {
	t.Parallel()
	url := database(t)
	db := open(t, Options{URL: url})
	if ask[int](t, db, `SELECT current_setting('server_version_num')::int`) < 150000 {
		t.Skip("before PostgreSQL 15 a session tells its counters with its next transaction, which here is none")
	}
	s := newLedgerService(t, db)
	// An ANALYZE that begins now and ends later would be right about a moment that is over.
	if _, err := db.pool.Exec(t.Context(), `ALTER TABLE idempotency_keys SET (autovacuum_enabled = off)`); err != nil {
		t.Fatal(err)
	}
	fund(t, s, 1000, "ann")
	for n := range 30 {
		if _, err := s.Execute(t.Context(), keyed[ledger.Op](ledger.Deposit{Account: "ann", Amount: 1}, fmt.Sprint(n), "")); err != nil {
			t.Fatal(err)
		}
	}
	want := ask[int64](t, db, `SELECT count(*) FROM idempotency_keys`)
	becomes := func(when string) {
		t.Helper()
		var got int64
		testwait.Eventually(t, testwait.Patience, when, func() bool {
			var err error
			got, err = db.StoredKeys(t.Context())
			testwait.Must(t, err)
			return got == want
		})
	}
	becomes("the estimate is the count")
	ask[string](t, db, `WITH gone AS (DELETE FROM idempotency_keys RETURNING 1) SELECT count(*)::text FROM gone`)
	want = 0
	becomes("nothing is left")
	if _, err := s.Execute(t.Context(), keyed[ledger.Op](ledger.Deposit{Account: "ann", Amount: 1}, "last", "")); err != nil {
		t.Fatal(err)
	}
	want = 1
	becomes("one more")
	if _, err := db.pool.Exec(t.Context(), `ANALYZE idempotency_keys`); err != nil {
		t.Fatal(err)
	}
	if _, err := db.pool.Exec(t.Context(), `SELECT pg_stat_reset()`); err != nil {
		t.Fatal(err)
	}
	becomes("the counters are lost")
}
