package ledger_test

import (
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// leg is one of a request.
func leg(from, to string, amount int64) ledger.Leg {
	return ledger.Leg{From: from, To: to, Amount: amount}
}

func legsOf(legs ...ledger.Leg) ledger.TransferLegs {
	return ledger.TransferLegs{Legs: legs, Memo: "m"}
}

func TestLegsAreDoneInOrder(t *testing.T) {
	t.Parallel()
	b := bookOf(account("a", "EUR", 100, 0, 1), account("b", "EUR", 0, 0, 1), account("c", "EUR", 0, 0, 1))
	// b and c pass on what they get, and a spends what comes back.
	op := legsOf(leg("a", "b", 100), leg("b", "c", 100), leg("c", "a", 50), leg("a", "b", 50))
	whole, ok := must[any](t)(ledger.Decide(b, op)).(ledger.Transfer)
	balance(t, b, "a", 0, 0)
	balance(t, b, "b", 50, 0)
	balance(t, b, "c", 50, 0)
	c := b.Changes()
	if !ok || len(c.Transfers) != 4 || len(c.Entries) != 8 || len(c.Legs) != 4 || whole.ID != c.Transfers[0].ID {
		t.Fatalf("%+v of %+v", whole, c)
	}
	for i := range op.Legs {
		op.Legs[i].Currency = "EUR"
	}
	if !reflect.DeepEqual(whole.Legs, op.Legs) || whole.Memo != "m" || whole.CompletedAt() == nil {
		t.Errorf("%+v, want the legs %+v", whole, op.Legs)
	}
}

func TestLegsExchangeCurrencies(t *testing.T) {
	t.Parallel()
	b := bookOf(account("a", "EUR", 100, 0, 1), account("a-usd", "USD", 0, 0, 1), account("desk", "EUR", 0, 0, 1), account("desk-usd", "USD", 110, 0, 1))
	whole, ok := must[any](t)(ledger.Decide(b, legsOf(leg("a", "desk", 100), leg("desk-usd", "a-usd", 110)))).(ledger.Transfer)
	balance(t, b, "a", 0, 0)
	balance(t, b, "a-usd", 110, 0)
	balance(t, b, "desk", 100, 0)
	balance(t, b, "desk-usd", 0, 0)
	if !ok || whole.Legs[0].Currency != "EUR" || whole.Legs[1].Currency != "USD" {
		t.Errorf("%+v", whole)
	}
	sums := map[string]int64{}
	for _, e := range b.Changes().Entries {
		sums[e.Currency] += e.Amount
	}
	if sums["EUR"] != 0 || sums["USD"] != 0 {
		t.Errorf("entries sum to %v", sums)
	}
}

// TestTheFirstLegThatCannotBeDoneRefusesAll has several bad legs in each transfer: the first one counts, and nothing is moved.
func TestTheFirstLegThatCannotBeDoneRefusesAll(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		op   ledger.TransferLegs
		want string
	}{
		"absent source":         {legsOf(leg("a", "b", 10), leg("nobody", "b", 1), leg("a", "a", 1)), `leg 1: there is no account "nobody"`},
		"absent destination":    {legsOf(leg("a", "b", 10), leg("a", "nobody", 1000)), `leg 1: there is no account "nobody"`},
		"same account":          {legsOf(leg("a", "b", 10), leg("b", "a", 10), leg("a", "a", 1), leg("a", "nobody", 1)), "leg 2: " + ledger.ErrSameAccount.Error()},
		"currencies":            {legsOf(leg("a", "usd", 10), leg("a", "a", 1)), "leg 0: " + ledger.ErrCurrencyMismatch.Error()},
		"too much":              {legsOf(leg("a", "b", 60), leg("a", "b", 41), leg("a", "a", 1)), "leg 1: insufficient funds on a"},
		"spent before it comes": {legsOf(leg("b", "a", 1), leg("a", "b", 50)), "leg 0: insufficient funds on b"},
		"overflow":              {legsOf(leg("a", "b", 1), leg("a", "full", 1)), "leg 1: " + ledger.ErrBalanceOverflow.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bookOf(account("a", "EUR", 100, 0, 1), account("b", "EUR", 0, 0, 1), account("usd", "USD", 5, 0, 1), account("full", "EUR", math.MaxInt64, 0, 1))
			result, err := ledger.Decide(b, c.op)
			if refusal(err) != c.want || result != nil {
				t.Fatalf("%v, %v; want %s", result, err, c.want)
			}
			balance(t, b, "a", 100, 0)
			balance(t, b, "b", 0, 0)
			changes := b.Changes()
			if len(changes.Entries) != 0 || len(changes.UpdatedAccounts) != 0 {
				t.Errorf("changes %+v", changes)
			}
			short, failed := errors.AsType[*ledger.InsufficientFundsError](err)
			if !failed {
				if len(changes.Transfers) != 0 || len(changes.Legs) != 0 {
					t.Errorf("an intent was left: %+v", changes)
				}
				return
			}
			if len(changes.Transfers) != 1 || changes.Transfers[0].ID != *short.Transfer || changes.Transfers[0].Status != ledger.TransferFailed ||
				len(changes.Legs) != len(c.op.Legs) {
				t.Errorf("the intent: %+v", changes)
			}
			for i, l := range changes.Legs {
				if l.Part != nil || l.Number != i || l.Transfer != *short.Transfer || l.From != c.op.Legs[i].From || l.To != c.op.Legs[i].To || l.Amount != c.op.Legs[i].Amount {
					t.Errorf("leg %+v of the intent, want %+v", l, c.op.Legs[i])
				}
			}
		})
	}
}

