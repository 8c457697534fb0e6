package server

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
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

// Problem is an error as RFC 9457 has it, with Fairlead's members.
type Problem struct {
	Type      string `json:"type" doc:"URI reference of the problem's description" example:"/docs#sold_out"`
	Title     string `json:"title" doc:"what happened, the same for every occurrence"`
	Status    int    `json:"status" doc:"HTTP status"`
	Detail    string `json:"detail" doc:"this occurrence, for a person"`
	Code      string `json:"code" doc:"stable name for programs"`
	Retryable bool   `json:"retryable" doc:"whether the same request may succeed later"`
	Outcome   string `json:"outcome" enum:"not_applied,applied,unknown" doc:"what became of the effect: not_applied where that is certain of every request with this key; unknown where this one, or an earlier one, may have been applied, which the same key tells later"`
	RequestID string `json:"request_id"`
	Transfer  string `json:"transfer,omitempty" doc:"the failed transfer's id, with insufficient_funds"`
	// Cycle is there with deadlock alone.
	Cycle []string `json:"cycle,omitempty" doc:"the owners that wait for each other, in waiting order, the asking one first, with deadlock"`
	// RetryAfter is the header of that name, for those who get the problem without headers: a stored or a streamed one.
	RetryAfter int64 `json:"retry_after,omitzero" doc:"whole seconds to wait, with cooldown"`
}

// What became of a refused request's effect.
const (
	notApplied     = "not_applied"
	outcomeUnknown = "unknown"
)

// classify finds an error's row in the table. ok is false for errors that no row knows: their text stays inside.
func classify(err error) (k kind, detail string, ok bool) {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.kind, r.detail, true
	}
	if missing := notFoundOf(err); missing != nil {
		return notFound, missing.Error(), true
	}
	if funds, ok := errors.AsType[*ledger.InsufficientFundsError](err); ok {
		return insufficientFunds, funds.Error(), true
	}
	if low, ok := errors.AsType[*auction.BidTooLowError](err); ok {
		return bidTooLow, low.Error(), true
	}
	if early, ok := errors.AsType[*auction.CooldownError](err); ok {
		return coolingDown, early.Error(), true
	}
	if held, ok := errors.AsType[*multidraw.LockHeldError](err); ok {
		return multidrawLockHeld, held.Error(), true
	}
	if pending, ok := errors.AsType[*lottery.BeaconPendingError](err); ok {
		return beaconPending, pending.Error(), true
	}
	if dead, ok := errors.AsType[*lock.DeadlockError](err); ok {
		return deadlocked, dead.Error(), true
	}
	if _, blocked := errors.AsType[*command.BlockedError](err); blocked {
		return rowLocked, rowLocked.title + ".", true
	}
	if away, ok := errors.AsType[*cross.UnreachableError](err); ok {
		return ledgerAway, away.Error(), true
	}
	for _, row := range sentinels {
		if errors.Is(err, row.err) {
			// Only the sentinel's own words go out; what wraps it is for the log.
			if row.terse {
				return row.kind, row.kind.title + ".", true
			}
			return row.kind, row.err.Error(), true
		}
	}
	return internalError, "The error was logged under the request id.", false
}

// notFoundOf finds the error that says that a named thing does not exist, without what wraps it.
func notFoundOf(err error) error {
	for _, find := range []func(error) error{
		as[*ledger.AccountNotFoundError], as[*ledger.HoldNotFoundError], as[*ledger.TransferNotFoundError],
		as[*lottery.CampaignNotFoundError], as[*lottery.LayerNotFoundError], as[*lottery.PositionNotFoundError], as[*multidraw.NotFoundError],
		as[*auction.NotFoundError], as[*cross.LedgerNotFoundError], as[*saga.NotFoundError], as[*publish.NotFoundError], as[*publish.TargetNotFoundError], as[*publish.AutomationNotFoundError],
	} {
		if missing := find(err); missing != nil {
			return missing
		}
	}
	return nil
}

// as is errors.AsType as one function for all types, nil where there is none.
func as[E error](err error) error {
	if e, ok := errors.AsType[E](err); ok {
		return e
	}
	return nil
}

// problemOf makes the document for an error that a service refused with, which it does only after it has read the key, or for
// one of a request without a key. See beforeKey for all others.
func problemOf(err error, requestID string) Problem {
	k, detail, _ := classify(err)
	p := Problem{
		Type: "/docs#" + k.code, Title: k.title, Status: k.status, Detail: detail, Code: k.code,
		Retryable: k.retryable, Outcome: k.outcome, RequestID: requestID,
	}
	if p.Outcome == "" {
		p.Outcome = notApplied
	}
	if funds, ok := errors.AsType[*ledger.InsufficientFundsError](err); ok && funds.Transfer != nil {
		p.Transfer = funds.Transfer.String()
	}
	if dead, ok := errors.AsType[*lock.DeadlockError](err); ok {
		p.Cycle = dead.Cycle
	}
	if early, ok := errors.AsType[*auction.CooldownError](err); ok {
		// Rounded up: who comes back then is not told to wait again.
		p.RetryAfter = max(1, int64((early.RetryAfter+time.Second-1)/time.Second))
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
		p.Code == crossOrigin.code:
		p.Outcome = outcomeUnknown
	}
}

// hasKey reports whether a request is one that is carried out once under its key.
func hasKey(r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return false
	}
	_, err := parseKey(r.Header)
	return err == nil
}

// decided says whether a refusal is a decision, to be kept under its key: a 402, 409, 410 or 422 that a retry would not
// change.
func decided(p Problem) bool {
	switch p.Status {
	case http.StatusPaymentRequired, http.StatusConflict, http.StatusGone, http.StatusUnprocessableEntity:
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
	if hasKey(r) {
		p.beforeKey(err)
	}
	switch p.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", auth.Challenge(err))
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", strconv.Itoa(retryAfterSeconds))
	case http.StatusTooManyRequests:
		if w.Header().Get("Retry-After") == "" { // The limiter says when.
			w.Header().Set("Retry-After", strconv.Itoa(retryAfterSeconds))
		}
	}
	info.code = p.Code
	writeBody(w, p.Status, mustMarshal(p))
}

// writeAnswer answers with what a service rendered.
func writeAnswer(w http.ResponseWriter, r *http.Request, a command.Answer) {
	infoOf(r).replayed = a.Replayed
	if a.Replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	if a.Status == http.StatusTooManyRequests {
		// The body is all that came through the transaction, so the header is taken from it.
		var p Problem
		if err := json.Unmarshal(a.Body, &p); err == nil && p.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
		}
	}
	writeBody(w, a.Status, a.Body)
}

// writeBody answers with bytes that are ready.
func writeBody(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	if status == http.StatusNoContent {
		w.WriteHeader(status) // Which has neither a body nor the headers of one.
		return
	}
	if status >= http.StatusBadRequest {
		h.Set("Content-Type", contentTypeProblem)
	} else {
		h.Set("Content-Type", "application/json")
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	//nolint:gosec,nolintlint // Bodies are JSON, said to be so, and not sniffed; gosec is not always of the same opinion. An error means that the client went away.
	_, _ = w.Write(body)
}

// mustMarshal encodes one of our own answer types, which cannot fail.
func mustMarshal(v any) []byte {
	if v, ok := v.(appender); ok {
		return v.appendJSON(make([]byte, 0, 384))
	}
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic("server: an answer could not be encoded: " + err.Error())
	}
	return b
}
