package cross

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/saga"
)

// Local is the name of the server's own ledger.
const Local = "local"

// Definition is the name of these sagas in the log.
const Definition = "cross-transfer"

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

// Request asks for a transfer. Amount is in minor units, from 1 to [ledger.MaxAmount]. Mode says how the legs are held together.
type Request struct {
	From, To End
	Amount   int64
	Mode     saga.Protocol
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

// Ledger is one that money comes from or goes to, wherever it is. It is safe for concurrent use. One that is also a
// [Preparer] takes part in both modes, all others in [saga.Compensated] alone.
type Ledger interface {
	// Account returns one account, or [ledger.AccountNotFoundError].
	Account(ctx context.Context, id string) (ledger.Account, error)
	// Execute executes a leg, or returns what became of an earlier execution.
	Execute(ctx context.Context, l *Leg) (saga.Outcome, error)
}

// Preparer is a ledger in a database that can prepare transactions.
type Preparer interface {
	Ledger
	saga.Participant
	// Command executes a leg of another server's transfer, once per idempotency key too. Result: a [saga.Outcome].
	Command(ctx context.Context, c command.Command[*Leg]) (command.Answer, error)
	// CanPrepare returns [ErrTwoPhaseUnavailable] where the database takes no prepared transactions.
	CanPrepare(ctx context.Context) error
	// Prepare executes a leg in a transaction that it leaves prepared under gid. A refusal leaves nothing.
	Prepare(ctx context.Context, l *Leg, gid string) (saga.Outcome, error)
}

// ErrNotDone is returned when a leg is to be undone that was not done, or was of another amount or currency.
var ErrNotDone = errors.New("there is no such leg that was done")

// ErrNoExecutor is returned by a service whose own ledger executes no legs of others.
var ErrNoExecutor = errors.New("this ledger executes no legs of other servers' transfers")

// ErrTwoPhaseUnavailable is returned when a transfer is to be two-phase and one of the ledgers can't prepare.
var ErrTwoPhaseUnavailable = errors.New("a ledger takes no prepared transactions: set max_prepared_transactions of its database above 0 and restart that, or use mode saga, the only one for ledgers on other servers")

// LedgerNotFoundError is returned when a ledger is named that the server does not know.
type LedgerNotFoundError struct{ Name string }

func (e *LedgerNotFoundError) Error() string { return fmt.Sprintf("there is no ledger %q", e.Name) }

// UnreachableError is returned when a ledger other than [Local] can't be asked. Nothing has begun then.
type UnreachableError struct {
	Name string
	Err  error
}

// Error names the ledger. The reason is in Err.
func (e *UnreachableError) Error() string { return fmt.Sprintf("ledger %q can't be reached", e.Name) }

func (e *UnreachableError) Unwrap() error { return e.Err }

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
	}
	if cancelled, ok := errors.AsType[errCancelled](err); ok {
		return cancelled.reason
	}
	return ""
}
