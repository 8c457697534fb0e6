package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/multidraw"
	"github.com/fairlead-dev/fairlead/saga"
)

// The words of the edge that its parts share.
type (
	refusal = edge.Refusal
	kind    = edge.Kind
)

func refuse(format string, args ...any) error { return edge.Refuse(format, args...) }

// The problems that the edge raises, and those that services' errors become.
//
//nolint:gochecknoglobals // A table: written here, read everywhere, changed nowhere.
var (
	keyRequired      = kind{Status: http.StatusBadRequest, Code: "idempotency_key_required", Title: "A valid Idempotency-Key header is required"}
	unauthorized     = kind{Status: http.StatusUnauthorized, Code: "unauthorized", Title: "A valid credential is required"}
	methodNotAllowed = kind{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Title: "The path does not take this method"}
	payloadTooLarge  = kind{Status: http.StatusRequestEntityTooLarge, Code: "payload_too_large", Title: "The body is larger than 1 MiB"}
	rowLocked        = kind{Status: http.StatusServiceUnavailable, Code: "row_locked", Title: "Another session of the database has locked what the command needs", Retryable: true}
	ledgerAway       = kind{Status: http.StatusServiceUnavailable, Code: "ledger_unreachable", Title: "A ledger cannot be reached", Retryable: true}
	unknownOutcome   = kind{Status: http.StatusServiceUnavailable, Code: "outcome_unknown", Title: "The outcome is not known yet; the same key will tell", Retryable: true, Outcome: outcomeUnknown}
	// What went wrong is not known, so neither is whether it was before or after a commit.
	internalError = kind{Status: http.StatusInternalServerError, Code: "internal_error", Title: "Something went wrong on our side", Outcome: outcomeUnknown}

	keyReused         = kind{Status: http.StatusUnprocessableEntity, Code: "idempotency_key_reused", Title: "The Idempotency-Key was used with a different request"}
	accountExists     = kind{Status: http.StatusConflict, Code: "account_exists", Title: "The account exists already"}
	insufficientFunds = kind{Status: http.StatusPaymentRequired, Code: "insufficient_funds", Title: "The account has too little available"}
	sameAccount       = kind{Status: http.StatusUnprocessableEntity, Code: "same_account", Title: "Source and destination are the same account"}
	currencyMismatch  = kind{Status: http.StatusUnprocessableEntity, Code: "currency_mismatch", Title: "The currencies differ"}
	balanceOverflow   = kind{Status: http.StatusUnprocessableEntity, Code: "balance_overflow", Title: "The balance would be too large"}
	holdClosed        = kind{Status: http.StatusConflict, Code: "hold_closed", Title: "The hold is closed"}
	holdOwned         = kind{Status: http.StatusConflict, Code: "hold_owned", Title: "The hold belongs to another part of the system"}
	notActive         = kind{Status: http.StatusConflict, Code: "not_active", Title: "It is not open at present"}
	soldOut           = kind{Status: http.StatusConflict, Code: "sold_out", Title: "No position is left"}
	purchaseLimit     = kind{Status: http.StatusConflict, Code: "purchase_limit", Title: "The purchase limit is reached"}
	badTransition     = kind{Status: http.StatusConflict, Code: "bad_transition", Title: "The status does not allow this"}
	notSoldOut        = kind{Status: http.StatusConflict, Code: "not_sold_out", Title: "The campaign is not sold out"}
	notDrawn          = kind{Status: http.StatusNotFound, Code: "not_drawn", Title: "The campaign is not drawn"}
	noBeacon          = kind{Status: http.StatusUnprocessableEntity, Code: "beacon_unavailable", Title: "The server has no beacon"}
	beaconPending     = kind{Status: http.StatusConflict, Code: "beacon_pending", Title: "The draw waits for its beacon's round", Retryable: true}
	tooManyPrizes     = kind{Status: http.StatusUnprocessableEntity, Code: "too_many_prizes", Title: "A prize's quantity exceeds the positions that can win it"}
	bidTooLow         = kind{Status: http.StatusUnprocessableEntity, Code: "bid_too_low", Title: "The bid is too low"}
	amountTaken       = kind{Status: http.StatusConflict, Code: "amount_taken", Title: "Another active bid has this amount"}
	ownAuction        = kind{Status: http.StatusConflict, Code: "own_auction", Title: "The seller cannot bid"}
	coolingDown       = kind{Status: http.StatusTooManyRequests, Code: "cooldown", Title: "The account bid a moment ago", Retryable: true}
	multidrawLockHeld = kind{Status: http.StatusConflict, Code: "lock_held", Title: "The lock key is held", Retryable: true}
	corruptState      = kind{Status: http.StatusInternalServerError, Code: "corrupt_state", Title: "What was saved contradicts itself"}
	drawsNotCompleted = kind{Status: http.StatusNotFound, Code: "not_drawn", Title: "Not everything is drawn"}
	targetExists      = kind{Status: http.StatusConflict, Code: "target_exists", Title: "A target of this name exists already"}
	automationExists  = kind{Status: http.StatusConflict, Code: "automation_exists", Title: "An automation of this name exists already"}
	wrongKind         = kind{Status: http.StatusConflict, Code: "wrong_kind", Title: "A target of this kind has nothing to replace"}
	keyExists         = kind{Status: http.StatusConflict, Code: "key_exists", Title: "The key exists already"}
	lastAdmin         = kind{Status: http.StatusConflict, Code: "last_admin", Title: "The last admin key cannot be revoked"}
	lockHeld          = kind{Status: http.StatusConflict, Code: "lock_held", Title: "Another holds one of the keys, or is before in line", Retryable: true}
	deadlocked        = kind{Status: http.StatusConflict, Code: "deadlock", Title: "Waiting would not end: the owners wait for each other", Retryable: true}
	lockLost          = kind{Status: http.StatusGone, Code: "lock_lost", Title: "The lock is no longer held"}
	noTwoPhase        = kind{Status: http.StatusUnprocessableEntity, Code: "two_phase_unavailable", Title: "A ledger's database takes no prepared transactions"}
	coordinatorActive = kind{Status: http.StatusConflict, Code: "coordinator_active", Title: "Another incarnation of the log is at work", Retryable: true}
	captureTooLarge   = kind{Status: http.StatusUnprocessableEntity, Code: "capture_too_large", Title: "The amount exceeds the hold"}
)

