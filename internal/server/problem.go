package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/lock"
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

// problemOf makes the document of an error by its row in the table; the text of an error that no row knows stays inside. It is for
// an error of a service, which has read the key by then, or of a request without a key. See beforeKey for all others.
func problemOf(err error, requestID string) Problem {
	k, detail := internalError, "The error was logged under the request id."
	if r, ok := errors.AsType[*refusal](err); ok {
		k, detail = r.Kind, r.Detail
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
		Type: "/docs#" + k.Code, Title: k.Title, Status: k.Status, Detail: detail, Code: k.Code,
		Retryable: k.Retryable, Outcome: k.Outcome, RequestID: requestID,
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
		// Rounded up, so that a client that comes back then need not wait again.
		p.RetryAfter = max(1, int64((early.RetryAfter+time.Second-1)/time.Second))
	}
	return p
}

// problem makes the problem that an error is, of a request with a key or without, and logs one that is unforeseen.
func (s *Server) problem(ctx context.Context, err error, requestID string, keyed bool, attrs ...any) Problem {
	p := problemOf(err, requestID)
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
		return !p.Retryable && p.Code != keyReused.Code
	}
	return false
}
