package server

import (
	"context"
	"errors"
	"net/http"
	"time"

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

// Problem is an error as RFC 9457 has it, with Fairlead's members.
type Problem struct {
	Type      string `json:"type" doc:"URI reference of the problem's description" example:"/docs/problems#sold_out"`
	Title     string `json:"title" doc:"what happened, the same for every occurrence"`
	Status    int    `json:"status" doc:"HTTP status"`
	Detail    string `json:"detail" doc:"this occurrence, for a person"`
	Code      string `json:"code" doc:"stable name for programs"`
	Retryable bool   `json:"retryable" doc:"whether the same request may succeed later"`
	Outcome   string `json:"outcome" enum:"not_applied,applied,unknown" doc:"what became of the effect: not_applied where it is certain that neither this request nor one before it had one; unknown where this one, or an earlier one, may have been applied, which the same key tells later. Of a request with the same key that is under way at the same time it says nothing"`
	RequestID string `json:"request_id"`
	Transfer  string `json:"transfer,omitempty" doc:"the id of the failed transfer, with insufficient_funds, or of the one that has the reference, with reference_taken"`
	Leg       *int   `json:"leg,omitempty" minimum:"0" doc:"the leg, from 0, for which a transfer with legs was refused"`
	// Cycle is there with deadlock alone.
	Cycle []string `json:"cycle,omitempty" doc:"the owners that wait for each other, in waiting order, the asking one first, with deadlock"`
	// RetryAfter is the header of that name, for those who get the problem without headers: a stored or a streamed one.
	RetryAfter int64 `json:"retry_after,omitzero" doc:"whole seconds to wait, with cooldown and rate_limited"`
}

// What became of a refused request's effect.
const (
	notApplied     = "not_applied"
	outcomeUnknown = "unknown"
)

// problemOf makes the document of an error by its row in the table; the text of an error that no row knows stays inside. It is for
// an error of a service, which has read the key by then, or of a request without a key. See beforeKey for all others.
func problemOf(err error, requestID string) Problem {
	k, detail := internalError, "The error was logged under the request id."
	var wait int64
	if r, ok := errors.AsType[*refusal](err); ok {
		if k, detail = r.Kind, r.Detail; r.RetryAfter > 0 {
			wait = wholeSeconds(r.RetryAfter)
		}
	} else {
		for _, row := range problems {
			if found := row.find(err); found != nil {
				if k, detail = row.kind, found.Error(); row.terse {
					detail = k.Title + "."
				}
				break
			}
		}
	}
	p := Problem{
		Type: problemsPath + "#" + k.Code, Title: k.Title, Status: k.Status, Detail: detail, Code: k.Code,
		Retryable: k.Retryable, Outcome: k.Outcome, RequestID: requestID, RetryAfter: wait,
	}
	if p.Outcome == "" {
		p.Outcome = notApplied
	}
	if funds, ok := errors.AsType[*ledger.InsufficientFundsError](err); ok && funds.Transfer != nil {
		p.Transfer = funds.Transfer.String()
	}
	if refused, ok := errors.AsType[*ledger.LegError](err); ok {
		p.Leg = &refused.Leg
	}
	if taken, ok := errors.AsType[*ledger.ReferenceTakenError](err); ok {
		p.Transfer = taken.Transfer.String()
	}
	if dead, ok := errors.AsType[*lock.DeadlockError](err); ok {
		p.Cycle = dead.Cycle
	}
	if early, ok := errors.AsType[*auction.CooldownError](err); ok {
		p.RetryAfter = wholeSeconds(early.RetryAfter)
	}
	return p
}

// wholeSeconds rounds up, so that a client that comes back then need not wait again.
func wholeSeconds(d time.Duration) int64 { return max(1, int64((d+time.Second-1)/time.Second)) }

// problem makes the problem that an error is, of a request with a key or without, and logs one that is unforeseen.
func (s *Server) problem(ctx context.Context, err error, requestID string, keyed bool, attrs ...any) Problem {
	p := problemOf(err, requestID)
	s.metrics.problems.WithLabelValues(p.Code).Inc()
	if _, raised := errors.AsType[*refusal](err); p.Code == internalError.Code && !raised {
		attrs = append(attrs, "request_id", requestID, "error", err)
		if panicked, ok := errors.AsType[*groupcommit.PanicError](err); ok {
			attrs = append(attrs, "stack", string(panicked.Stack))
		}
		s.Logger.ErrorContext(ctx, "request failed", attrs...)
	}
	if keyed {
		p.beforeKey(err)
	}
	return p
}

// beforeKey corrects what the problem says of a request with a key that may not have been read: that this one was not applied is
// known, and not whether an earlier one under the same key was. Some problems are of a request that can't have been applied at
// any time, because of what it asks for, or of whom: those keep their word, and so do a service's own decisions.
// docs/design/outcomes.md has the table.
func (p *Problem) beforeKey(err error) {
	switch {
	case errors.Is(err, command.ErrNotApplied):
	case p.Status == http.StatusUnauthorized, p.Status == http.StatusTooManyRequests, p.Status >= http.StatusInternalServerError,
		p.Code == crossOrigin.Code:
		p.Outcome = outcomeUnknown
	}
}

// hasKey reports whether a request is one that is carried out once under its key, or the keys of its commands.
func hasKey(r *http.Request) bool {
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return false
	case r.URL.Path == batchPath:
		return true
	}
	_, err := parseKey(r.Header)
	return err == nil
}

