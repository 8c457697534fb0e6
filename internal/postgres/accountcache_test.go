package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/postgres/speculation"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// decided counts how often a batch was decided.
type decided struct{ runs int }

// transfer moves amount between two accounts through a store, and returns what the last decision said.
func (d *decided) transfer(t *testing.T, l *Ledger, from, to string, amount int64) error {
	t.Helper()
	d.runs = 0
	var refused error
	err := l.Commit(t.Context(), ledger.Want{Accounts: []string{from, to}}, func(u *ledger.Unit) {
		d.runs++
		_, refused = ledger.Decide(u.Book, ledger.MakeTransfer{From: from, To: to, Amount: amount})
		u.Refused = refused != nil
	})
	testwait.Must(t, err)
	return refused
}

func TestRememberedAccounts(t *testing.T) {
	url := database(t)
	db, other := open(t, Options{URL: url}), open(t, Options{URL: url})
	fund(t, newLedgerService(t, db), 100, "ann", "ben")
	here, there := NewLedger(db), NewLedger(other)
	var d decided
	balance := func(id string) int64 {
		t.Helper()
		a, err := here.Account(t.Context(), id)
		testwait.Must(t, err)
		return a.Available
	}

	// The first transfers read and set the clock; then one decision is enough.
	for range 3 {
		testwait.Must(t, d.transfer(t, here, "ann", "ben", 10))
	}
	if d.runs != 1 {
		t.Errorf("a transfer between remembered accounts was decided %d times", d.runs)
	}

	// Another process empties ann: what is remembered would still allow it.
	testwait.Must(t, d.transfer(t, there, "ann", "ben", 70))
	if _, short := errors.AsType[*ledger.InsufficientFundsError](d.transfer(t, here, "ann", "ben", 1)); !short {
		t.Error("a transfer was made from a balance that another process had spent")
	}
	if a, b := balance("ann"), balance("ben"); a != 0 || b != 200 {
		t.Errorf("ann has %d, ben %d", a, b)
	}

	// Another process fills ann: what is remembered here would refuse it. speculation.Doubtful batches go by, so that it is trusted again.
	for range speculation.Doubtful + 1 {
		testwait.Must(t, d.transfer(t, here, "ben", "ann", 1))
		testwait.Must(t, d.transfer(t, here, "ann", "ben", 1))
	}
	testwait.Must(t, d.transfer(t, there, "ben", "ann", 50))
	if err := d.transfer(t, here, "ann", "ben", 50); err != nil {
		t.Errorf("refused for want of money that is there: %v", err)
	}

	// A balance changed under the same version, as a failover that loses commits could bring about.
	for range speculation.Doubtful + 1 {
		testwait.Must(t, d.transfer(t, here, "ben", "ann", 1))
	}
	before := balance("ann")
	lie := func(by int64) {
		t.Helper()
		testwait.Must(t, testwait.Err(db.pool.Exec(t.Context(), `UPDATE accounts SET available = available + $1 WHERE id = 'ann'`, by)))
	}
	lie(7)
	testwait.Must(t, d.transfer(t, here, "ben", "ann", 1))
	if got := balance("ann"); got != before+8 || d.runs < 2 {
		t.Errorf("ann has %d after %d and 8 more; decided %d times", got, before, d.runs)
	}
	lie(-7)
}

