package server

import (
	"context"
	"net/http"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/desk"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/multidraw"
	"github.com/fairlead-dev/fairlead/saga"
)

// refusal is an error that the edge itself raises.
type refusal struct {
	kind
	detail string
}

func (r *refusal) Error() string { return r.detail }

// kind is a row of the table of problems.
type kind struct {
	status    int
	code      string
	title     string
	retryable bool
	outcome   string // not_applied when empty
}

// The problems that the edge raises, and those that services' errors become.
//
//nolint:gochecknoglobals // A table: written here, read everywhere, changed nowhere.
var (
	badRequest       = kind{status: http.StatusBadRequest, code: "bad_request", title: "The request is malformed"}
	keyRequired      = kind{status: http.StatusBadRequest, code: "idempotency_key_required", title: "A valid Idempotency-Key header is required"}
	unauthorized     = kind{status: http.StatusUnauthorized, code: "unauthorized", title: "A valid credential is required"}
	forbidden        = kind{status: http.StatusForbidden, code: "forbidden", title: "The credential does not allow this"}
	notFound         = kind{status: http.StatusNotFound, code: "not_found", title: "There is no such thing"}
	methodNotAllowed = kind{status: http.StatusMethodNotAllowed, code: "method_not_allowed", title: "The path does not take this method"}
	payloadTooLarge  = kind{status: http.StatusRequestEntityTooLarge, code: "payload_too_large", title: "The body is larger than 1 MiB"}
	rateLimited      = kind{status: http.StatusTooManyRequests, code: "rate_limited", title: "Too many requests", retryable: true}
	overloaded       = kind{status: http.StatusServiceUnavailable, code: "overloaded", title: "The queue is full", retryable: true}
	shuttingDown     = kind{status: http.StatusServiceUnavailable, code: "shutting_down", title: "The server is shutting down", retryable: true}
	unavailable      = kind{status: http.StatusServiceUnavailable, code: "unavailable", title: "The database is unavailable", retryable: true}
	rowLocked        = kind{status: http.StatusServiceUnavailable, code: "row_locked", title: "Another session of the database has locked what the command needs", retryable: true}
	ledgerAway       = kind{status: http.StatusServiceUnavailable, code: "ledger_unreachable", title: "A ledger cannot be reached", retryable: true}
	unknownOutcome   = kind{status: http.StatusServiceUnavailable, code: "outcome_unknown", title: "The outcome is not known yet; the same key will tell", retryable: true, outcome: outcomeUnknown}
	// What went wrong is not known, so neither is whether it was before or after a commit.
	internalError = kind{status: http.StatusInternalServerError, code: "internal_error", title: "Something went wrong on our side", outcome: outcomeUnknown}

	keyReused         = kind{status: http.StatusUnprocessableEntity, code: "idempotency_key_reused", title: "The Idempotency-Key was used with a different request"}
	accountExists     = kind{status: http.StatusConflict, code: "account_exists", title: "The account exists already"}
	insufficientFunds = kind{status: http.StatusPaymentRequired, code: "insufficient_funds", title: "The account has too little available"}
	sameAccount       = kind{status: http.StatusUnprocessableEntity, code: "same_account", title: "Source and destination are the same account"}
	currencyMismatch  = kind{status: http.StatusUnprocessableEntity, code: "currency_mismatch", title: "The currencies differ"}
	balanceOverflow   = kind{status: http.StatusUnprocessableEntity, code: "balance_overflow", title: "The balance would be too large"}
	holdClosed        = kind{status: http.StatusConflict, code: "hold_closed", title: "The hold is closed"}
	holdOwned         = kind{status: http.StatusConflict, code: "hold_owned", title: "The hold belongs to another part of the system"}
	notActive         = kind{status: http.StatusConflict, code: "not_active", title: "It is not open at present"}
	soldOut           = kind{status: http.StatusConflict, code: "sold_out", title: "No position is left"}
	purchaseLimit     = kind{status: http.StatusConflict, code: "purchase_limit", title: "The purchase limit is reached"}
	badTransition     = kind{status: http.StatusConflict, code: "bad_transition", title: "The status does not allow this"}
	notSoldOut        = kind{status: http.StatusConflict, code: "not_sold_out", title: "The campaign is not sold out"}
	notDrawn          = kind{status: http.StatusNotFound, code: "not_drawn", title: "The campaign is not drawn"}
	noBeacon          = kind{status: http.StatusUnprocessableEntity, code: "beacon_unavailable", title: "The server has no beacon"}
	beaconPending     = kind{status: http.StatusConflict, code: "beacon_pending", title: "The draw waits for its beacon's round", retryable: true}
	tooManyPrizes     = kind{status: http.StatusUnprocessableEntity, code: "too_many_prizes", title: "A prize's quantity exceeds the positions that can win it"}
	bidTooLow         = kind{status: http.StatusUnprocessableEntity, code: "bid_too_low", title: "The bid is too low"}
	amountTaken       = kind{status: http.StatusConflict, code: "amount_taken", title: "Another active bid has this amount"}
	ownAuction        = kind{status: http.StatusConflict, code: "own_auction", title: "The seller cannot bid"}
	coolingDown       = kind{status: http.StatusTooManyRequests, code: "cooldown", title: "The account bid a moment ago", retryable: true}
	multidrawLockHeld = kind{status: http.StatusConflict, code: "lock_held", title: "The lock key is held", retryable: true}
	corruptState      = kind{status: http.StatusInternalServerError, code: "corrupt_state", title: "What was saved contradicts itself"}
	drawsNotCompleted = kind{status: http.StatusNotFound, code: "not_drawn", title: "Not everything is drawn"}
	targetExists      = kind{status: http.StatusConflict, code: "target_exists", title: "A target of this name exists already"}
	automationExists  = kind{status: http.StatusConflict, code: "automation_exists", title: "An automation of this name exists already"}
	wrongKind         = kind{status: http.StatusConflict, code: "wrong_kind", title: "A target of this kind has nothing to replace"}
	keyExists         = kind{status: http.StatusConflict, code: "key_exists", title: "The key exists already"}
	lastAdmin         = kind{status: http.StatusConflict, code: "last_admin", title: "The last admin key cannot be revoked"}
	lockHeld          = kind{status: http.StatusConflict, code: "lock_held", title: "Another holds one of the keys, or is before in line", retryable: true}
	deadlocked        = kind{status: http.StatusConflict, code: "deadlock", title: "Waiting would not end: the owners wait for each other", retryable: true}
	lockLost          = kind{status: http.StatusGone, code: "lock_lost", title: "The lock is no longer held"}
	noTwoPhase        = kind{status: http.StatusUnprocessableEntity, code: "two_phase_unavailable", title: "A ledger's database takes no prepared transactions"}
	coordinatorActive = kind{status: http.StatusConflict, code: "coordinator_active", title: "Another incarnation of the log is at work", retryable: true}
	captureTooLarge   = kind{status: http.StatusUnprocessableEntity, code: "capture_too_large", title: "The amount exceeds the hold"}
)

