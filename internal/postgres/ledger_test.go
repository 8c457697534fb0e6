package postgres

import (
	"context"
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

func result[T any](t *testing.T, v any) T {
	t.Helper()
	r, ok := v.(T)
	if !ok {
		t.Fatalf("result is a %T", v)
	}
	return r
}

func TestWhatWasDecidedIsReadBack(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	s := newLedgerService(t, db)
	ctx := t.Context()
	fund(t, s, 0, "ann", "ben")
	in := result[ledger.Movement](t, do(t, s, ledger.Deposit{Account: "ann", Amount: 100, Memo: "salary"}))
	over := result[ledger.Transfer](t, do(t, s, ledger.MakeTransfer{From: "ann", To: "ben", Amount: 30, Memo: "rent"}))
	hold := result[ledger.Hold](t, do(t, s, ledger.PlaceHold{Account: "ann", Amount: 20}))
	captured := result[ledger.Hold](t, do(t, s, ledger.CaptureHold{Hold: hold.ID, To: "ben"}))
	released := result[ledger.Hold](t, do(t, s, ledger.ReleaseHold{Hold: result[ledger.Hold](t, do(t, s, ledger.PlaceHold{Account: "ann", Amount: 5})).ID}))
	refused, err := s.Execute(ctx, own[ledger.Op](ledger.MakeTransfer{From: "ben", To: "ann", Amount: 51}))
	short, ok := errors.AsType[*ledger.InsufficientFundsError](refused.Err)
	if err != nil || !ok {
		t.Fatalf("refused with %v, %v", refused.Err, err)
	}

	for _, want := range []ledger.Transfer{in.Transfer, over} {
		got, err := s.Transfer(ctx, want.ID)
		want.CreatedAt = want.CreatedAt.Truncate(time.Microsecond)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("transfer %+v, want %+v, %v", got, want, err)
		}
	}
	if got, err := s.Transfer(ctx, *short.Transfer); err != nil || got.Status != ledger.TransferFailed || got.Reason != ledger.ReasonInsufficientFunds {
		t.Errorf("failed intent %+v, %v", got, err)
	}
	for _, want := range []ledger.Hold{captured, released} {
		got, err := s.Hold(ctx, want.ID)
		if err != nil || got.Status != want.Status || got.Captured != want.Captured || got.Account != "ann" ||
			!got.ClosedAt.Equal(want.ClosedAt.Truncate(time.Microsecond)) || !reflect.DeepEqual(got.Transfer, want.Transfer) {
			t.Errorf("hold %+v, want %+v, %v", got, want, err)
		}
	}
	checkStatement(t, s)
	if _, err := s.Account(ctx, "nobody"); !errors.As(err, new(*ledger.AccountNotFoundError)) {
		t.Errorf("absent account: %v", err)
	}
	if _, err := s.Transfer(ctx, uuid.Max); !errors.As(err, new(*ledger.TransferNotFoundError)) {
		t.Errorf("absent transfer: %v", err)
	}
	if _, err := s.Hold(ctx, uuid.Max); !errors.As(err, new(*ledger.HoldNotFoundError)) {
		t.Errorf("absent hold: %v", err)
	}
}

// checkStatement pages through the entries of the test above.
func checkStatement(t *testing.T, s *ledger.Service) {
	t.Helper()
	a, err := s.Account(t.Context(), "ann")
	if err != nil || a.Available != 50 || a.Held != 0 {
		t.Errorf("ann %+v, %v", a, err)
	}
	var amounts []int64
	after := int64(0)
	for {
		page, err := s.Entries(t.Context(), "ann", after, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			if e.Version <= after || e.Account != "ann" || e.Currency != "EUR" {
				t.Errorf("entry %+v after %d", e, after)
			}
			amounts, after = append(amounts, e.Amount), e.Version
		}
	}
	if want := []int64{100, -30, -20}; !reflect.DeepEqual(amounts, want) || after > a.Version {
		t.Errorf("entries %v, want %v", amounts, want)
	}
}

// TestOpposedTransfersOfTwoProcesses moves money back and forth between few accounts, from both ends at once.
func TestOpposedTransfersOfTwoProcesses(t *testing.T) {
	t.Parallel()
	url := database(t)
	services := []*ledger.Service{newLedgerService(t, open(t, Options{URL: url})), newLedgerService(t, open(t, Options{URL: url}))}
	ids := []string{"a", "b", "c", "d"}
	fund(t, services[0], 1000, ids...)
	ctx, cancel := context.WithCancel(t.Context())
	var watcher, group sync.WaitGroup
	watcher.Go(func() { // Every snapshot in between is whole.
		for ctx.Err() == nil {
			if i, err := services[0].Integrity(t.Context()); err != nil || !i.Valid || i.Currencies[0].Available.Int64()+i.Currencies[0].Held.Int64() != 4000 {
				t.Errorf("integrity %+v, %v", i, err)
				return
			}
		}
	})
	for w := range 8 {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 7))
			for range 40 {
				from := rng.IntN(len(ids))
				to := (from + 1 + rng.IntN(len(ids)-1)) % len(ids)
				op := ledger.MakeTransfer{From: ids[from], To: ids[to], Amount: 1 + rng.Int64N(600)}
				a, err := services[w%2].Execute(t.Context(), own[ledger.Op](op))
				if _, short := errors.AsType[*ledger.InsufficientFundsError](a.Err); err != nil || (a.Err != nil && !short) {
					t.Errorf("%+v: %v, %v", op, err, a.Err)
				}
			}
		})
	}
	group.Wait()
	cancel()
	watcher.Wait()
}