// TestRefusalsAreChecked: what a refusal rests on changes after it was decided and before it is sent. The batch is decided again.
func TestRefusalsAreChecked(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*testing.T, *ledger.Service){
		"money comes": func(t *testing.T, there *ledger.Service) {
			t.Helper()
			do(t, there, ledger.Deposit{Account: "ann", Amount: 1000})
		},
		"an account is opened": func(t *testing.T, there *ledger.Service) {
			t.Helper()
			do(t, there, ledger.CreateAccount{ID: "new", Currency: "EUR"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, seen := database(t), &recorder{}
			here := open(t, Options{URL: url, Observer: seen})
			there := newLedgerService(t, open(t, Options{URL: url}))
			waitLong(here)
			fund(t, there, 100, "ann", "ben")
			move := ledger.MakeTransfer{From: "ann", To: "ben", Amount: 500}
			if name == "an account is opened" {
				move.To, move.Amount = "new", 50
			}
			knowTheTime(t, here)
			runs, refused := 0, error(nil)
			err := NewLedger(here).Commit(t.Context(), ledger.Want{Accounts: []string{move.From, move.To}}, func(u *ledger.Unit) {
				if runs++; runs == 1 {
					change(t, there)
				}
				_, refused = ledger.Decide(u.Book, move)
				if u.Refused = refused != nil; runs == 1 && !u.Refused {
					t.Error("the first decision does not refuse")
				}
			})
			if err != nil || refused != nil || runs != 2 || seen.fallbacks()[speculation.Stale] != 1 {
				t.Errorf("%v, refused for %v, decided %d times, fallbacks %v", err, refused, runs, seen.fallbacks())
			}
		})
	}
}

// TestMissedKeysAreChecked: another process decides under a key after a command was refused under it and before that is sent. The
// refusal leaves no record, and yet the batch is decided again.
func TestMissedKeysAreChecked(t *testing.T) {
	t.Parallel()
	url, seen := database(t), &recorder{}
	here, there := open(t, Options{URL: url, Observer: seen}), NewLedger(open(t, Options{URL: url}))
	waitLong(here)
	fund(t, newLedgerService(t, here), 100, "ann")
	knowTheTime(t, here)
	request := idempotency.Request{
		ID: idempotency.NewID("p", "POST", "/", "k"), Fingerprint: idempotency.NewFingerprint([]byte("content")), Execution: newID(),
	}
	runs, known := 0, false
	want := ledger.Want{Accounts: []string{"ann"}, Keys: []idempotency.ID{request.ID}}
	err := NewLedger(here).Commit(t.Context(), want, func(u *ledger.Unit) {
		if runs++; runs == 1 {
			testwait.Must(t, there.Commit(t.Context(), ledger.Want{Keys: want.Keys}, func(u *ledger.Unit) { u.Keys.Store(request, 201, nil) }))
		}
		_, known, _ = u.Keys.Lookup(request)
		u.Refused = !known
	})
	if err != nil || !known || runs != 2 || seen.fallbacks()[speculation.Stale] != 1 {
		t.Errorf("%v, known: %t, decided %d times, fallbacks %v", err, known, runs, seen.fallbacks())
	}
}

// TestRefusalBesideReferences: a transfer that was made under a reference is not refused when it is asked for again, though its money
// has gone.
func TestRefusalBesideReferences(t *testing.T) {
	t.Parallel()
	url := database(t)
	db := open(t, Options{URL: url})
	here, there := newLedgerService(t, db), newLedgerService(t, open(t, Options{URL: url}))
	fund(t, there, 100, "ann", "ben")
	move := ledger.MakeTransfer{From: "ann", To: "ben", Amount: 60, Reference: "order 1"}
	do(t, there, move)
	knowTheTime(t, db)
	if again, repeats := do(t, here, move).(ledger.Repeated); !repeats {
		t.Errorf("the repeat: %+v", again)
	}
}

