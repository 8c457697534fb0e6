package server

import (
	"context"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
)

// handler serves a request. An error that it returns becomes the answer, a problem; the handler has written nothing then.
type handler func(w http.ResponseWriter, r *http.Request) error

// shown is a handler that answers with what find finds, as view shows it.
func shown[R, V any](find func(r *http.Request) (R, error), view func(R) V) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		found, err := find(r)
		if err != nil {
			return err
		}
		return writeView(w, view(found))
	}
}

// readRoute is the route of one document.
func readRoute[R, V any](path string, a access, summary string, find func(r *http.Request) (R, error), view func(R) V) route {
	return get(path, a, doc[none, V](summary), shown(find, view))
}

// pathIDOf finds the id in the path. what names the kind of thing that it is of.
func pathIDOf(what string) func(*http.Request) (uuid.UUID, error) {
	return func(r *http.Request) (uuid.UUID, error) { return pathID(r, what) }
}

// with finds something of what another finder has found.
func with[A, R any](first func(*http.Request) (A, error), find func(ctx context.Context, a A) (R, error)) func(*http.Request) (R, error) {
	return func(r *http.Request) (found R, err error) {
		a, err := first(r)
		if err != nil {
			return found, err
		}
		return find(r.Context(), a)
	}
}

// same is the view of what is shown as it is.
func same[V any](v V) V { return v }

// viewed lets a view of a pointer show rows of a list.
func viewed[R, V any](view func(*R) V) func(R) V { return func(row R) V { return view(&row) } }

const contentTypeProblem = "application/problem+json"

// retryAfterSeconds is what a client is told to wait after a 503: long enough for a full queue to drain.
const retryAfterSeconds = 1

// writeProblem answers with the problem that err is.
func (s *Server) writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	info := infoOf(r)
	p := s.problem(r.Context(), err, info.requestID, hasKey(r), "path", r.URL.Path)
	switch p.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", auth.Challenge(err))
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		if w.Header().Get("Retry-After") == "" { // The limiter says when.
			w.Header().Set("Retry-After", strconv.Itoa(retryAfterSeconds))
		}
	}
	info.code = p.Code
	writeBody(w, p.Status, mustMarshal(p))
}

// writeView answers with one of our own documents. It returns nil, for handlers that end with it.
func writeView(w http.ResponseWriter, v any) error {
	writeBody(w, http.StatusOK, mustMarshal(v))
	return nil
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
	return edge.Marshal(v)
}
