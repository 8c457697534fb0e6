package postgres

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/postgres/speculation"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// TestAccountsSharedWithinAProcess: the same accounts bid in two auctions and make transfers, all at once. None of these
// takes another for a foreign writer.
func TestAccountsSharedWithinAProcess(t *testing.T) {
	t.Parallel()
	h := newHouse(t, database(t))
	waitLong(h.db) // A machine that stalls is no stranger, and no neighbour that never ends.
	h.db.spec.Accounts.Patience = patience
	h.db.spec.Grow(maxPipelines) // As on a machine with more processors.
	money := newLedgerService(t, h.db)
	accounts := make([]string, 20)
	for i := range accounts {
		accounts[i] = fmt.Sprintf("a%02d", i)
	}
	fund(t, money, 1_000_000, append([]string{"seller"}, accounts...)...)
	one, two := h.open(nil), h.open(nil)
	before := h.retries.fallbacks()
	var all []<-chan error
	for n, account := range accounts {
		for _, id := range []uuid.UUID{one, two} {
			all = append(all, later(func() error {
				for i := range 25 {
					if _, err := h.bid(id, account, int64(1+n+len(accounts)*i)); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		all = append(all, later(func() error {
			for range 25 {
				move := ledger.MakeTransfer{From: account, To: accounts[(n+1)%len(accounts)], Amount: 1}
				if err := answerErr(money.Execute(t.Context(), own[ledger.Op](move))); err != nil {
					return err
				}
				placed, err := money.Execute(t.Context(), own[ledger.Op](ledger.PlaceHold{Account: account, Amount: 1}))
				if err = errors.Join(err, placed.Err); err != nil {
					return err
				}
				release := ledger.ReleaseHold{Hold: placed.Result.(ledger.Hold).ID} //nolint:errcheck // Else the test panics. It goes by locks.
				if err := answerErr(money.Execute(t.Context(), own[ledger.Op](release))); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	for _, done := range all {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	fell := h.retries.fallbacks()
	for _, reason := range []string{speculation.Stale, "behind", speculation.Backoff, "encode"} {
		if n := fell[reason] - before[reason]; n > 0 {
			t.Errorf("%d transactions left the fast path because of %q; in all %v", n, reason, fell)
		}
	}
}

// TestRepeatsAreNoForeignWrites: a client that sends a request again, which another server has answered, costs one
// transaction the fast path, and no more.
func TestRepeatsAreNoForeignWrites(t *testing.T) {
	t.Parallel()
	url := database(t)
	seen := &recorder{}
	here, there := open(t, Options{URL: url, Observer: seen}), open(t, Options{URL: url})
	s, other := newLedgerService(t, here), newLedgerService(t, there)
	fund(t, s, 1000, "ann", "ben", "cid", "dan")
	do(t, s, ledger.MakeTransfer{From: "ann", To: "ben", Amount: 1})
	do(t, s, ledger.MakeTransfer{From: "cid", To: "dan", Amount: 1})
	knowTheTime(t, here)
	repeated := keyed[ledger.Op](ledger.Deposit{Account: "cid", Amount: 1}, "again", "a")
	first, err := other.Execute(t.Context(), repeated)
	if err != nil {
		t.Fatal(err)
	}
	// Only the key's record tells: the account is as this process remembers it.
	exec(t, here, `UPDATE accounts SET version = version - 1, available = available - 1 WHERE id = 'cid'`)
	before := seen.fallbacks()
	again, err := s.Execute(t.Context(), repeated)
	if err != nil || string(again.Body) != string(first.Body) {
		t.Errorf("the repeat: %s, %v; first %s", again.Body, err, first.Body)
	}
	for range 5 {
		do(t, s, ledger.MakeTransfer{From: "ann", To: "ben", Amount: 1})
	}
	exec(t, here, `UPDATE accounts SET version = version + 1, available = available + 1 WHERE id = 'cid'`)
	fell := seen.fallbacks()
	for reason := range before {
		fell[reason] -= before[reason]
	}
	if fell[speculation.Backoff] > 0 || fell[speculation.Stale] > 0 || fell["key_known"] != 1 {
		t.Errorf("fallbacks %v", fell)
	}
}

// TestFirstBidsTakeTheFastPath: so do bids of every other kind. Where the machine stalls, its connection may be lost: then there is another house.
func TestFirstBidsTakeTheFastPath(t *testing.T) {
	t.Parallel()
	for _, unique := range []bool{true, false} {
		for tries := 1; firstBids(t, unique) > 0; tries++ {
			if tries == 3 {
				t.Fatal("each time, the fast path had no connection")
			}
		}
	}
}

// firstBids returns how many of the bids found no connection of the fast path.
func firstBids(t *testing.T, unique bool) (unconnected int) {
	t.Helper()
	h := newHouse(t, database(t))
	fund(t, newLedgerService(t, h.db), 1000, "seller", "ann", "ben", "cat", "dan")
	id := h.open(func(c *auction.Create) { c.UniqueAmounts = unique })
	if _, err := h.bid(id, "ann", 1); err != nil { // It reads the auction.
		t.Fatal(err)
	}
	before := h.retries.fallbacks()
	knowTheTime(t, h.db)
	for i, account := range []string{"ben", "cat", "dan", "ben", "ann"} {
		if _, err := h.bid(id, account, int64(10+i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, refused := range []struct {
		account string
		amount  int64
	}{{"ann", 1}, {"eve", 30}, {"dan", 5000}, {"seller", 40}} {
		if _, err := h.bid(id, refused.account, refused.amount); err == nil {
			t.Errorf("%+v was accepted", refused)
		}
	}
	after := h.retries.fallbacks()
	delete(before, speculation.Blocked)
	delete(after, speculation.Blocked) // A stalled machine may look like a locked row.
	if unconnected = after["connection"] - before["connection"]; unconnected == 0 && fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("unique %v: fallbacks %v, before %v", unique, after, before)
	}
	return unconnected
}

// TestRefusedTransfersTakeTheFastPath: so do holds that are placed, and a refusal takes nothing from the commands beside it.
func TestRefusedTransfersTakeTheFastPath(t *testing.T) {
	t.Parallel()
	seen := &recorder{}
	db := open(t, Options{URL: database(t), Observer: seen})
	waitLong(db) // A machine that stalls is no stranger.
	s := newLedgerService(t, db)
	fund(t, s, 100, "ann", "ben", "cat")
	do(t, s, ledger.CreateAccount{ID: "yen", Currency: "JPY"})
	expiry := time.Hour
	list := []ledger.Op{
		ledger.MakeTransfer{From: "ann", To: "ben", Amount: 1000},
		ledger.MakeTransfer{From: "ann", To: "ben", Amount: 60},
		ledger.MakeTransfer{From: "ann", To: "cat", Amount: 60}, // refused because of the one before
		ledger.MakeTransfer{From: "ann", To: "nobody", Amount: 1},
		ledger.Withdraw{Account: "cat", Amount: 101},
		ledger.CreateAccount{ID: "yen", Currency: "EUR"},
		ledger.TransferLegs{Legs: []ledger.Leg{{From: "ben", To: "ann", Amount: 1}, {From: "ben", To: "yen", Amount: 1}}},
		ledger.PlaceHold{Account: "ben", Amount: 10},
		ledger.PlaceHold{Account: "ben", Amount: 10, ExpiresIn: &expiry},
		ledger.PlaceHold{Account: "ben", Amount: 1000},
	}
	accepted := []int{1, 7, 8}
	commands := make([]command.Command[ledger.Op], len(list))
	for i, op := range list {
		commands[i] = own(op)
	}
	// The first run reads the clock.
	knowTheTime(t, db)
	before := seen.fallbacks()
	answers := s.ExecuteAll(t.Context(), commands)()
	for i, a := range answers {
		if err := errors.Join(a.Err, a.Result.Err); (err == nil) != slices.Contains(accepted, i) {
			t.Errorf("%#v: %v", list[i], err)
		}
	}
	after := seen.fallbacks()
	delete(before, speculation.Blocked)
	delete(after, speculation.Blocked) // A stalled machine may look like a locked row.
	if fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("fallbacks %v, before %v", after, before)
	}
	for id, want := range map[string][2]int64{"ann": {40, 0}, "ben": {140, 20}, "cat": {100, 0}, "yen": {0, 0}} {
		if a, err := s.Account(t.Context(), id); err != nil || a.Available != want[0] || a.Held != want[1] {
			t.Errorf("%+v, %v; want %v", a, err, want)
		}
	}
}
