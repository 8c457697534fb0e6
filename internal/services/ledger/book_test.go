package ledger_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

func TestMoveRefusalsAndTheirOrder(t *testing.T) {
	t.Parallel()
	accounts := func() *ledger.Book {
		return bookOf(account("rich", "EUR", math.MaxInt64-10, 5, 3), account("poor", "EUR", 4, 6, 7), account("usd", "USD", 9, 0, 1))
	}
	for name, c := range map[string]struct {
		from, to string
		amount   int64
		want     string
	}{
		"to itself, though absent":      {"nobody", "nobody", 1, ledger.ErrSameAccount.Error()},
		"to itself":                     {"poor", "poor", 1, ledger.ErrSameAccount.Error()},
		"from nowhere to nowhere":       {"nobody", "nowhere", 1, notFound("nobody")},
		"to nowhere":                    {"poor", "nowhere", 100, notFound("nowhere")},
		"other currency, though poor":   {"poor", "usd", 100, ledger.ErrCurrencyMismatch.Error()},
		"held money does not count":     {"poor", "rich", 5, "insufficient funds on poor"},
		"all that is available":         {"poor", "rich", 4, ""},
		"one more than fits":            {"rich", "poor", math.MaxInt64 - 10 + 1, "insufficient funds on rich"},
		"up to the largest total":       {"rich", "poor", math.MaxInt64 - 10, ""},
		"past it counts what is held":   {"rich", "full", 1, ledger.ErrBalanceOverflow.Error()},
		"the largest amount does fit":   {"rich", "empty", math.MaxInt64 - 10, ""},
		"a sum of two large ones, past": {"rich", "large", math.MaxInt64 - 10, ledger.ErrBalanceOverflow.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := accounts()
			b.LoadAccount(account("full", "EUR", math.MaxInt64-3, 3, 1))
			b.LoadAccount(account("empty", "EUR", 0, 0, 1))
			b.LoadAccount(account("large", "EUR", 11, 0, 1))
			tr, err := b.Move(ledger.KindTransfer, c.from, c.to, c.amount, "memo")
			if got := refusal(err); got != c.want {
				t.Fatalf("refused with %q, want %q", got, c.want)
			}
			changes := b.Changes()
			if err != nil {
				if len(changes.UpdatedAccounts)+len(changes.Transfers)+len(changes.Entries) != 0 {
					t.Fatalf("a refusal changed %+v", changes)
				}
				return
			}
			if len(changes.UpdatedAccounts) != 2 || len(changes.Entries) != 2 || len(changes.Transfers) != 1 {
				t.Fatalf("changes %+v", changes)
			}
			if tr.Status != ledger.TransferCompleted || tr.Amount != c.amount || tr.Memo != "memo" || !tr.CreatedAt.Equal(epoch()) {
				t.Errorf("transfer %+v", tr)
			}
		})
	}
}

func TestDepositsAndWithdrawalsMeetTheOutside(t *testing.T) {
	t.Parallel()
	b := bookOf(account("a", "EUR", 0, 0, 41))
	in := must[ledger.Transfer](t)(b.Deposit("a", 10, "salary"))
	out := must[ledger.Transfer](t)(b.Withdraw("a", 3, "cash"))
	if in.Kind != ledger.KindDeposit || in.From != "outside/EUR" || in.To != "a" {
		t.Errorf("deposit %+v", in)
	}
	if out.Kind != ledger.KindWithdrawal || out.From != "a" || out.To != "outside/EUR" {
		t.Errorf("withdrawal %+v", out)
	}
	c := b.Changes()
	type side struct {
		account string
		version int64
		amount  int64
		memo    string
	}
	want := []side{{"a", 42, 10, "salary"}, {"outside/EUR", 0, -10, "salary"}, {"a", 43, -3, "cash"}, {"outside/EUR", 0, 3, "cash"}}
	if len(c.Entries) != len(want) {
		t.Fatalf("%d entries", len(c.Entries))
	}
	for i, e := range c.Entries {
		if got := (side{e.Account, e.Version, e.Amount, e.Memo}); got != want[i] || e.Currency != "EUR" {
			t.Errorf("entry %d is %+v, want %+v", i, got, want[i])
		}
	}
	if len(c.UpdatedAccounts) != 1 || c.UpdatedAccounts[0].Version != 43 || len(c.CreatedAccounts) != 0 {
		t.Errorf("accounts %+v", c)
	}
}

