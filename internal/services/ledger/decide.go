package ledger

import (
	"errors"
	"time"

	"github.com/google/uuid"
)

// Op is an operation on the ledger: one of the types below. Their fields are validated at the edge: ids and
// currencies are well-formed, amounts are from 1 to [MaxAmount].
type Op interface {
	accounts() []string
}

// CreateAccount opens an account. Result: [Account].
type CreateAccount struct{ ID, Currency string }

// Deposit brings money in from the outside. Result: [Movement], or [Repeated].
type Deposit struct {
	Account   string
	Amount    int64
	Memo      string
	Reference string // may be empty; else no other request ever completes with it
}

// Withdraw takes money to the outside. Result: [Movement], or [Repeated].
type Withdraw struct {
	Account   string
	Amount    int64
	Memo      string
	Reference string // as that of a [Deposit]
}

// MakeTransfer moves money between two accounts. Result: [Transfer], or [Repeated]. A want of money leaves a failed intent.
type MakeTransfer struct {
	From, To  string
	Amount    int64
	Memo      string
	Reference string // as that of a [Deposit]
}

// PlaceHold sets money aside. Result: [Hold].
type PlaceHold struct {
	Account   string
	Amount    int64
	ExpiresIn *time.Duration
}

// CaptureHold pays from a hold; a nil amount pays all of it. Result: [Hold].
type CaptureHold struct {
	Hold   uuid.UUID
	To     string
	Amount *int64
}

// ReleaseHold gives a hold's money back. Result: [Hold].
type ReleaseHold struct{ Hold uuid.UUID }

func (op CreateAccount) accounts() []string { return []string{op.ID} }
func (op Deposit) accounts() []string       { return []string{op.Account} }
func (op Withdraw) accounts() []string      { return []string{op.Account} }
func (op MakeTransfer) accounts() []string  { return []string{op.From, op.To} }
func (op PlaceHold) accounts() []string     { return []string{op.Account} }
func (op CaptureHold) accounts() []string   { return []string{op.To} }
func (ReleaseHold) accounts() []string      { return nil }

// weight is how many movements an operation makes at most, which the rows that its transaction writes go by.
func weight(op Op) int {
	if legs, ok := op.(TransferLegs); ok {
		return max(1, len(legs.Legs))
	}
	return 1
}

// Movement is a deposit or a withdrawal as it left its account.
type Movement struct {
	Transfer  Transfer
	Account   string
	Available int64 // after the movement
}

// Decide applies one operation to the book. An error is a refusal; it has changed nothing but, for a transfer without
// funds, added the failed intent, and, for a hold past its time, closed it.
func Decide(b *Book, op Op) (any, error) {
	if reference := ReferenceOf(op); reference != "" {
		return b.decideOnce(op, reference)
	}
	return b.decide(op)
}

func (b *Book) decide(op Op) (any, error) {
	switch op := op.(type) {
	case CreateAccount:
		return b.Open(op.ID, op.Currency)
	case Deposit:
		t, err := b.Deposit(op.Account, op.Amount, op.Memo)
		return b.movement(t, op.Account, err)
	case Withdraw:
		t, err := b.Withdraw(op.Account, op.Amount, op.Memo)
		return b.movement(t, op.Account, err)
	case MakeTransfer:
		return decideTransfer(b, op)
	case TransferLegs:
		return decideLegs(b, op)
	case PlaceHold:
		return b.PlaceHold(op.Account, op.Amount, op.ExpiresIn)
	case CaptureHold:
		return decideCapture(b, op)
	case ReleaseHold:
		return decideRelease(b, op)
	}
	panic("ledger: unknown operation")
}

func (b *Book) movement(t Transfer, account string, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return Movement{Transfer: t, Account: account, Available: b.accounts[account].Available}, nil
}

func decideTransfer(b *Book, op MakeTransfer) (any, error) {
	t, err := b.Move(KindTransfer, op.From, op.To, op.Amount, op.Memo)
	if _, short := errors.AsType[*InsufficientFundsError](err); !short {
		return t, err
	}
	failed, failErr := b.Fail(op.From, op.To, op.Amount, op.Memo, ReasonInsufficientFunds)
	if failErr != nil {
		return nil, failErr
	}
	return nil, &InsufficientFundsError{Account: op.From, Transfer: &failed.ID}
}

// clientsHold returns a hold that a client may capture or release.
func clientsHold(b *Book, id uuid.UUID) (Hold, error) {
	h, err := b.Hold(id)
	if err == nil && h.Owner != "" {
		err = ErrHoldOwned
	}
	return h, err
}

func decideCapture(b *Book, op CaptureHold) (any, error) {
	h, err := clientsHold(b, op.Hold)
	if err != nil {
		return nil, err
	}
	amount := h.Amount
	if op.Amount != nil {
		amount = *op.Amount
	}
	return b.Capture(op.Hold, op.To, amount, "")
}

func decideRelease(b *Book, op ReleaseHold) (any, error) {
	if _, err := clientsHold(b, op.Hold); err != nil {
		return nil, err
	}
	return b.Release(op.Hold)
}

// Accounts returns the accounts that op names. A hold's own account is not among them: it is found by the hold.
func Accounts(op Op) []string { return op.accounts() }

// HoldOf returns the existing hold that op works on, if any.
func HoldOf(op Op) (uuid.UUID, bool) {
	switch op := op.(type) {
	case CaptureHold:
		return op.Hold, true
	case ReleaseHold:
		return op.Hold, true
	}
	return uuid.UUID{}, false
}