// TestOneLegIsThePlainTransfer compares everything but that it was asked for by a leg.
func TestOneLegIsThePlainTransfer(t *testing.T) {
	t.Parallel()
	for _, amount := range []int64{100, 101} {
		plain := bookOf(account("a", "EUR", 100, 0, 1), account("b", "EUR", 0, 0, 1))
		legged := bookOf(account("a", "EUR", 100, 0, 1), account("b", "EUR", 0, 0, 1))
		_, plainErr := ledger.Decide(plain, ledger.MakeTransfer{From: "a", To: "b", Amount: amount, Memo: "m"})
		_, leggedErr := ledger.Decide(legged, legsOf(leg("a", "b", amount)))
		if (plainErr == nil) != (leggedErr == nil) {
			t.Fatalf("%v, %v", plainErr, leggedErr)
		}
		p, l := plain.Changes(), legged.Changes()
		if len(l.Legs) != 1 {
			t.Errorf("legs %+v", l.Legs)
		}
		l.Legs = nil
		for i := range l.Transfers {
			l.Transfers[i].Legs = nil
		}
		if !reflect.DeepEqual(p, l) {
			t.Errorf("%+v\n%+v", p, l)
		}
	}
}

func TestAReferenceOfLegsIsThatOfTheSameLegs(t *testing.T) {
	t.Parallel()
	b := bookOf(account("a", "EUR", 100, 0, 1), account("b", "EUR", 0, 0, 1))
	op := legsOf(leg("a", "b", 60), leg("b", "a", 50))
	op.Reference = "r"
	bad := op
	bad.Legs = []ledger.Leg{leg("a", "b", 1000)}
	_, err := ledger.Decide(b, bad)
	if short, ok := errors.AsType[*ledger.InsufficientFundsError](err); !ok || short.Transfer == nil || len(b.Changes().References) != 1 {
		t.Fatalf("%v, %+v", err, b.Changes().References)
	}
	first, ok := must[any](t)(ledger.Decide(b, op)).(ledger.Transfer)
	if !ok || first.Reference != "r" {
		t.Fatalf("%+v", first)
	}
	if again := must[any](t)(ledger.Decide(b, op)); !reflect.DeepEqual(again, ledger.Repeated{First: first}) {
		t.Errorf("repeated %+v", again)
	}
	swapped := op
	swapped.Legs = []ledger.Leg{op.Legs[1], op.Legs[0]}
	shorter := op
	shorter.Legs = op.Legs[:1]
	for _, other := range []ledger.Op{
		swapped, shorter, bad, ledger.MakeTransfer{From: "a", To: "b", Amount: 60, Memo: "m", Reference: "r"},
	} {
		_, err := ledger.Decide(b, other)
		if taken, ok := errors.AsType[*ledger.ReferenceTakenError](err); !ok || taken.Transfer != first.ID {
			t.Errorf("%+v: %v", other, err)
		}
	}
	plain := bookOf(account("a", "EUR", 100, 0, 1), account("b", "EUR", 0, 0, 1))
	must[any](t)(ledger.Decide(plain, ledger.MakeTransfer{From: "a", To: "b", Amount: 60, Memo: "m", Reference: "r"}))
	if _, err := ledger.Decide(plain, shorter); !errors.As(err, new(*ledger.ReferenceTakenError)) {
		t.Errorf("one leg with the reference of a plain transfer: %v", err)
	}
	balance(t, b, "a", 90, 0)
}