func TestSweepExpiresHoldsOnce(t *testing.T) {
	t.Parallel()
	url := database(t)
	db := open(t, Options{URL: url})
	services := []*ledger.Service{newLedgerService(t, db), newLedgerService(t, open(t, Options{URL: url}))}
	fund(t, services[0], 100, "ann")
	var due []uuid.UUID
	for range 5 {
		due = append(due, result[ledger.Hold](t, do(t, services[0], ledger.PlaceHold{Account: "ann", Amount: 10, ExpiresIn: new(time.Duration)})).ID)
	}
	hour := time.Hour
	do(t, services[0], ledger.PlaceHold{Account: "ann", Amount: 7, ExpiresIn: &hour})
	do(t, services[0], ledger.PlaceHold{Account: "ann", Amount: 3})
	pastDue(t, db)
	var (
		group  sync.WaitGroup
		mu     sync.Mutex
		closed int
	)
	for _, s := range services {
		group.Go(func() {
			n, err := s.Sweep(t.Context())
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			closed += n
		})
	}
	group.Wait()
	// Each of the two may have passed over what the other had locked.
	n, err := services[0].Sweep(t.Context())
	if closed += n; err != nil || closed != len(due) {
		t.Errorf("closed %d of %d: %v", closed, len(due), err)
	}
	if a, err := services[0].Account(t.Context(), "ann"); err != nil || a.Available != 90 || a.Held != 10 {
		t.Errorf("ann %+v, %v", a, err)
	}
	for _, id := range due {
		if h, err := services[0].Hold(t.Context(), id); err != nil || h.Status != ledger.HoldExpired {
			t.Errorf("hold %+v, %v", h, err)
		}
	}
}

// corruptible is a database for tests that break it: it is not audited. Three accounts, a transfer, two holds.
func corruptible(ctx context.Context, url string) error {
	if err := migrated(ctx, url); err != nil {
		return err
	}
	db, err := Open(ctx, Options{URL: url})
	if err != nil {
		return err
	}
	defer db.Close()
	store := NewLedger(db)
	return store.Commit(ctx, ledger.Want{}, func(u *ledger.Unit) {
		for _, op := range []ledger.Op{
			ledger.CreateAccount{ID: "ann", Currency: "EUR"},
			ledger.CreateAccount{ID: "ben", Currency: "EUR"},
			ledger.CreateAccount{ID: "cleo", Currency: "USD"},
			ledger.Deposit{Account: "ann", Amount: 100},
			ledger.Deposit{Account: "cleo", Amount: 50},
			ledger.MakeTransfer{From: "ann", To: "ben", Amount: 40},
			ledger.PlaceHold{Account: "ann", Amount: 10},
			ledger.PlaceHold{Account: "ben", Amount: 5},
			ledger.Withdraw{Account: "cleo", Amount: 20},
			ledger.MakeTransfer{From: "ben", To: "ann", Amount: 4000},
		} {
			_, _ = ledger.Decide(u.Book, op) // The last is refused.
		}
	})
}

func TestIntegritySumsPastSixtyFourBits(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	s := newLedgerService(t, db)
	if i, err := s.Integrity(t.Context()); err != nil || !i.Valid || len(i.Currencies) != 0 {
		t.Errorf("an empty ledger: %+v, %v", i, err)
	}
	fund(t, s, math.MaxInt64, "ann", "ben")
	do(t, s, ledger.PlaceHold{Account: "ben", Amount: math.MaxInt64})
	do(t, s, ledger.Withdraw{Account: "ann", Amount: math.MaxInt64})
	do(t, s, ledger.Deposit{Account: "ann", Amount: math.MaxInt64})
	i, err := s.Integrity(t.Context())
	if err != nil || !i.Valid || len(i.Currencies) != 1 || time.Since(i.CheckedAt).Abs() > time.Hour {
		t.Fatalf("%+v, %v", i, err)
	}
	c, most := i.Currencies[0], big.NewInt(math.MaxInt64)
	if c.Currency != "EUR" || c.Deposits.Cmp(new(big.Int).Mul(most, big.NewInt(3))) != 0 || c.Withdrawals.Cmp(most) != 0 ||
		c.Available.Cmp(most) != 0 || c.Held.Cmp(most) != 0 || c.Difference.Sign() != 0 {
		t.Errorf("%+v", c)
	}
}
