package auction

import (
	"errors"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// Outcome says what became of a bid, for metrics: the contract's machine code of the refusal, or "accepted".
type Outcome string

// The outcomes of a bid. All but the first are refusals.
const (
	OutcomeAccepted          Outcome = "accepted"
	OutcomeAccountNotFound   Outcome = "account_not_found"
	OutcomeNotActive         Outcome = "not_active"
	OutcomeOwnAuction        Outcome = "own_auction"
	OutcomeCooldown          Outcome = "cooldown"
	OutcomeTooLow            Outcome = "bid_too_low"
	OutcomeAmountTaken       Outcome = "amount_taken"
	OutcomeCurrencyMismatch  Outcome = "currency_mismatch"
	OutcomeInsufficientFunds Outcome = "insufficient_funds"
)

// Outcomes returns all outcomes, so that each can be shown before it first happens.
func Outcomes() []Outcome {
	return []Outcome{
		OutcomeAccepted, OutcomeAccountNotFound, OutcomeNotActive, OutcomeOwnAuction, OutcomeCooldown, OutcomeTooLow,
		OutcomeAmountTaken, OutcomeCurrencyMismatch, OutcomeInsufficientFunds,
	}
}

// outcomeOf says what became of a bid that was answered with err.
func outcomeOf(err error) Outcome {
	if err == nil {
		return OutcomeAccepted
	}
	switch err.(type) { //nolint:errorlint // What Decide returns is not wrapped, and this is the hot path.
	case *ledger.AccountNotFoundError:
		return OutcomeAccountNotFound
	case *NotFoundError: // A user's, on a draft.
		return OutcomeNotActive
	case *CooldownError:
		return OutcomeCooldown
	case *BidTooLowError:
		return OutcomeTooLow
	case *ledger.InsufficientFundsError:
		return OutcomeInsufficientFunds
	}
	switch {
	case errors.Is(err, ErrNotActive):
		return OutcomeNotActive
	case errors.Is(err, ErrOwnAuction):
		return OutcomeOwnAuction
	case errors.Is(err, ErrAmountTaken):
		return OutcomeAmountTaken
	case errors.Is(err, ledger.ErrCurrencyMismatch):
		return OutcomeCurrencyMismatch
	}
	panic("auction: a bid was refused with an unknown error")
}

// tally counts the bids of a transaction by outcome.
type tally map[Outcome]int

func (t tally) count(op Op, err error) {
	if _, blocked := err.(*command.BlockedError); blocked { //nolint:errorlint // As in outcomeOf.
		return // It is not decided yet.
	}
	if _, ok := op.(PlaceBid); ok {
		t[outcomeOf(err)]++
	}
}
