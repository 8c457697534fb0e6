package server

import (
	"context"
	"net/http"
)

// Answered is what came of a request, for traces.
type Answered struct {
	Route     string // the pattern that matched, empty where none did
	Status    int    // 0 where the request was broken off without an answer
	Code      string // of the problem that was answered; empty where there was none
	RequestID string
	Replayed  bool // whether it was answered under an idempotency key that had its answer already
}

// Trace begins a request's trace: what serves the request runs under the context that it returns, and end is called with
// what was answered. It must not block.
type Trace func(r *http.Request) (ctx context.Context, end func(Answered))

// unmatched is the route of requests that match none.
const unmatched = "unmatched"

// answered is what the layers of a request have noted.
func answered(i *info, rec *recorder) Answered {
	a := Answered{Route: i.route, Status: rec.status, Code: i.code, RequestID: i.requestID, Replayed: i.replayed}
	if a.Route == unmatched {
		a.Route = ""
	}
	return a
}
