package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
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
	// A call with the [Problem]'s Key gets the true answer later. The client also says so where it does not know what became of an
	// earlier attempt of this call, or of another of its calls under the same key, whatever the server says of the last one.
	Unknown = "unknown"
)

// Problem is returned when the server answered that it did not do what was asked.
type Problem struct {
	Status int `json:"status"` // of HTTP: 400 or above, or 3xx of a redirect that was not followed
	// Code is the stable name of what happened, such as sold_out. It is empty when what answered was no Fairlead
	// server, but a proxy before it, say.
	Code string `json:"code"`
	// Title and Detail say it to a person: in general, and this once.
	Title     string `json:"title"`
	Detail    string `json:"detail"`
	Retryable bool   `json:"retryable"`  // whether the same request may succeed later; the client has tried already
	Outcome   string `json:"outcome"`    // NotApplied, Applied or Unknown
	RequestID string `json:"request_id"` // finds the request in the server's log
	Transfer  string `json:"transfer"`   // the id of the failed transfer, with insufficient_funds, or of the one that has the reference, with reference_taken
	// Cycle names the owners that wait for each other, in waiting order, the asking one first, with deadlock.
	Cycle []string `json:"cycle"`

	// Reason is why the server is not ready, in answers of /readyz, which are no problem documents.
	Reason string `json:"reason"`

	Key        string        `json:"-"` // the idempotency key of the call; empty where it had none
	RetryAfter time.Duration `json:"-"` // how long the server asked to wait; 0 when it did not
}

// Error names code and detail.
func (p *Problem) Error() string {
	switch {
	case p.Reason != "":
		return "client: the server is not ready: " + p.Reason
	case p.Code == "" && p.Detail != "":
		return "client: " + p.Detail
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

// UnansweredError is returned when no answer came, or none that can be read: the connection failed at every attempt, the context ended,
// or what came was neither a problem nor the document of a success. What was asked was done once or not at all.
type UnansweredError struct {
	Key      string // the idempotency key of the call, with which the same call settles it; empty where it had none
	Attempts int    // how often the request was sent
	Err      error  // what went wrong the last time
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

// check returns an error when the answer is neither a problem nor a success that accept takes.
func (a *Answer) check(accept func(*Answer) error) error {
	if a.Status >= http.StatusBadRequest || isRedirect(a.Status) {
		return nil
	}
	if !isSuccess(a.Status) {
		return fmt.Errorf("%w: its status is %d %s", errUnexpected, a.Status, http.StatusText(a.Status))
	}
	if err := accept(a); err != nil {
		return fmt.Errorf("%w: %d %s: %w", errUnexpected, a.Status, http.StatusText(a.Status), err)
	}
	return nil
}

// problemOf reads a redirect, or an answer of 400 or above.
func problemOf(a *Answer) *Problem {
	var read struct {
		Problem
		Seconds json.RawMessage `json:"retry_after"`
	}
	if isRedirect(a.Status) || json.Unmarshal(a.Body, &read) != nil || read.Code == "" {
		// A proxy that could not reach the server knows nothing of the effect.
		read.Problem = Problem{Outcome: Unknown, Retryable: isGatewayStatus(a.Status), Reason: read.Reason}
	}
	p := &read.Problem
	if isRedirect(a.Status) {
		p.Detail = redirectDetail(a)
	}
	p.Status, p.Key = a.Status, a.Key
	// An answer from a batch has no header of its own.
	p.RetryAfter = retryAfter(cmp.Or(a.Header.Get("Retry-After"), string(read.Seconds)))
	return p
}

// redirectDetail says where a redirect leads, and what to do.
func redirectDetail(a *Answer) string {
	detail := fmt.Sprintf("the answer was %d %s, a redirect that was not followed, so this request did nothing", a.Status, http.StatusText(a.Status))
	if to := a.Header.Get("Location"); to != "" {
		detail += fmt.Sprintf("; it leads to %q: use the address it names as base URL", to)
	}
	return detail
}

// longestRetryAfter is what a longer Retry-After is read as, so that no sum of durations overflows.
const longestRetryAfter = 365 * 24 * time.Hour

// retryAfter reads a Retry-After in either of its forms; 0 means that there is none.
func retryAfter(value string) time.Duration {
	// A number that is out of range comes as the nearest one in it.
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(max(0, seconds), int64(longestRetryAfter/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(0, time.Until(at)), longestRetryAfter)
	}
	return 0
}

func isSuccess(status int) bool { return status >= 200 && status < 300 }

// isRedirect reports whether a status sends the client elsewhere. 304 does not: it answers a cache.
func isRedirect(status int) bool {
	return status >= 300 && status < 400 && status != http.StatusNotModified
}

func isGatewayStatus(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}
