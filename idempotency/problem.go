package idempotency

import (
	"encoding/json"
	"net/http"
)

// Codes of the problems that the middleware answers with.
const (
	CodeKeyRequired      = "idempotency_key_required" // 400: the key is missing or malformed
	CodeKeyReused        = "idempotency_key_reused"   // 422: the key stands for another request
	CodeInFlight         = "in_flight"                // 409: a request with the key is being executed
	CodeOutcomeUnknown   = "outcome_unknown"          // 409 or 503: nobody knows whether the request had its effect
	CodeUnavailable      = "idempotency_unavailable"  // 503: the store can't be reached, and this request was not executed
	CodeBadBody          = "bad_request"              // 400: the body could not be read
	CodeBodyConsumed     = "body_consumed"            // 500: the body was read by something in front of the middleware
	CodeHandlerCrashed   = "handler_crashed"          // 500: the handler panicked
	CodePayloadTooLarge  = "payload_too_large"        // 413: the request's body exceeds Options.MaxBody
	CodeResponseTooLarge = "response_too_large"       // 500: the answer exceeds what may be kept
)

// Problem is a refusal by the middleware itself, in the form of RFC 9457.
type Problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail"`
	Code      string `json:"code"`
	Retryable bool   `json:"retryable"` // the same request may be sent again under the same key
	Outcome   string `json:"outcome"`   // not_applied, applied or unknown
}

// What is known of a request's effect.
const (
	notApplied = "not_applied"
	applied    = "applied"
	unknown    = "unknown"
)

// problem describes a code. The message is the same for all requests, and tells nothing of any.
func problem(code string) Problem {
	p := Problem{Code: code, Outcome: notApplied}
	switch code {
	case CodeKeyRequired:
		p.Status, p.Title = http.StatusBadRequest, "Idempotency-Key is missing or malformed"
		p.Detail = "Send an Idempotency-Key header of 1 to 255 visible ASCII characters, quoted or bare, once."
	case CodeKeyReused:
		p.Status, p.Title = http.StatusUnprocessableEntity, "Idempotency-Key is already used"
		p.Detail = "The key was sent with another request before. Take a new key for a new request."
	case CodeInFlight:
		p.Status, p.Title, p.Retryable, p.Outcome = http.StatusConflict, "A request with this Idempotency-Key is being executed", true, unknown
		p.Detail = "Send the same request again a little later to get its answer."
	case CodeOutcomeUnknown:
		p.Status, p.Title, p.Retryable, p.Outcome = http.StatusConflict, "The outcome of the request is not known", true, unknown
		p.Detail = "The request was begun, and its end is not known. It is not executed again; the same key gets the answer once it is."
	case CodeUnavailable:
		p.Status, p.Title, p.Retryable, p.Outcome = http.StatusServiceUnavailable, "Idempotency keys can't be kept at present", true, unknown
		p.Detail = "This request was not executed; whether one with its key was before can't be looked up. Send the same request again later."
	case CodeBadBody:
		p.Status, p.Title = http.StatusBadRequest, "The request's body could not be read"
	case CodeBodyConsumed:
		p.Status, p.Title = http.StatusInternalServerError, "The request's body was consumed before it could be compared"
		p.Detail = "The service reads the body in front of what keeps its idempotency keys. The request was not executed."
	case CodeHandlerCrashed:
		p.Status, p.Title, p.Outcome = http.StatusInternalServerError, "The request's handler has failed", unknown
		p.Detail = "The request was begun, and its effect is not known. It is not executed again under this key."
	case CodePayloadTooLarge:
		p.Status, p.Title = http.StatusRequestEntityTooLarge, "The request's body is too large"
	case CodeResponseTooLarge:
		p.Status, p.Title, p.Outcome = http.StatusInternalServerError, "The answer is too large to be repeated", applied
		p.Detail = "The request was executed, but what it answered exceeds what may be kept under a key."
	}
	return p
}

// response renders a problem.
func (p Problem) response() Response {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // It is strings, a number and a boolean.
	}
	h := http.Header{"Content-Type": {"application/problem+json"}, "Cache-Control": {"no-store"}}
	if p.Status == http.StatusConflict || p.Status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	return Response{Status: p.Status, Header: h, Body: body}
}