// problems is the one table from services' errors to problems. The first row that finds its error counts. Only the words of
// the error that it finds go out; what wraps that is for the log. terse says that even those are not for clients: the title is
// their detail.
//
//nolint:gochecknoglobals // As above.
var problems = []struct {
	find  func(error) error
	kind  kind
	terse bool
}{
	{is[*ledger.AccountNotFoundError], edge.NotFound, false},
	{is[*ledger.HoldNotFoundError], edge.NotFound, false},
	{is[*ledger.TransferNotFoundError], edge.NotFound, false},
	{is[*lottery.CampaignNotFoundError], edge.NotFound, false},
	{is[*lottery.LayerNotFoundError], edge.NotFound, false},
	{is[*lottery.PositionNotFoundError], edge.NotFound, false},
	{is[*multidraw.NotFoundError], edge.NotFound, false},
	{is[*auction.NotFoundError], edge.NotFound, false},
	{is[*cross.LedgerNotFoundError], edge.NotFound, false},
	{is[*saga.NotFoundError], edge.NotFound, false},
	{is[*publish.NotFoundError], edge.NotFound, false},
	{is[*publish.TargetNotFoundError], edge.NotFound, false},
	{is[*publish.AutomationNotFoundError], edge.NotFound, false},
	{is[*ledger.InsufficientFundsError], insufficientFunds, false},
	{is[*auction.BidTooLowError], bidTooLow, false},
	{is[*auction.CooldownError], coolingDown, false},
	{is[*multidraw.LockHeldError], multidrawLockHeld, false},
	{is[*lottery.BeaconPendingError], beaconPending, false},
	{is[*lock.DeadlockError], deadlocked, false},
	{is[*command.BlockedError], rowLocked, true},
	{is[*cross.UnreachableError], ledgerAway, false},
	{only(idempotency.ErrMalformedKey), keyRequired, false},
	{only(idempotency.ErrKeyReused), keyReused, false},
	{only(groupcommit.ErrInFlight), unknownOutcome, true},
	{only(groupcommit.ErrFull), edge.Overloaded, true},
	{only(groupcommit.ErrClosed), edge.ShuttingDown, true},
	{only(command.ErrUnknownOutcome), unknownOutcome, true},
	{only(command.ErrUnavailable), edge.Unavailable, true},
	{only(auth.ErrUnavailable), edge.Unavailable, true},
	{only(auth.ErrNoCredential), unauthorized, true},
	{only(auth.ErrBadCredential), unauthorized, true},
	{only(context.Canceled), edge.Unavailable, true},
	{only(context.DeadlineExceeded), edge.Unavailable, true},
	{only(ledger.ErrAccountExists), accountExists, false},
	{only(ledger.ErrSameAccount), sameAccount, false},
	{only(ledger.ErrCurrencyMismatch), currencyMismatch, false},
	{only(ledger.ErrBalanceOverflow), balanceOverflow, false},
	{only(ledger.ErrHoldClosed), holdClosed, false},
	{only(ledger.ErrCaptureTooLarge), captureTooLarge, false},
	{only(ledger.ErrHoldOwned), holdOwned, false},
	{only(lottery.ErrNotActive), notActive, false},
	{only(lottery.ErrSoldOut), soldOut, false},
	{only(lottery.ErrPurchaseLimit), purchaseLimit, false},
	{only(lottery.ErrBadTransition), badTransition, false},
	{only(lottery.ErrNotSoldOut), notSoldOut, false},
	{only(lottery.ErrNotDrawn), notDrawn, false},
	{only(lottery.ErrTooManyPrizes), tooManyPrizes, false},
	{only(lottery.ErrNoBeacon), noBeacon, false},
	{only(auction.ErrBadTransition), badTransition, false},
	{only(auction.ErrNotActive), notActive, false},
	{only(auction.ErrOwnAuction), ownAuction, false},
	{only(auction.ErrAmountTaken), amountTaken, false},
	{only(cross.ErrTwoPhaseUnavailable), noTwoPhase, false},
	{only(cross.ErrNotDone), badTransition, false},
	{only(saga.ErrTwoPhaseUnavailable), noTwoPhase, false},
	{only(saga.ErrCoordinatorActive), coordinatorActive, false},
	{only(saga.ErrBadTransition), badTransition, false},
	{only(saga.ErrTooManyRuns), edge.Overloaded, false},
	{only(saga.ErrClosed), edge.ShuttingDown, true},
	{only(multidraw.ErrBadTransition), badTransition, false},
	{only(multidraw.ErrNotCompleted), drawsNotCompleted, false},
	{only(multidraw.ErrCorrupt), corruptState, true},
	{only(multidraw.ErrOtherParameters), corruptState, true},
	{only(multidraw.ErrTooManyRuns), edge.Overloaded, false},
	{only(multidraw.ErrClosed), edge.ShuttingDown, true},
	{only(publish.ErrBadTransition), badTransition, false},
	{only(publish.ErrTargetExists), targetExists, false},
	{only(publish.ErrAutomationExists), automationExists, false},
	{only(publish.ErrWrongKind), wrongKind, false},
	{only(publish.ErrRefusedURL), edge.BadRequest, false},
	{only(lock.ErrHeld), lockHeld, true},
	{only(lock.ErrLost), lockLost, true},
	{only(lock.ErrClosed), edge.ShuttingDown, true},
	{only(lock.ErrTooManyWaiters), edge.Overloaded, true},
	{only(auth.ErrKeyExists), keyExists, true},
	{only(auth.ErrLastAdmin), lastAdmin, true},
	{only(auth.ErrUnknownKey), edge.NotFound, true},
	{only(operator.ErrNoKeyRecord), edge.NotFound, true},
}

// is finds an error of a type; nil where there is none.
func is[E error](err error) error {
	if e, ok := errors.AsType[E](err); ok {
		return e
	}
	return nil
}

// only finds one error.
func only(sentinel error) func(error) error {
	return func(err error) error {
		if errors.Is(err, sentinel) {
			return sentinel
		}
		return nil
	}
}
