package server

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestTrace holds what the hook is told, and that requests run under its context, however they end.
func TestTrace(t *testing.T) {
	t.Parallel()
	type mark struct{}
	type answered struct {
		Route           string
		Status          int
		Code, RequestID string
		Replayed        bool
	}
	var told []answered
	s := &Server{
		metrics: newHTTPMetrics(prometheus.NewRegistry()), Options: Options{
			Logger: slog.New(slog.DiscardHandler),
			Trace: func(r *http.Request) (context.Context, func(string, int, string, string, bool)) {
				return context.WithValue(r.Context(), mark{}, r.URL.Path), func(route string, status int, code, requestID string, replayed bool) {
					told = append(told, answered{route, status, code, requestID, replayed})
				}
			},
		},
	}
	for _, c := range []struct {
		path    string
		handler http.HandlerFunc
		aborts  bool
		want    answered
	}{
		{"/matched", s.serve("/{any}", 0, accessPublic, func(w http.ResponseWriter, r *http.Request) error {
			infoOf(r).replayed = true
			w.WriteHeader(http.StatusCreated)
			return nil
		}), false, answered{Route: "/{any}", Status: http.StatusCreated, Replayed: true}},
		{"/unmatched", s.notFoundPath, false, answered{Status: http.StatusNotFound, Code: "not_found"}},
		{"/not//clean", func(http.ResponseWriter, *http.Request) { t.Error("it is served") }, false, answered{Status: http.StatusNotFound, Code: "not_found"}},
		{
			"/panics", s.serve("/panics", 0, accessPublic, func(http.ResponseWriter, *http.Request) error { panic("oh") }), false,
			answered{Route: "/panics", Status: http.StatusInternalServerError, Code: "internal_error"},
		},
		{"/aborts", s.serve("/aborts", 0, accessPublic, func(http.ResponseWriter, *http.Request) error { panic(http.ErrAbortHandler) }), true, answered{Route: "/aborts"}},
	} {
		told = nil
		h := s.outermost(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Context().Value(mark{}) != c.path {
				t.Errorf("%s does not run under the hook's context", c.path)
			}
			c.handler(w, r)
		}))
		w := httptest.NewRecorder()
		aborted := func() (aborted bool) {
			defer func() { aborted = recover() != nil }()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, c.path, nil))
			return false
		}()
		c.want.RequestID = w.Header().Get("X-Request-Id")
		if len(told) != 1 || told[0] != c.want || aborted != c.aborts {
			t.Errorf("%s: told %+v, want %+v; aborted: %v", c.path, told, c.want, aborted)
		}
	}
}
