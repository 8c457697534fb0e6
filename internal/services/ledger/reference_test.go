package ledger_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

func TestAReferenceIsTakenByWhatCompletes(t *testing.T) {
	t.Parallel()
	b := bookOf(account("a", "EUR", 10, 0, 1), account("b", "EUR", 0, 0, 1))
	pay := ledger.MakeTransfer{From: "a", To: "b", Amount: 20, Memo: "m", Reference: "r"}
	_, err := ledger.Decide(b, pay)
	short, ok := errors.AsType[*ledger.InsufficientFundsError](err)
	if !ok {
		t.Fatal(err)
	}
	if got := b.Changes().References; len(got) != 1 || got[0].ID != *short.Transfer || got[0].Reference != "r" || got[0].Status != ledger.TransferFailed {
		t.Errorf("the failed intent's reference: %+v", got)
	}
	decide := must[any](t)
	decide(ledger.Decide(b, ledger.Deposit{Account: "a", Amount: 10}))
	first, ok := decide(ledger.Decide(b, pay)).(ledger.Transfer)
	if !ok || first.Reference != "r" || first.CompletedAt() == nil {
		t.Errorf("completed %+v", first)
	}
	if again := decide(ledger.Decide(b, pay)); !reflect.DeepEqual(again, ledger.Repeated{First: first}) {
		t.Errorf("repeated %+v", again)
	}
	other := pay
	other.Memo = ""
	for _, op := range []ledger.Op{
		other, ledger.Deposit{Account: "b", Amount: 20, Memo: "m", Reference: "r"}, ledger.Withdraw{Account: "a", Amount: 20, Memo: "m", Reference: "r"},
	} {
		_, err := ledger.Decide(b, op)
		if taken, ok := errors.AsType[*ledger.ReferenceTakenError](err); !ok || taken.Transfer != first.ID {
			t.Errorf("%#v: %v", op, err)
		}
	}
	balance(t, b, "a", 0, 0)
	balance(t, b, "b", 20, 0)
}

func TestAContestedReferenceIsRefused(t *testing.T) {
	t.Parallel()
	b := bookOf(account("a", "EUR", 10, 0, 1))
	busy := errors.New("busy")
	b.ContestReference("r", busy)
	if _, err := ledger.Decide(b, ledger.Deposit{Account: "a", Amount: 1, Reference: "r"}); !errors.Is(err, busy) {
		t.Errorf("refused with %v", err)
	}
	must[any](t)(ledger.Decide(b, ledger.Deposit{Account: "a", Amount: 1, Reference: "s"}))
	must[any](t)(ledger.Decide(b, ledger.Deposit{Account: "a", Amount: 1}))
	if n := len(b.Changes().References); n != 1 {
		t.Errorf("%d references", n)
	}
}
