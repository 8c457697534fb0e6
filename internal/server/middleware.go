package server

import (
	"context"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
)

// info is what the layers of one request tell each other.
type info struct {
	requestID string
	principal auth.Principal
	route     string // the pattern that matched, for metrics
	code      string // of the problem that was answered
	replayed  bool
}

type infoKey struct{}

func infoOf(r *http.Request) *info {
	if i, ok := r.Context().Value(infoKey{}).(*info); ok {
		return i
	}
	return &info{} // A handler under test without the outer layers.
}

// maxRequestID is the longest X-Request-Id that is taken over from a client or proxy.
const maxRequestID = 128

// requestIDOf takes the caller's request id when it is harmless in a log, and makes one otherwise.
func requestIDOf(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	if id == "" || len(id) > maxRequestID || strings.ContainsFunc(id, isNotRequestID) {
		return uuid.Must(uuid.NewV7()).String()
	}
	return id
}

// isNotRequestID reports characters that do not belong in an identifier, whatever they could do in a log or a page.
func isNotRequestID(c rune) bool {
	return (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("-_.:/+=@", c)
}

// recorder notes the status and size of an answer.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += n
	return n, err //nolint:wrapcheck // The writer's own error is the contract of io.Writer.
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// outermost gives each request an id, survives panics, and logs and measures every answer.
func (s *Server) outermost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		i := &info{requestID: requestIDOf(r), route: unmatched}
		r = r.WithContext(context.WithValue(r.Context(), infoKey{}, i))
		rec := &recorder{ResponseWriter: w}
		if s.Trace != nil {
			ctx, end := s.Trace(r)
			r = r.WithContext(ctx) //nolint:contextcheck // It is made from the request's own.
			// The last thing, so that a panic has been answered.
			defer func() {
				route := i.route
				if route == unmatched {
					route = ""
				}
				end(route, rec.status, i.code, i.requestID, i.replayed)
			}()
		}
		h := rec.Header()
		// Their names are in canonical form, which Set would find out for each answer.
		h["X-Request-Id"] = []string{i.requestID}
		h["X-Content-Type-Options"] = []string{"nosniff"}
		h["Cache-Control"] = []string{"no-store"}
		//nolint:contextcheck // The request, and with it its context, is what the deferred function works on.
		defer func() {
			if p := recover(); p != nil {
				if p == http.ErrAbortHandler { //nolint:errorlint // The sentinel is panicked with as it is.
					panic(p)
				}
				s.Logger.ErrorContext(r.Context(), "handler panicked", "request_id", i.requestID, "panic", p, "stack", string(debug.Stack()))
				if rec.status == 0 {
					s.writeProblem(rec, r, &refusal{Kind: internalError, Detail: "The error was logged under the request id."})
				}
			}
			s.finish(r, rec, i, time.Since(start))
		}()
		if err := checkDoor(rec, r); err != nil {
			s.writeProblem(rec, r, err)
			return
		}
		// The standard mux would redirect a path that is not clean. A program needs an error.
		if p := r.URL.Path; p != "/" && path.Clean(p) != strings.TrimSuffix(p, "/") || strings.HasSuffix(p, "//") {
			s.notFoundPath(rec, r)
			return
		}
		// A connection that has been idle is closed when the server drains, maybe at the moment at which its next request is read: nobody
		// would hear what that has changed.
		if r.Method != http.MethodGet && r.Method != http.MethodHead && s.draining.Err() != nil {
			s.writeProblem(rec, r, &refusal{Kind: edge.ShuttingDown, Detail: "the server is shutting down"})
			return
		}
		next.ServeHTTP(rec, r)
	})
}

func (s *Server) finish(r *http.Request, rec *recorder, i *info, took time.Duration) {
	s.metrics.request(r.Method, i.route, rec.status, took)
	level := slog.LevelDebug
	if rec.status >= http.StatusInternalServerError {
		level = slog.LevelWarn
	}
	if !s.Logger.Enabled(r.Context(), level) {
		return
	}
	s.Logger.Log(r.Context(), level, "request", "request_id", i.requestID, "method", r.Method, "path", r.URL.Path,
		"status", rec.status, "code", i.code, "bytes", rec.bytes, "took", took, "principal", i.principal.ID, "replayed", i.replayed)
}