// TestTrustedKeys shows that a first run which does not read the keys' records repeats nothing.
func TestTrustedKeys(t *testing.T) {
	url := database(t)
	db := open(t, Options{URL: url})
	fund(t, newLedgerService(t, db), 100, "ann", "ben")
	store := NewLedger(db)
	key := idempotency.Request{ID: idempotency.NewID("p", "POST", "/x", "k"), Fingerprint: idempotency.NewFingerprint([]byte("a"))}
	commit := func(r idempotency.Request, op ledger.MakeTransfer) (answer idempotency.Answer, failed error) {
		t.Helper()
		err := store.Commit(t.Context(), ledger.Want{Accounts: []string{op.From, op.To}, Keys: []idempotency.ID{r.ID}}, func(u *ledger.Unit) {
			var known bool
			if answer, known, failed = u.Keys.Lookup(r); known || failed != nil {
				return
			}
			made, err := u.Book.Move(ledger.KindTransfer, op.From, op.To, op.Amount, "")
			if err != nil {
				failed, u.Refused = err, true // Not stored: an absent account.
				return
			}
			u.Keys.Store(r, 201, fmt.Appendf(nil, `{"id":%q,"from":%q,"to":%q,"amount":%d,"currency":%q,"status":"completed"}`,
				made.ID, made.From, made.To, made.Amount, made.Currency))
		})
		testwait.Must(t, err)
		return answer, failed
	}
	move := ledger.MakeTransfer{From: "ann", To: "ben", Amount: 10}
	for range 4 {
		testwait.Must(t, testwait.Err(commit(key, move)))
	}
	if a, err := commit(key, move); err != nil || !strings.Contains(string(a.Body), `"completed"`) {
		t.Errorf("a repeat is answered %+v, %v", a, err)
	}
	reused := key
	reused.Fingerprint = idempotency.NewFingerprint([]byte("b"))
	if _, err := commit(reused, ledger.MakeTransfer{From: "nobody", To: "ben", Amount: 10}); !errors.Is(err, idempotency.ErrKeyReused) {
		t.Errorf("a key that is reused on an absent account: %v", err)
	}
	n, err := query(t.Context(), db, pgx.RowTo[int], `SELECT count(*)::integer FROM transfers WHERE kind = 'transfer'`)
	if err != nil || n[0] != 1 {
		t.Errorf("%v transfers, %v", n, err)
	}
}

// Transactions that did not lock their accounts beforehand lock them by writing, in canonical order: or two processes
// with the same accounts could wait for each other.
func TestRememberedAccountsAreLockedInOrder(t *testing.T) {
	for name, prepare := range map[string]string{"unknown size": "SELECT 1", "known size": "ANALYZE accounts"} {
		for _, share := range []int{40, 20, 4} {
			t.Run(fmt.Sprintf("%s, %d of 40", name, share), func(t *testing.T) {
				url := database(t)
				db := open(t, Options{URL: url})
				waitLong(db)
				ids := make([]string, 40)
				for i := range ids {
					ids[len(ids)-1-i] = fmt.Sprintf("a%02d", i) // The rows lie in the opposite order.
				}
				fund(t, newLedgerService(t, db), 100, ids...)
				exec(t, db, prepare)
				slices.Sort(ids)
				step := len(ids) / share
				here, used := NewLedger(db), []string{}
				for i := range share {
					used = append(used, ids[i*step])
				}
				decisions := 0
				move := func() error {
					return here.Commit(t.Context(), ledger.Want{Accounts: slices.Clone(used)}, func(u *ledger.Unit) {
						decisions++
						for i := range share / 2 {
							testwait.Check(t, testwait.Err(ledger.Decide(u.Book, ledger.MakeTransfer{From: used[i], To: used[share-1-i], Amount: 1})))
						}
					})
				}
				for range 8 { // The plan of a prepared statement settles after a few runs.
					testwait.Must(t, move())
				}

				blocker, err := sessionOf(t, db).Begin(t.Context())
				testwait.Must(t, err)
				middle := used[share/2]
				testwait.Must(t, testwait.Err(blocker.Exec(t.Context(), `SELECT 1 FROM accounts WHERE id = $1 FOR UPDATE`, middle)))
				decisions = 0
				done := make(chan error, 1)
				go func() { done <- move() }()
				testwait.Eventually(t, patience, "the transfer waits for the locked account", func() bool {
					return ask[bool](t, db, `SELECT EXISTS (SELECT FROM pg_stat_activity
						WHERE datname = current_database() AND wait_event_type = 'Lock')`)
				})
				locked := ask[[]string](t, db, `SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM accounts WHERE id <> $1
					AND id NOT IN (SELECT id FROM accounts FOR UPDATE SKIP LOCKED)`, middle)
				if want := used[:share/2]; !slices.Equal(locked, want) {
					t.Errorf("while it waits for %s it has locked %v, want %v", middle, locked, want)
				}
				testwait.Must(t, blocker.Rollback(t.Context()))
				if err := <-done; err != nil || decisions != 1 {
					t.Errorf("the transfer: %v after %d decisions; this test means the optimistic way", err, decisions)
				}
			})
		}
	}
}