// decided says whether a refusal is a decision, to be kept under its key: a 402, 409, 410 or 422 that a retry would not
// change.
func decided(p Problem) bool {
	switch p.Status {
	case http.StatusPaymentRequired, http.StatusConflict, http.StatusGone, http.StatusUnprocessableEntity:
		return !p.Retryable && p.Code != keyReused.Code
	}
	return false
}

// The words of the edge that its parts share.
type (
	refusal = edge.Refusal
	kind    = edge.Kind
)

func refuse(format string, args ...any) error { return edge.Refuse(format, args...) }

// Problems that the edge itself raises, and those that several rows of the table share.
//
//nolint:gochecknoglobals // A table: written here, read everywhere, changed nowhere.
var (
	unauthorized     = kind{Status: http.StatusUnauthorized, Code: "unauthorized", Title: "A valid credential is required"}
	methodNotAllowed = kind{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Title: "The path does not take this method"}
	payloadTooLarge  = kind{Status: http.StatusRequestEntityTooLarge, Code: "payload_too_large", Title: "The body is larger than 1 MiB, or a batch of commands than 4 MiB"}
	unknownOutcome   = kind{Status: http.StatusServiceUnavailable, Code: "outcome_unknown", Title: "The outcome is not known yet; the same key will tell", Retryable: true, Outcome: outcomeUnknown}
	// What went wrong is not known, so neither is whether it was before or after a commit.
	internalError = kind{Status: http.StatusInternalServerError, Code: "internal_error", Title: "Something went wrong on our side", Outcome: outcomeUnknown}
	keyReused     = kind{Status: http.StatusUnprocessableEntity, Code: "idempotency_key_reused", Title: "The Idempotency-Key was used with a different request"}
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
	{is[*lottery.SalesNotFoundError], edge.NotFound, false},
	{is[*lottery.LayerNotFoundError], edge.NotFound, false},
	{is[*lottery.PositionNotFoundError], edge.NotFound, false},
	{is[*multidraw.NotFoundError], edge.NotFound, false},
	{is[*auction.NotFoundError], edge.NotFound, false},
	{is[*cross.LedgerNotFoundError], edge.NotFound, false},
	{is[*saga.NotFoundError], edge.NotFound, false},
	{is[*publish.NotFoundError], edge.NotFound, false},
	{is[*ledger.InsufficientFundsError], kind{Status: http.StatusPaymentRequired, Code: "insufficient_funds", Title: "The account has too little available"}, false},
	{is[*ledger.ReferenceTakenError], kind{Status: http.StatusConflict, Code: "reference_taken", Title: "Another request has completed with the reference"}, false},
	{is[*auction.BidTooLowError], kind{Status: http.StatusUnprocessableEntity, Code: "bid_too_low", Title: "The bid is too low"}, false},
	{is[*auction.CooldownError], kind{Status: http.StatusTooManyRequests, Code: "cooldown", Title: "The account bid a moment ago", Retryable: true}, false},
	{is[*multidraw.LockHeldError], kind{Status: http.StatusConflict, Code: "lock_held", Title: "The lock key is held", Retryable: true}, false},
	{is[*lottery.UnwitnessedError], kind{Status: http.StatusConflict, Code: "unwitnessed", Title: "Too few witnesses have seen the seal", Retryable: true}, false},
	{is[*lottery.NotSealedError], kind{Status: http.StatusNotFound, Code: "not_sealed", Title: "No witness has seen a seal of the campaign before its round"}, false},
	{is[*lottery.BeaconPendingError], kind{Status: http.StatusConflict, Code: "beacon_pending", Title: "The draw waits for its beacon's round", Retryable: true}, false},
	{is[*lock.DeadlockError], kind{Status: http.StatusConflict, Code: "deadlock", Title: "Waiting would not end: the owners wait for each other", Retryable: true}, false},
	{is[*command.BlockedError], kind{Status: http.StatusServiceUnavailable, Code: "row_locked", Title: "Another session of the database has locked what the command needs", Retryable: true}, true},
	{is[*cross.UnreachableError], kind{Status: http.StatusServiceUnavailable, Code: "ledger_unreachable", Title: "A ledger cannot be reached", Retryable: true}, false},
	{only(idempotency.ErrMalformedKey), kind{Status: http.StatusBadRequest, Code: "idempotency_key_required", Title: "A valid Idempotency-Key header is required"}, false},
	{only(idempotency.ErrKeyReused), keyReused, false},
	{only(groupcommit.ErrInFlight), unknownOutcome, true},
	{only(groupcommit.ErrFull), edge.Overloaded, true},
	{only(groupcommit.ErrClosed), edge.ShuttingDown, true},
	{only(command.ErrUnknownOutcome), unknownOutcome, true},
	// Before ErrUnavailable, which is what a read says that is ended from outside.
	{only(errNotCounted), kind{Status: http.StatusServiceUnavailable, Code: "not_counted", Title: "The ledger is too large to be counted in one request", Retryable: true}, false},
	{only(command.ErrUnavailable, auth.ErrUnavailable), edge.Unavailable, true},
	{only(auth.ErrNoCredential, auth.ErrBadCredential), unauthorized, false},
	{only(context.Canceled, context.DeadlineExceeded), edge.Unavailable, true},
	{only(ledger.ErrAccountExists), kind{Status: http.StatusConflict, Code: "account_exists", Title: "The account exists already"}, false},
	{only(ledger.ErrSameAccount), kind{Status: http.StatusUnprocessableEntity, Code: "same_account", Title: "Source and destination are the same account"}, false},
	{only(ledger.ErrCurrencyMismatch), kind{Status: http.StatusUnprocessableEntity, Code: "currency_mismatch", Title: "The currencies differ"}, false},
	{only(ledger.ErrBalanceOverflow), kind{Status: http.StatusUnprocessableEntity, Code: "balance_overflow", Title: "The balance would be too large"}, false},
	{only(ledger.ErrHoldClosed), kind{Status: http.StatusConflict, Code: "hold_closed", Title: "The hold is closed"}, false},
	{only(ledger.ErrCaptureTooLarge), kind{Status: http.StatusUnprocessableEntity, Code: "capture_too_large", Title: "The amount exceeds the hold"}, false},
	{only(ledger.ErrHoldOwned), kind{Status: http.StatusConflict, Code: "hold_owned", Title: "The hold belongs to another part of the system"}, false},
	{only(lottery.ErrNotActive, auction.ErrNotActive), kind{Status: http.StatusConflict, Code: "not_active", Title: "It is not open at present"}, false},
	{only(lottery.ErrSoldOut), kind{Status: http.StatusConflict, Code: "sold_out", Title: "No position is left"}, false},
	{only(lottery.ErrPurchaseLimit), kind{Status: http.StatusConflict, Code: "purchase_limit", Title: "The purchase limit is reached"}, false},
	{
		only(lottery.ErrBadTransition, auction.ErrBadTransition, cross.ErrNotDone, saga.ErrBadTransition, multidraw.ErrBadTransition, publish.ErrBadTransition),
		kind{Status: http.StatusConflict, Code: "bad_transition", Title: "The status does not allow this"},
		false,
	},
	{only(lottery.ErrNotSoldOut), kind{Status: http.StatusConflict, Code: "not_sold_out", Title: "The campaign is not sold out"}, false},
	{only(lottery.ErrNotDrawn), kind{Status: http.StatusNotFound, Code: "not_drawn", Title: "The campaign is not drawn"}, false},
	{only(lottery.ErrTooManyPrizes), kind{Status: http.StatusUnprocessableEntity, Code: "too_many_prizes", Title: "A prize's quantity exceeds the positions that can win it"}, false},
	{is[*lottery.WitnessesError], kind{Status: http.StatusUnprocessableEntity, Code: "witnesses_unavailable", Title: "The server's log has too few witnesses"}, false},
	{only(lottery.ErrNoBeacon), kind{Status: http.StatusUnprocessableEntity, Code: "beacon_unavailable", Title: "The server has no beacon"}, false},
	{only(auction.ErrOwnAuction), kind{Status: http.StatusConflict, Code: "own_auction", Title: "The seller cannot bid"}, false},
	{only(auction.ErrAmountTaken), kind{Status: http.StatusConflict, Code: "amount_taken", Title: "Another active bid has this amount"}, false},
	{only(cross.ErrTwoPhaseUnavailable, saga.ErrTwoPhaseUnavailable), kind{Status: http.StatusUnprocessableEntity, Code: "two_phase_unavailable", Title: "A ledger's database takes no prepared transactions"}, false},
	{only(saga.ErrCoordinatorActive), kind{Status: http.StatusConflict, Code: "coordinator_active", Title: "Another incarnation of the log is at work", Retryable: true}, false},
	{only(saga.ErrTooManyRuns, multidraw.ErrTooManyRuns), edge.Overloaded, false},
	{only(saga.ErrClosed, multidraw.ErrClosed, lock.ErrClosed), edge.ShuttingDown, true},
	{only(multidraw.ErrNotCompleted), kind{Status: http.StatusNotFound, Code: "not_drawn", Title: "Not everything is drawn"}, false},
	{only(multidraw.ErrCorrupt, multidraw.ErrOtherParameters), kind{Status: http.StatusInternalServerError, Code: "corrupt_state", Title: "What was saved contradicts itself"}, true},
	{only(publish.ErrTargetExists), kind{Status: http.StatusConflict, Code: "target_exists", Title: "A target of this name exists already"}, false},
	{only(publish.ErrAutomationExists), kind{Status: http.StatusConflict, Code: "automation_exists", Title: "An automation of this name exists already"}, false},
	{only(publish.ErrSubscriptionExists), kind{Status: http.StatusConflict, Code: "subscription_exists", Title: "A subscription of this name exists already"}, false},
	{only(publish.ErrNoWebhook), kind{Status: http.StatusUnprocessableEntity, Code: "webhook_required", Title: "The target is no webhook"}, false},
	{is[*publish.ReplayError], kind{Status: http.StatusUnprocessableEntity, Code: "replay_out_of_range", Title: "The topic cannot be replayed after this number"}, false},
	{only(publish.ErrWrongKind), kind{Status: http.StatusConflict, Code: "wrong_kind", Title: "A target of this kind has nothing to replace"}, false},
	{only(publish.ErrRefusedURL), edge.BadRequest, false},
	{only(lock.ErrHeld), kind{Status: http.StatusConflict, Code: "lock_held", Title: "Another holds one of the keys, or is before in line", Retryable: true}, true},
	{only(lock.ErrLost), kind{Status: http.StatusGone, Code: "lock_lost", Title: "The lock is no longer held"}, true},
	{only(lock.ErrTooManyWaiters), edge.Overloaded, true},
	{only(auth.ErrKeyExists), kind{Status: http.StatusConflict, Code: "key_exists", Title: "The key exists already"}, true},
	{only(auth.ErrLastAdmin), kind{Status: http.StatusConflict, Code: "last_admin", Title: "The last admin key cannot be revoked"}, true},
	{only(auth.ErrUnknownKey, operator.ErrNoKeyRecord), edge.NotFound, true},
}

// is finds an error of a type; nil where there is none.
func is[E error](err error) error {
	if e, ok := errors.AsType[E](err); ok {
		return e
	}
	return nil
}

// only finds the first of some errors.
func only(sentinels ...error) func(error) error {
	return func(err error) error {
		for _, sentinel := range sentinels {
			if errors.Is(err, sentinel) {
				return sentinel
			}
		}
		return nil
	}
}
