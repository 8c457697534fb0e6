package server

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/ledger"
	"github.com/fairlead-dev/fairlead/lottery"
)

// Problem is an error as RFC 9457 has it, with Fairlead's members.
type Problem struct {
	Type      string `json:"type" doc:"URI reference of the problem's description" example:"/docs#sold_out"`
	Title     string `json:"title" doc:"what happened, the same for every occurrence"`
	Status    int    `json:"status" doc:"HTTP status"`
	Detail    string `json:"detail" doc:"this occurrence, for a person"`
	Code      string `json:"code" doc:"stable name for programs"`
	Retryable bool   `json:"retryable" doc:"whether the same request may succeed later"`
	Outcome   string `json:"outcome" enum:"not_applied,applied,unknown" doc:"what became of the effect"`
	RequestID string `json:"request_id"`
	Transfer  string `json:"transfer,omitempty" doc:"the failed transfer's id, with insufficient_funds"`
}

// What became of a refused request's effect.
const (
	notApplied     = "not_applied"
	outcomeUnknown = "unknown"
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
	unknownOutcome   = kind{status: http.StatusServiceUnavailable, code: "outcome_unknown", title: "The outcome is not known yet; the same key will tell", retryable: true, outcome: outcomeUnknown}
	internalError    = kind{status: http.StatusInternalServerError, code: "internal_error", title: "Something went wrong on our side"}

	keyReused         = kind{status: http.StatusUnprocessableEntity, code: "idempotency_key_reused", title: "The Idempotency-Key was used with a different request"}
	accountExists     = kind{status: http.StatusConflict, code: "account_exists", title: "The account exists already"}
	insufficientFunds = kind{status: http.StatusPaymentRequired, code: "insufficient_funds", title: "The account has too little available"}
	sameAccount       = kind{status: http.StatusUnprocessableEntity, code: "same_account", title: "Source and destination are the same account"}
	currencyMismatch  = kind{status: http.StatusUnprocessableEntity, code: "currency_mismatch", title: "The currencies differ"}
	balanceOverflow   = kind{status: http.StatusUnprocessableEntity, code: "balance_overflow", title: "The balance would be too large"}
	holdClosed        = kind{status: http.StatusConflict, code: "hold_closed", title: "The hold is closed"}
	notActive         = kind{status: http.StatusConflict, code: "not_active", title: "The campaign is not active"}
	soldOut           = kind{status: http.StatusConflict, code: "sold_out", title: "No position is left"}
	purchaseLimit     = kind{status: http.StatusConflict, code: "purchase_limit", title: "The purchase limit is reached"}
	badTransition     = kind{status: http.StatusConflict, code: "bad_transition", title: "The status does not allow this"}
	notSoldOut        = kind{status: http.StatusConflict, code: "not_sold_out", title: "The campaign is not sold out"}
	notDrawn          = kind{status: http.StatusNotFound, code: "not_drawn", title: "The campaign is not drawn"}
	tooManyPrizes     = kind{status: http.StatusUnprocessableEntity, code: "too_many_prizes", title: "A prize's quantity exceeds the positions that can win it"}
	keyExists         = kind{status: http.StatusConflict, code: "key_exists", title: "The key exists already"}
	lastAdmin         = kind{status: http.StatusConflict, code: "last_admin", title: "The last admin key cannot be revoked"}
	captureTooLarge   = kind{status: http.StatusUnprocessableEntity, code: "capture_too_large", title: "The amount exceeds the hold"}
)

// sentinels is the one table from services' errors to problems. The first row that matches counts.
var sentinels = []struct {
	err  error
	kind kind
}{
	{idempotency.ErrMalformedKey, keyRequired},
	{idempotency.ErrKeyReused, keyReused},
	{groupcommit.ErrInFlight, unknownOutcome},
	{groupcommit.ErrFull, overloaded},
	{groupcommit.ErrClosed, shuttingDown},
	{command.ErrUnknownOutcome, unknownOutcome},
	{command.ErrUnavailable, unavailable},
	{auth.ErrUnavailable, unavailable},
	{auth.ErrNoCredential, unauthorized},
	{auth.ErrBadCredential, unauthorized},
	{context.Canceled, unavailable},
	{context.DeadlineExceeded, unavailable},
	{ledger.ErrAccountExists, accountExists},
	{ledger.ErrSameAccount, sameAccount},
	{ledger.ErrCurrencyMismatch, currencyMismatch},
	{ledger.ErrBalanceOverflow, balanceOverflow},
	{ledger.ErrHoldClosed, holdClosed},
	{ledger.ErrCaptureTooLarge, captureTooLarge},
	{lottery.ErrNotActive, notActive},
	{lottery.ErrSoldOut, soldOut},
	{lottery.ErrPurchaseLimit, purchaseLimit},
	{lottery.ErrBadTransition, badTransition},
	{lottery.ErrNotSoldOut, notSoldOut},
	{lottery.ErrNotDrawn, notDrawn},
	{lottery.ErrTooManyPrizes, tooManyPrizes},
	{auth.ErrKeyExists, keyExists},
	{auth.ErrLastAdmin, lastAdmin},
	{auth.ErrUnknownKey, notFound},
}