func TestAmountsBelowOneAreACallersBug(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(*ledger.Book, int64){
		"move":     func(b *ledger.Book, n int64) { _, _ = b.Move(ledger.KindTransfer, "a", "b", n, "") },
		"deposit":  func(b *ledger.Book, n int64) { _, _ = b.Deposit("a", n, "") },
		"withdraw": func(b *ledger.Book, n int64) { _, _ = b.Withdraw("a", n, "") },
		"hold":     func(b *ledger.Book, n int64) { _, _ = b.PlaceHold("a", n, nil) },
		"capture":  func(b *ledger.Book, n int64) { _, _ = b.Capture(uuid.Nil, "a", n, "") },
	} {
		for _, n := range []int64{0, -1, math.MinInt64} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				defer func() {
					if recover() == nil {
						t.Errorf("%d was taken", n)
					}
				}()
				call(bookOf(account("a", "EUR", 5, 0, 1), account("b", "EUR", 5, 0, 1)), n)
			})
		}
	}
}

func TestCreatedAccountsAreCreatedOnceWithTheirFinalState(t *testing.T) {
	t.Parallel()
	b := bookOf(account("old", "EUR", 50, 0, 5))
	made := must[ledger.Account](t)(b.Open("new", "EUR"))
	if made.Version != 1 || made.Available != 0 || !made.CreatedAt.Equal(epoch()) {
		t.Errorf("opened %+v", made)
	}
	for _, id := range []string{"new", "old"} {
		if _, err := b.Open(id, "USD"); !errors.Is(err, ledger.ErrAccountExists) {
			t.Errorf("%s was opened again: %v", id, err)
		}
	}
	must[ledger.Transfer](t)(b.Move(ledger.KindTransfer, "old", "new", 20, ""))
	must[ledger.Transfer](t)(b.Move(ledger.KindTransfer, "new", "old", 5, ""))
	c := b.Changes()
	if len(c.CreatedAccounts) != 1 || c.CreatedAccounts[0].Available != 15 || c.CreatedAccounts[0].Version != 3 {
		t.Errorf("created %+v", c.CreatedAccounts)
	}
	if len(c.UpdatedAccounts) != 1 || c.UpdatedAccounts[0].Available != 35 || c.UpdatedAccounts[0].Version != 7 {
		t.Errorf("updated %+v", c.UpdatedAccounts)
	}
}

// holdBook is a book with one hold of 100 on "buyer", placed at the epoch in an earlier transaction, at a later time.
func holdBook(expires *time.Time, now time.Time) (*ledger.Book, uuid.UUID) {
	b := ledger.NewBook(now, counter())
	b.LoadAccount(account("buyer", "EUR", 40, 100, 9))
	b.LoadAccount(account("shop", "EUR", 0, 0, 1))
	b.LoadAccount(account("usd", "USD", 0, 0, 1))
	b.LoadAccount(account("full", "EUR", math.MaxInt64, 0, 1))
	h := ledger.Hold{ID: uuid.Max, Account: "buyer", Amount: 100, Status: ledger.HoldOpen, ExpiresAt: expires, CreatedAt: epoch()}
	b.LoadHold(h)
	return b, h.ID
}

