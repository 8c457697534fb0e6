// Package edge has what the parts of the HTTP edge share: how a request is refused, and strict JSON.
package edge

import (
	"fmt"
	"net/http"
	"time"
)

// CommandTimeout is how long a caller waits for its command at most. A transaction is retried for a shorter time, so callers
// rarely end without a definite answer.
const CommandTimeout = 30 * time.Second

// Kind is a row of the table of problems.
type Kind struct {
	Status    int
	Code      string
	Title     string
	Retryable bool
	Outcome   string // not_applied when empty
}

// Refusal is an error that the edge itself raises.
type Refusal struct {
	Kind   Kind
	Detail string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Detail }

// Refuse makes a [BadRequest] with a detail for a person.
func Refuse(format string, args ...any) error {
	return &Refusal{Kind: BadRequest, Detail: fmt.Sprintf(format, args...)}
}

// The problems that more than one part of the edge raises.
//
//nolint:gochecknoglobals // A table: written here, read everywhere, changed nowhere.
var (
	BadRequest   = Kind{Status: http.StatusBadRequest, Code: "bad_request", Title: "The request is malformed"}
	Forbidden    = Kind{Status: http.StatusForbidden, Code: "forbidden", Title: "The credential does not allow this"}
	NotFound     = Kind{Status: http.StatusNotFound, Code: "not_found", Title: "There is no such thing"}
	RateLimited  = Kind{Status: http.StatusTooManyRequests, Code: "rate_limited", Title: "Too many requests", Retryable: true}
	Overloaded   = Kind{Status: http.StatusServiceUnavailable, Code: "overloaded", Title: "The queue is full", Retryable: true}
	ShuttingDown = Kind{Status: http.StatusServiceUnavailable, Code: "shutting_down", Title: "The server is shutting down", Retryable: true}
	Unavailable  = Kind{Status: http.StatusServiceUnavailable, Code: "unavailable", Title: "The database is unavailable", Retryable: true}
)