// sentinels is the one table from services' errors to problems. The first row that matches counts.
//
//nolint:gochecknoglobals // As above.
var sentinels = []struct {
	err  error
	kind kind
	// terse says that the error's own words are not for clients: the title is their detail.
	terse bool
}{
	{idempotency.ErrMalformedKey, keyRequired, false},
	{idempotency.ErrKeyReused, keyReused, false},
	{groupcommit.ErrInFlight, unknownOutcome, true},
	{groupcommit.ErrFull, overloaded, true},
	{groupcommit.ErrClosed, shuttingDown, true},
	{command.ErrUnknownOutcome, unknownOutcome, true},
	{command.ErrUnavailable, unavailable, true},
	{auth.ErrUnavailable, unavailable, true},
	{auth.ErrNoCredential, unauthorized, true},
	{auth.ErrBadCredential, unauthorized, true},
	{context.Canceled, unavailable, true},
	{context.DeadlineExceeded, unavailable, true},
	{ledger.ErrAccountExists, accountExists, false},
	{ledger.ErrSameAccount, sameAccount, false},
	{ledger.ErrCurrencyMismatch, currencyMismatch, false},
	{ledger.ErrBalanceOverflow, balanceOverflow, false},
	{ledger.ErrHoldClosed, holdClosed, false},
	{ledger.ErrCaptureTooLarge, captureTooLarge, false},
	{ledger.ErrHoldOwned, holdOwned, false},
	{lottery.ErrNotActive, notActive, false},
	{lottery.ErrSoldOut, soldOut, false},
	{lottery.ErrPurchaseLimit, purchaseLimit, false},
	{lottery.ErrBadTransition, badTransition, false},
	{lottery.ErrNotSoldOut, notSoldOut, false},
	{lottery.ErrNotDrawn, notDrawn, false},
	{lottery.ErrTooManyPrizes, tooManyPrizes, false},
	{lottery.ErrNoBeacon, noBeacon, false},
	{auction.ErrBadTransition, badTransition, false},
	{auction.ErrNotActive, notActive, false},
	{auction.ErrOwnAuction, ownAuction, false},
	{auction.ErrAmountTaken, amountTaken, false},
	{cross.ErrTwoPhaseUnavailable, noTwoPhase, false},
	{cross.ErrNotDone, badTransition, false},
	{saga.ErrTwoPhaseUnavailable, noTwoPhase, false},
	{saga.ErrCoordinatorActive, coordinatorActive, false},
	{saga.ErrBadTransition, badTransition, false},
	{saga.ErrTooManyRuns, overloaded, false},
	{saga.ErrClosed, shuttingDown, true},
	{multidraw.ErrBadTransition, badTransition, false},
	{multidraw.ErrNotCompleted, drawsNotCompleted, false},
	{multidraw.ErrCorrupt, corruptState, true},
	{multidraw.ErrOtherParameters, corruptState, true},
	{multidraw.ErrTooManyRuns, overloaded, false},
	{multidraw.ErrClosed, shuttingDown, true},
	{publish.ErrBadTransition, badTransition, false},
	{publish.ErrTargetExists, targetExists, false},
	{publish.ErrAutomationExists, automationExists, false},
	{publish.ErrWrongKind, wrongKind, false},
	{publish.ErrRefusedURL, badRequest, false},
	{lock.ErrHeld, lockHeld, true},
	{lock.ErrLost, lockLost, true},
	{lock.ErrClosed, shuttingDown, true},
	{lock.ErrTooManyWaiters, overloaded, true},
	{auth.ErrKeyExists, keyExists, true},
	{auth.ErrLastAdmin, lastAdmin, true},
	{auth.ErrUnknownKey, notFound, true},
	{desk.ErrNoKeyRecord, notFound, true},
}
