// Package edge has what the parts of the HTTP edge share: how a request is refused, and strict JSON.
package edge

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
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
	Kind       Kind
	Detail     string
	RetryAfter time.Duration // until the same may be asked again; 0: not known
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

// Decode reads one JSON object strictly: member names are matched exactly, unknown and duplicate members, trailing data
// and invalid UTF-8 are refused. An empty body is an empty object. Errors are refusals that name the member.
func Decode(body []byte, into any) error {
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	if len(trimmed) == 0 {
		return nil
	}
	if trimmed[0] != '{' {
		return Refuse("the body must be a JSON object")
	}
	if err := json.Unmarshal(body, into, json.RejectUnknownMembers(true)); err != nil {
		return Refuse("%s", Describe(err))
	}
	return nil
}

// Describe says what is wrong with a JSON text, without the decoder's own wording, which names Go types.
func Describe(err error) string {
	var (
		semantic  *json.SemanticError
		syntactic *jsontext.SyntacticError
	)
	switch {
	case errors.Is(err, json.ErrUnknownName):
		if errors.As(err, &semantic) {
			return fmt.Sprintf("unknown member %s", semantic.JSONPointer)
		}
		return "unknown member"
	case errors.Is(err, jsontext.ErrDuplicateName):
		if errors.As(err, &syntactic) {
			return fmt.Sprintf("duplicate member %s", syntactic.JSONPointer)
		}
		return "duplicate member"
	case errors.As(err, &syntactic) && strings.Contains(err.Error(), "exceeded max depth"):
		return fmt.Sprintf("JSON that is nested too deep, at byte %d: 10,000 levels are taken", syntactic.ByteOffset)
	case errors.As(err, &syntactic):
		return fmt.Sprintf("malformed JSON at byte %d", syntactic.ByteOffset)
	case errors.As(err, &semantic) && semantic.JSONPointer != "":
		return fmt.Sprintf("%s has the wrong type or is out of range", semantic.JSONPointer)
	case errors.As(err, &semantic):
		return "a JSON object is needed"
	}
	return "malformed JSON"
}

// Marshal encodes one of our own answer types, which cannot fail.
func Marshal(v any) []byte {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic("server: an answer could not be encoded: " + err.Error())
	}
	return b
}
