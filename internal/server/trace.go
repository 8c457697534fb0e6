package server

import (
	"context"
	"net/http"
)

// Trace begins a request's trace: what serves the request runs under the context that it returns, and end is called with
// what came of it. It must not block.
//
// The route is the pattern that matched, empty where none did. The status is 0 where the request was broken off without an
// answer. The code is of the problem that was answered, empty where there was none. A replay is an answer under an
// idempotency key that had its answer already.
type Trace func(r *http.Request) (ctx context.Context, end func(route string, status int, code, requestID string, replayed bool))

// unmatched is the route of requests that match none.
const unmatched = "unmatched"
