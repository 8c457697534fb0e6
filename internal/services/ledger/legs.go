package ledger

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
)

// MaxLegs is how many legs a transfer may have. It keeps one command from filling a transaction that others share.
const MaxLegs = 100

// Leg is one movement of a transfer that has several.
type Leg struct {
	From, To string
	Amount   int64
	Currency string // of both accounts; empty in a request, and where a refused transfer did not get as far
}

// TransferLegs moves money between any accounts, in order, all or nothing. There are 1 to [MaxLegs] legs. Each is within one
// currency, and may spend what an earlier one has brought. Result: [Transfer], or [Repeated]. Refusals are [LegError]. A want of money
// leaves a failed intent.
type TransferLegs struct {
	Legs      []Leg
	Memo      string
	Reference string // as that of a [Deposit]
}

func (op TransferLegs) accounts() []string {
	ids := make([]string, 0, 2*len(op.Legs))
	for i := range op.Legs {
		ids = append(ids, op.Legs[i].From, op.Legs[i].To)
	}
	return ids
}

// LegError is returned when a transfer is refused because of one of its legs: the first, in order, that can't be done.
type LegError struct {
	Leg int // from 0
	Err error
}

func (e *LegError) Error() string { return fmt.Sprintf("leg %d: %v", e.Leg, e.Err) }

// Unwrap gives what a transfer of that leg alone would be refused with.
func (e *LegError) Unwrap() error { return e.Err }

// RecordedLeg is a leg as it is to be written.
type RecordedLeg struct {
	Leg

	Transfer uuid.UUID // of which it is a leg
	Number   int       // from 0
	// Part is the leg's own row among the transfers, which has its two entries. The first leg's is the transfer itself. A transfer that
	// failed has no parts.
	Part *uuid.UUID
}

// Parties returns the accounts that a transfer is to or from.
func (t *Transfer) Parties() []string {
	parties := []string{t.From, t.To}
	for i := range t.Legs {
		parties = append(parties, t.Legs[i].From, t.Legs[i].To)
	}
	return parties
}

// tryLegs makes the movements on copies of the accounts, and returns the legs as far as it came, with their currencies.
func (b *Book) tryLegs(legs []Leg) ([]Leg, error) {
	copies := make(map[string]*Account, 2*len(legs))
	find := func(id string) (*Account, error) {
		if a := copies[id]; a != nil {
			return a, nil
		}
		a, err := b.Account(id)
		if err == nil {
			copies[id] = &a
		}
		return &a, err
	}
	done := slices.Clone(legs)
	for i := range done {
		leg := &done[i]
		src, dst, err := movable(find, leg.From, leg.To, mustBePositive(leg.Amount))
		if src != nil {
			leg.Currency = src.Currency
		}
		if err != nil {
			return done, &LegError{Leg: i, Err: err}
		}
		src.Available -= leg.Amount
		dst.Available += leg.Amount
	}
	return done, nil
}

// decideLegs makes all movements, or none. If money is wanting, it records the intent, which has the accounts and the amount of the leg
// that was refused.
func decideLegs(b *Book, op TransferLegs) (any, error) {
	legs, err := b.tryLegs(op.Legs)
	if err != nil {
		return nil, b.failLegs(legs, op.Memo, err)
	}
	var whole Transfer
	for i := range legs {
		leg := &legs[i]
		t, err := b.Move(KindTransfer, leg.From, leg.To, leg.Amount, op.Memo)
		if err != nil {
			panic("ledger: a leg that was possible is refused: " + err.Error())
		}
		if i == 0 {
			whole = t
		}
		b.legs = append(b.legs, RecordedLeg{Leg: *leg, Transfer: whole.ID, Number: i, Part: &t.ID})
	}
	whole.Legs = legs
	return whole, nil
}

// failLegs records the intent of a transfer that was refused for want of money, and returns the refusal.
func (b *Book) failLegs(legs []Leg, memo string, refusal error) error {
	refused, _ := errors.AsType[*LegError](refusal)
	if _, short := errors.AsType[*InsufficientFundsError](refusal); !short {
		return refusal
	}
	leg := legs[refused.Leg]
	failed, err := b.Fail(leg.From, leg.To, leg.Amount, memo, ReasonInsufficientFunds)
	if err != nil {
		return err
	}
	b.transfers[len(b.transfers)-1].Legs = legs
	for i := range legs {
		b.legs = append(b.legs, RecordedLeg{Leg: legs[i], Transfer: failed.ID, Number: i})
	}
	return &LegError{Leg: refused.Leg, Err: &InsufficientFundsError{Account: leg.From, Transfer: &failed.ID}}
}

// sameLegs reports whether a request asks for what was done.
func sameLegs(done, asked []Leg) bool {
	return slices.EqualFunc(done, asked, func(d, a Leg) bool { return d.From == a.From && d.To == a.To && d.Amount == a.Amount })
}