// classify finds an error's row in the table. ok is false for errors that no row knows: their text stays inside.
func classify(err error) (k kind, detail string, ok bool) {
	var r *refusal
	if errors.As(err, &r) {
		return r.kind, r.detail, true
	}
	if isNotFound(err) {
		return notFound, err.Error(), true
	}
	var funds *ledger.InsufficientFundsError
	if errors.As(err, &funds) {
		return insufficientFunds, funds.Error(), true
	}
	for _, row := range sentinels {
		if errors.Is(err, row.err) {
			// Only the sentinel's own words go out; what wraps it is for the log.
			if row.kind.status >= http.StatusInternalServerError || row.kind.status == http.StatusUnauthorized {
				return row.kind, row.kind.title + ".", true
			}
			return row.kind, row.err.Error(), true
		}
	}
	return internalError, "The error was logged under the request id.", false
}

// isNotFound recognises the errors that say that a named thing does not exist.
func isNotFound(err error) bool {
	var (
		account  *ledger.AccountNotFoundError
		hold     *ledger.HoldNotFoundError
		transfer *ledger.TransferNotFoundError
		campaign *lottery.CampaignNotFoundError
		layer    *lottery.LayerNotFoundError
		position *lottery.PositionNotFoundError
	)
	return errors.As(err, &account) || errors.As(err, &hold) || errors.As(err, &transfer) ||
		errors.As(err, &campaign) || errors.As(err, &layer) || errors.As(err, &position)
}

// problemOf makes the document for an error.
func problemOf(err error, requestID string) Problem {
	k, detail, _ := classify(err)
	p := Problem{
		Type: "/docs#" + k.code, Title: k.title, Status: k.status, Detail: detail, Code: k.code,
		Retryable: k.retryable, Outcome: k.outcome, RequestID: requestID,
	}
	if p.Outcome == "" {
		p.Outcome = notApplied
	}
	var funds *ledger.InsufficientFundsError
	if errors.As(err, &funds) && funds.Transfer != nil {
		p.Transfer = funds.Transfer.String()
	}
	return p
}

// decided says whether a refusal is a decision, to be kept under its key: a 402, 409 or 422 that a retry would not
// change.
func decided(p Problem) bool {
	switch p.Status {
	case http.StatusPaymentRequired, http.StatusConflict, http.StatusUnprocessableEntity:
		return !p.Retryable && p.Code != keyReused.code
	}
	return false
}

const contentTypeProblem = "application/problem+json"

// retryAfterSeconds is what a client is told to wait after a 503: long enough for a full queue to drain.
const retryAfterSeconds = 1

// writeProblem answers with the problem that err is.
func (s *Server) writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	info := infoOf(r)
	if _, _, known := classify(err); !known {
		attrs := []any{"request_id", info.requestID, "path", r.URL.Path, "error", err}
		if p, ok := errors.AsType[*groupcommit.PanicError](err); ok {
			attrs = append(attrs, "stack", string(p.Stack))
		}
		s.logger.ErrorContext(r.Context(), "request failed", attrs...)
	}
	p := problemOf(err, info.requestID)
	switch p.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", auth.Challenge(err))
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", strconv.Itoa(retryAfterSeconds))
	}
	info.code = p.Code
	writeBody(w, p.Status, mustMarshal(p))
}

// writeBody answers with bytes that are ready.
func writeBody(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	if status >= http.StatusBadRequest {
		h.Set("Content-Type", contentTypeProblem)
	} else {
		h.Set("Content-Type", "application/json")
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // The client went away; there is nobody left to tell.
}

// mustMarshal encodes one of our own answer types, which cannot fail.
func mustMarshal(v any) []byte {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic("server: an answer could not be encoded: " + err.Error())
	}
	return b
}
