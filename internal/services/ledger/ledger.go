package ledger

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
)

// MaxAmount is the largest amount of one movement, in minor units: 2^53 − 1, the largest integer that every JSON
// reader keeps exactly.
const MaxAmount = 1<<53 - 1

// maxTotal is the most that available and held of one account may sum to.
const maxTotal = math.MaxInt64

// Kind says why money moved.
type Kind string

// The kinds of transfer.
const (
	KindTransfer   Kind = "transfer"
	KindDeposit    Kind = "deposit"
	KindWithdrawal Kind = "withdrawal"
	KindCapture    Kind = "capture"
	KindPurchase   Kind = "purchase"
	KindPayout     Kind = "payout"
	KindRefund     Kind = "refund"
	// KindCross is a movement to or from another ledger, by way of a transit account.
	KindCross Kind = "cross"
)

// TransferStatus is the state of a transfer's intent.
type TransferStatus string

// The states of a transfer.
const (
	TransferPending   TransferStatus = "pending"
	TransferCompleted TransferStatus = "completed"
	TransferFailed    TransferStatus = "failed"
)

// HoldStatus is the state of a hold.
type HoldStatus string

// The states of a hold; all but open are final.
const (
	HoldOpen     HoldStatus = "open"
	HoldCaptured HoldStatus = "captured"
	HoldReleased HoldStatus = "released"
	HoldExpired  HoldStatus = "expired"
)

// ReasonInsufficientFunds is the reason of a transfer that failed for want of money.
const ReasonInsufficientFunds = "insufficient_funds"

// TopicPrefix is what the name of an account in the live stream begins with.
const TopicPrefix = "account:"

// Account is a balance in one currency. Amounts are minor units.
type Account struct {
	ID        string
	Currency  string
	Available int64
	Held      int64
	Version   int64 // grows with each change
	CreatedAt time.Time
	// Chapter is a part of the key by which a store finds the account, 0 or an earlier version divided by [VersionsInChapter]: see [Book.BeginChapters].
	Chapter int64
}

// Transfer is the intent and the outcome of one movement.
type Transfer struct {
	ID        uuid.UUID
	Kind      Kind
	From, To  string
	Amount    int64
	Currency  string
	Status    TransferStatus
	Reason    string // of a failure
	Memo      string
	CreatedAt time.Time
	Reference string // empty where the request had none
	// Legs are those of a request that had them, else nil. From, To, Amount and Currency are those of the first one then, or of the one
	// for which the transfer failed.
	Legs []Leg
}

// CompletedAt returns when a transfer was completed, nil for one that was not. One transaction makes the intent and completes it.
func (t *Transfer) CompletedAt() *time.Time {
	if t.Status != TransferCompleted {
		return nil
	}
	return new(t.CreatedAt)
}

// Entry is one side of a transfer on one account.
type Entry struct {
	ID       uuid.UUID
	Account  string
	Version  int64 // the account's version that this entry made; 0 on the outside
	Transfer uuid.UUID
	Amount   int64 // signed
	Currency string
	At       time.Time
	Memo     string
}

// Hold is money set aside on an account.
type Hold struct {
	ID        uuid.UUID
	Account   string
	Amount    int64
	Captured  int64
	Status    HoldStatus
	ExpiresAt *time.Time
	CreatedAt time.Time
	ClosedAt  *time.Time
	Transfer  *uuid.UUID // of the capture
	// Owner names the entity that placed the hold and alone may close it, such as auction:ID; empty where a client placed it.
	Owner string
}

// expired reports whether an open hold's time is over.
func (h *Hold) expired(now time.Time) bool {
	return h.Status == HoldOpen && h.ExpiresAt != nil && !now.Before(*h.ExpiresAt)
}

// Outside is the account that deposits of a currency come from. Its name cannot be chosen by a client.
func Outside(currency string) string { return "outside/" + currency }

// Refusals. Each is a decision: nothing changed (but a failed transfer's intent, where said).
var (
	// ErrAccountExists is returned when an account is created under an id that is taken.
	ErrAccountExists = errors.New("an account with this id exists already")
	// ErrSameAccount is returned when money would move from an account to itself.
	ErrSameAccount = errors.New("source and destination are the same account")
	// ErrCurrencyMismatch is returned when the two sides have different currencies.
	ErrCurrencyMismatch = errors.New("the accounts have different currencies")
	// ErrBalanceOverflow is returned when a balance would exceed the largest 64-bit integer.
	ErrBalanceOverflow = errors.New("the balance would exceed the largest amount an account can hold")
	// ErrHoldClosed is returned when a hold that was captured, released or has expired is captured or released.
	ErrHoldClosed = errors.New("the hold is closed")
	// ErrHoldOwned is returned when a client asks to capture or to release a hold that an auction, or the like, has placed.
	ErrHoldOwned = errors.New("the hold belongs to another part of the system, which closes it")
	// ErrCaptureTooLarge is returned when more is to be captured than the hold set aside.
	ErrCaptureTooLarge = errors.New("the amount exceeds the hold")
)

// AccountNotFoundError is returned when an operation names an account that does not exist.
type AccountNotFoundError struct{ ID string }

func (e *AccountNotFoundError) Error() string { return fmt.Sprintf("there is no account %q", e.ID) }

// HoldNotFoundError is returned when an operation names a hold that does not exist.
type HoldNotFoundError struct {
	ID       uuid.UUID
	Archived time.Time // as in [TransferNotFoundError]
}

func (e *HoldNotFoundError) Error() string { return NotFound("hold", e.ID, e.Archived) }

// NotFound tells what is not there, and whether that may be because it was archived.
func NotFound(what string, id uuid.UUID, archived time.Time) string {
	if !archived.IsZero() {
		return fmt.Sprintf("there is no %s %s: the history of before %s was archived", what, id, archived.Format(time.RFC3339))
	}
	return fmt.Sprintf("there is no %s %s", what, id)
}

// TransferNotFoundError is returned when a transfer that does not exist is read.
type TransferNotFoundError struct {
	ID       uuid.UUID
	Archived time.Time // the history of before was archived, and it would be in it; zero: it would not
}

func (e *TransferNotFoundError) Error() string { return NotFound("transfer", e.ID, e.Archived) }

// InsufficientFundsError is returned when an account has too little available. Transfer is the id of the failed
// intent, where one was recorded, else nil.
type InsufficientFundsError struct {
	Account  string
	Transfer *uuid.UUID
}

func (e *InsufficientFundsError) Error() string {
	return fmt.Sprintf("account %q has too little available", e.Account)
}
