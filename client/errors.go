package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Outcomes of a call that ended in a [Problem].
const (
	// NotApplied means that the server has seen that nothing was done under the call's key, and did nothing now.
	NotApplied = "not_applied"
	// Applied means that the effect is there although the answer is a problem.
	Applied = "applied"
	// Unknown means that the server can't tell yet: it may have done it, now or for an earlier attempt with the same key. With
	// a code other than outcome_unknown and internal_error the last attempt did nothing, but that says nothing of those before.
	// A call with the [Problem]'s Key gets the true answer later.
	Unknown = "unknown"
)

// Problem is returned when the server answered that it did not do what was asked.
type Problem struct {
	// Status is the HTTP status, 400 or above.
	Status int `json:"status"`
	// Code is the stable name of what happened, such as sold_out. It is empty when what answered was no Fairlead
	// server, but a proxy before it, say.
	Code string `json:"code"`
	// Title and Detail say it to a person: in general, and this once.
	Title  string `json:"title"`
	Detail string `json:"detail"`
	// Retryable tells whether the same request may succeed later; the client has tried already.
	Retryable bool `json:"retryable"`
	// Outcome is NotApplied, Applied or Unknown.
	Outcome string `json:"outcome"`
	// RequestID finds the request in the server's log.
	RequestID string `json:"request_id"`
	// Transfer is the id of the failed transfer, with insufficient_funds.
	Transfer string `json:"transfer"`
	// Cycle names the owners that wait for each other, in waiting order, the asking one first, with deadlock.
	Cycle []string `json:"cycle"`

	// Reason is why the server is not ready, in answers of /readyz, which are no problem documents.
	Reason string `json:"reason"`

	// Key is the idempotency key of the call; empty where it had none.
	Key string `json:"-"`
	// RetryAfter is how long the server asked to wait; 0 when it did not.
	RetryAfter time.Duration `json:"-"`
}

// Error names code and detail.
func (p *Problem) Error() string {
	switch {
	case p.Reason != "":
		return "client: the server is not ready: " + p.Reason
	case p.Code == "":
		return fmt.Sprintf("client: the answer was %d %s, and no problem document", p.Status, http.StatusText(p.Status))
	}
	return fmt.Sprintf("client: %s (%s)", p.Detail, p.Code)
}

// CodeOf returns the code of the [Problem] in err, and "" where there is none.
func CodeOf(err error) string {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p.Code
	}
	return ""
}

// UnansweredError is returned when no answer came: the connection failed at every attempt, or the context ended. What
// was asked was done once or not at all.
type UnansweredError struct {
	// Key is the idempotency key of the call; empty where it had none. The same call with this key settles it.
	Key string
	// Attempts is how often the request was sent.
	Attempts int
	// Err is what went wrong the last time.
	Err error
}

// Error says how often it was tried, and under which key.
func (e *UnansweredError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("client: no answer after %d attempts: %v", e.Attempts, e.Err)
	}
	return fmt.Sprintf("client: no answer after %d attempts with Idempotency-Key %s: %v", e.Attempts, e.Key, e.Err)
}

// Unwrap gives the last failure, in which context.Canceled and context.DeadlineExceeded can be found.
func (e *UnansweredError) Unwrap() error { return e.Err }

// problemOf reads an answer of 400 or above.
func problemOf(a *Answer) *Problem {
	p := &Problem{}
	if json.Unmarshal(a.Body, p) != nil || p.Code == "" {
		// A proxy that could not reach the server knows nothing of the effect.
		*p = Problem{Outcome: Unknown, Retryable: isGatewayStatus(a.Status), Reason: p.Reason}
	}
	p.Status, p.Key, p.RetryAfter = a.Status, a.Key, retryAfter(a.Header)
	return p
}

func isGatewayStatus(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}