func TestCapture(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		to                        string
		amount                    int64
		want                      string
		buyer, buyerHeld, shopHas int64
	}{
		"whole":          {"shop", 100, "", 40, 0, 100},
		"part":           {"shop", 99, "", 41, 0, 99},
		"one":            {"shop", 1, "", 139, 0, 1},
		"too large":      {"shop", 101, ledger.ErrCaptureTooLarge.Error(), 40, 100, 0},
		"to its owner":   {"buyer", 100, ledger.ErrSameAccount.Error(), 40, 100, 0},
		"to nobody":      {"nobody", 100, notFound("nobody"), 40, 100, 0},
		"other currency": {"usd", 100, ledger.ErrCurrencyMismatch.Error(), 40, 100, 0},
		"overflow":       {"full", 1, ledger.ErrBalanceOverflow.Error(), 40, 100, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, id := holdBook(nil, epoch())
			h, err := b.Capture(id, c.to, c.amount, "")
			if got := refusal(err); got != c.want {
				t.Fatalf("refused with %q, want %q", got, c.want)
			}
			balance(t, b, "buyer", c.buyer, c.buyerHeld)
			balance(t, b, "shop", c.shopHas, 0)
			changes := b.Changes()
			if err != nil {
				if len(changes.UpdatedAccounts)+len(changes.UpdatedHolds)+len(changes.Transfers)+len(changes.Entries) != 0 {
					t.Fatalf("a refusal changed %+v", changes)
				}
				if again := must[ledger.Hold](t)(b.Hold(id)); again.Status != ledger.HoldOpen {
					t.Errorf("a refusal left the hold %s", again.Status)
				}
				return
			}
			if h.Status != ledger.HoldCaptured || h.Captured != c.amount || h.ClosedAt == nil || *h.Transfer != changes.Transfers[0].ID {
				t.Errorf("hold %+v", h)
			}
			if len(changes.UpdatedHolds) != 1 || changes.Transfers[0].Kind != ledger.KindCapture || changes.Entries[0].Version != 10 {
				t.Errorf("changes %+v", changes)
			}
			_, captureErr := b.Capture(id, c.to, 1, "")
			_, releaseErr := b.Release(id)
			if !errors.Is(captureErr, ledger.ErrHoldClosed) || !errors.Is(releaseErr, ledger.ErrHoldClosed) {
				t.Errorf("captured again: %v; released after that: %v", captureErr, releaseErr)
			}
		})
	}
}

func TestHoldsExpireAtTheirTimeAndNotBefore(t *testing.T) {
	t.Parallel()
	deadline := epoch().Add(time.Minute)
	for name, c := range map[string]struct {
		now  time.Time
		over bool
	}{
		"a nanosecond before": {deadline.Add(-1), false},
		"at the deadline":     {deadline, true},
		"after it":            {deadline.Add(time.Hour), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, id := holdBook(&deadline, c.now)
			if got := b.Expire(id); got != c.over {
				t.Fatalf("expired: %v", got)
			}
			if c.over {
				balance(t, b, "buyer", 140, 0)
			} else {
				balance(t, b, "buyer", 40, 100)
			}

			// The next operation on an expired hold closes it.
			b, id = holdBook(&deadline, c.now)
			_, captureErr := b.Capture(id, "shop", 100, "")
			b2, id2 := holdBook(&deadline, c.now)
			_, releaseErr := b2.Release(id2)
			if !c.over {
				if captureErr != nil || releaseErr != nil {
					t.Fatalf("in time: %v, %v", captureErr, releaseErr)
				}
				return
			}
			for i, book := range []*ledger.Book{b, b2} {
				balance(t, book, "buyer", 140, 0)
				if h := must[ledger.Hold](t)(book.Hold(id)); h.Status != ledger.HoldExpired || h.ClosedAt == nil || !h.ClosedAt.Equal(c.now) {
					t.Errorf("%d: hold %+v", i, h)
				}
			}
			if !errors.Is(captureErr, ledger.ErrHoldClosed) || !errors.Is(releaseErr, ledger.ErrHoldClosed) {
				t.Errorf("too late: %v, %v", captureErr, releaseErr)
			}
		})
	}
	b, id := holdBook(nil, epoch().Add(1000*time.Hour))
	if b.Expire(id) || b.Expire(uuid.Nil) {
		t.Error("what has no end, or is not there, expired")
	}
}

func TestAHoldWithoutItsAccountIsABug(t *testing.T) {
	t.Parallel()
	b := bookOf()
	b.LoadHold(ledger.Hold{ID: uuid.Max, Account: "a", Amount: 1, Status: ledger.HoldOpen})
	defer func() {
		if recover() == nil {
			t.Error("released")
		}
	}()
	_, _ = b.Release(uuid.Max)
}

func TestCanReceive(t *testing.T) {
	t.Parallel()
	b := bookOf(account("a", "EUR", math.MaxInt64-10, 4, 1))
	for amount, want := range map[int64]string{0: "", 6: "", 7: ledger.ErrBalanceOverflow.Error()} {
		if got := refusal(b.CanReceive("a", amount)); got != want {
			t.Errorf("%d: %q, want %q", amount, got, want)
		}
	}
	if got := refusal(b.CanReceive("nobody", 1)); got != notFound("nobody") {
		t.Error(got)
	}
}
