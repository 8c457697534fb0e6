package ledger_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// unknownOp is an operation that the ledger does not have. It embeds one that it has, to be one of them by type.
type unknownOp struct{ ledger.Deposit }

func TestAccountsAndHoldsThatAnOperationNames(t *testing.T) {
	t.Parallel()
	hold := uuid.MustParse("00000000-0000-0000-0000-000000000007")
	for _, c := range []struct {
		op       ledger.Op
		accounts []string
		hold     bool
	}{
		{ledger.CreateAccount{ID: "a"}, []string{"a"}, false},
		{ledger.Deposit{Account: "a"}, []string{"a"}, false},
		{ledger.Withdraw{Account: "a"}, []string{"a"}, false},
		{ledger.MakeTransfer{From: "a", To: "b"}, []string{"a", "b"}, false},
		{ledger.PlaceHold{Account: "a"}, []string{"a"}, false},
		{ledger.CaptureHold{Hold: hold, To: "b"}, []string{"b"}, true},
		{ledger.ReleaseHold{Hold: hold}, nil, true},
	} {
		if got := ledger.Accounts(c.op); !reflect.DeepEqual(got, c.accounts) {
			t.Errorf("%T names accounts %v, want %v", c.op, got, c.accounts)
		}
		got, ok := ledger.HoldOf(c.op)
		if ok != c.hold || (ok && got != hold) {
			t.Errorf("%T names hold %v %v", c.op, got, ok)
		}
	}
}

func TestDecideGivesTheDocumentedResults(t *testing.T) {
	t.Parallel()
	b := bookOf()
	decide := must[any](t)
	if a, ok := decide(ledger.Decide(b, ledger.CreateAccount{ID: "a", Currency: "EUR"})).(ledger.Account); !ok || a.ID != "a" {
		t.Errorf("account %+v", a)
	}
	decide(ledger.Decide(b, ledger.CreateAccount{ID: "b", Currency: "EUR"}))
	m, ok := decide(ledger.Decide(b, ledger.Deposit{Account: "a", Amount: 100, Memo: "m"})).(ledger.Movement)
	if !ok || m.Available != 100 || m.Account != "a" || m.Transfer.Kind != ledger.KindDeposit || m.Transfer.Memo != "m" {
		t.Errorf("deposit %+v", m)
	}
	m, ok = decide(ledger.Decide(b, ledger.Withdraw{Account: "a", Amount: 30})).(ledger.Movement)
	if !ok || m.Available != 70 || m.Transfer.Kind != ledger.KindWithdrawal {
		t.Errorf("withdrawal %+v", m)
	}
	tr, ok := decide(ledger.Decide(b, ledger.MakeTransfer{From: "a", To: "b", Amount: 20, Memo: "x"})).(ledger.Transfer)
	if !ok || tr.Amount != 20 || tr.Kind != ledger.KindTransfer || tr.Memo != "x" {
		t.Errorf("transfer %+v", tr)
	}
	h, ok := decide(ledger.Decide(b, ledger.PlaceHold{Account: "a", Amount: 10})).(ledger.Hold)
	if !ok || h.Status != ledger.HoldOpen {
		t.Errorf("hold %+v", h)
	}
	// Without an amount all of it is captured.
	h, ok = decide(ledger.Decide(b, ledger.CaptureHold{Hold: h.ID, To: "b"})).(ledger.Hold)
	if !ok || h.Captured != 10 {
		t.Errorf("captured %+v", h)
	}
	h, ok = decide(ledger.Decide(b, ledger.PlaceHold{Account: "a", Amount: 10})).(ledger.Hold)
	if !ok {
		t.Fatal("no hold")
	}
	if b.Expire(h.ID) {
		t.Error("expired without a time to")
	}
	if h, ok := decide(ledger.Decide(b, ledger.ReleaseHold{Hold: h.ID})).(ledger.Hold); !ok || h.Status != ledger.HoldReleased {
		t.Errorf("released %+v", h)
	}
	balance(t, b, "a", 40, 0)
	balance(t, b, "b", 30, 0)
}

func TestATransferWithoutFundsLeavesItsIntent(t *testing.T) {
	t.Parallel()
	b := bookOf(account("a", "EUR", 9, 100, 3), account("b", "EUR", 0, 0, 1))
	result, err := ledger.Decide(b, ledger.MakeTransfer{From: "a", To: "b", Amount: 10, Memo: "rent"})
	short, ok := errors.AsType[*ledger.InsufficientFundsError](err)
	if !ok || result != nil {
		t.Fatalf("%v, %v", result, err)
	}
	c := b.Changes()
	if len(c.Transfers) != 1 || len(c.Entries) != 0 || len(c.UpdatedAccounts) != 0 {
		t.Fatalf("changes %+v", c)
	}
	want := ledger.Transfer{
		ID: *short.Transfer, Kind: ledger.KindTransfer, From: "a", To: "b", Amount: 10, Currency: "EUR",
		Status: ledger.TransferFailed, Reason: ledger.ReasonInsufficientFunds, Memo: "rent", CreatedAt: epoch(),
	}
	if !reflect.DeepEqual(c.Transfers[0], want) {
		t.Errorf("intent %+v, want %+v", c.Transfers[0], want)
	}
	if short.Account != "a" {
		t.Errorf("blamed %s", short.Account)
	}
	// Other refusals, and withdrawals, leave nothing.
	for _, op := range []ledger.Op{
		ledger.MakeTransfer{From: "a", To: "nobody", Amount: 10},
		ledger.MakeTransfer{From: "a", To: "a", Amount: 10},
		ledger.Withdraw{Account: "a", Amount: 10},
		ledger.PlaceHold{Account: "a", Amount: 10},
		ledger.Deposit{Account: "nobody", Amount: 10},
		ledger.CaptureHold{Hold: uuid.Max, To: "a"},
	} {
		if result, err := ledger.Decide(b, op); err == nil || (result != nil && !reflect.ValueOf(result).IsZero()) {
			t.Errorf("%#v: %v, %v", op, result, err)
		}
	}
	if n := len(b.Changes().Transfers); n != 1 {
		t.Errorf("%d transfers", n)
	}
}

func TestUnknownOperationsAndHolds(t *testing.T) {
	t.Parallel()
	for _, op := range []ledger.Op{ledger.CaptureHold{Hold: uuid.Max, To: "a"}, ledger.ReleaseHold{Hold: uuid.Max}} {
		_, err := ledger.Decide(bookOf(account("a", "EUR", 0, 0, 1)), op)
		if absent, ok := errors.AsType[*ledger.HoldNotFoundError](err); !ok || absent.ID != uuid.Max {
			t.Errorf("%T: %v", op, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("an unknown operation was decided")
		}
	}()
	_, _ = ledger.Decide(bookOf(), unknownOp{})
}
