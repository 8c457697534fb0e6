package cross

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/ledger"
	"github.com/fairlead-dev/fairlead/saga"
)

// Local is the name of the server's own ledger.
const Local = "local"

// Definition is the name of these sagas in the log.
const Definition = "cross-transfer"

// Mode says how the legs of a transfer are held together.
type Mode string

// The modes.
const (
	ModeSaga     = Mode(saga.Compensated)
	ModeTwoPhase = Mode(saga.TwoPhase)
)

// The legs of a transfer.
const (
	LegDebit    = "debit"
	LegCredit   = "credit"
	LegTransfer = "transfer" // within one ledger
)

// The reasons for which a leg is refused, beside those of package saga.
const (
	ReasonInsufficientFunds = ledger.ReasonInsufficientFunds
	ReasonAccountNotFound   = "account_not_found"
	ReasonCurrencyMismatch  = "currency_mismatch"
	ReasonBalanceOverflow   = "balance_overflow"
)

// End is an account of a ledger.
type End struct {
	Ledger  string `json:"ledger"`
	Account string `json:"account"`
}

// Request asks for a transfer. Amount is in minor units, from 1 to [ledger.MaxAmount].
type Request struct {
	From, To End
	Amount   int64
	Mode     Mode
}

// Input is what the log keeps of a transfer.
type Input struct {
	From     End    `json:"from"`
	To       End    `json:"to"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// ParseInput reads what the log keeps.
func ParseInput(s *saga.Saga) (in Input, err error) {
	if err := json.Unmarshal(s.Input, &in); err != nil {
		return in, fmt.Errorf("cross: the input of %s: %w", s.ID, err)
	}
	return in, nil
}

// Leg is one ledger's part of a transfer.
type Leg struct {
	Saga uuid.UUID
	Key  string // the same for each execution
	// Accounts are those that Decide works on.
	Accounts []string
	// Decide moves the money in the ledger's book. Its errors are refusals, and leave the book as it was.
	Decide func(b *ledger.Book) (ledger.Transfer, error)
	// Must says that a refusal is a failure, to be tried again: a compensation has no other way.
	Must bool
}

// Ledger is one database with a ledger. It is safe for concurrent use.
type Ledger interface {
	saga.Participant
	// Account returns one account, or [ledger.AccountNotFoundError].
	Account(ctx context.Context, id string) (ledger.Account, error)
	// CanPrepare returns [ErrTwoPhaseUnavailable] where the database takes no prepared transactions.
	CanPrepare(ctx context.Context) error
	// Execute executes a leg, or returns what became of an earlier execution.
	Execute(ctx context.Context, l *Leg) (saga.Outcome, error)
	// Prepare executes a leg in a transaction that it leaves prepared under gid. A refusal leaves nothing.
	Prepare(ctx context.Context, l *Leg, gid string) (saga.Outcome, error)
}

// ErrTwoPhaseUnavailable is returned when a transfer is to be two-phase and one of the databases takes no prepared
// transactions.
var ErrTwoPhaseUnavailable = errors.New("a ledger's database takes no prepared transactions (max_prepared_transactions is 0): set it above 0 and restart that database, or use mode saga")

// LedgerNotFoundError is returned when a ledger is named that the server does not know.
type LedgerNotFoundError struct{ Name string }

func (e *LedgerNotFoundError) Error() string { return fmt.Sprintf("there is no ledger %q", e.Name) }

// Reason names a refusal of a ledger; it is empty for other errors.
func Reason(err error) string {
	if _, short := errors.AsType[*ledger.InsufficientFundsError](err); short {
		return ReasonInsufficientFunds
	}
	if _, absent := errors.AsType[*ledger.AccountNotFoundError](err); absent {
		return ReasonAccountNotFound
	}
	switch {
	case errors.Is(err, ledger.ErrCurrencyMismatch):
		return ReasonCurrencyMismatch
	case errors.Is(err, ledger.ErrBalanceOverflow):
		return ReasonBalanceOverflow
	case errors.Is(err, errCancelled):
		return saga.ReasonCancelled
	}
	return ""
}

// errCancelled refuses a leg that an operator has cancelled before it was done.
var errCancelled = errors.New("the leg was cancelled")

// steps names the legs of a transfer.
func steps(from, to End) []string {
	if from.Ledger == to.Ledger {
		return []string{LegTransfer}
	}
	return []string{LegDebit, LegCredit}
}

// decide returns what a leg does to its ledger's book.
func decide(in *Input, c saga.Call) func(*ledger.Book) (ledger.Transfer, error) {
	memo := "cross-transfer " + c.Saga.String()
	return func(b *ledger.Book) (ledger.Transfer, error) {
		switch {
		case c.Cancel:
			return ledger.Transfer{}, errCancelled
		case c.Step == LegTransfer && c.Undo:
			return b.Move(ledger.KindCross, in.To.Account, in.From.Account, in.Amount, memo)
		case c.Step == LegTransfer:
			return b.Move(ledger.KindCross, in.From.Account, in.To.Account, in.Amount, memo)
		case c.Step == LegDebit && c.Undo:
			return b.TakeIn(in.From.Account, in.To.Ledger, in.Amount, in.Currency, memo)
		case c.Step == LegDebit:
			return b.SendAway(in.From.Account, in.To.Ledger, in.Amount, memo)
		case c.Undo:
			return b.SendAway(in.To.Account, in.From.Ledger, in.Amount, memo)
		}
		return b.TakeIn(in.To.Account, in.From.Ledger, in.Amount, in.Currency, memo)
	}
}

// leg makes the part of a transfer that a call is about, and names its ledger.
func leg(in *Input, c saga.Call) (string, *Leg) {
	l := &Leg{Saga: c.Saga, Key: c.Key(), Decide: decide(in, c), Must: c.Undo}
	switch c.Step {
	case LegTransfer:
		l.Accounts = []string{in.From.Account, in.To.Account}
		return in.From.Ledger, l
	case LegDebit:
		l.Accounts = []string{in.From.Account}
		return in.From.Ledger, l
	}
	l.Accounts = []string{in.To.Account}
	return in.To.Ledger, l
}
