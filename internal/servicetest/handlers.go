package servicetest

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
)

// handlers sends requests to the servers in turn, without a socket.
type handlers struct {
	all  []http.Handler
	next atomic.Uint64
}

func (s *suite) handlers() *handlers {
	h := &handlers{}
	for _, server := range s.h.Servers {
		h.all = append(h.all, server.Handler())
	}
	return h
}

// RoundTrip implements [http.RoundTripper].
func (h *handlers) RoundTrip(r *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	r = r.Clone(r.Context())
	r.RequestURI, r.RemoteAddr = r.URL.RequestURI(), "127.0.0.1:1"
	if r.Body == nil {
		r.Body = http.NoBody
	}
	h.all[h.next.Add(1)%uint64(len(h.all))].ServeHTTP(recorder, r)
	return recorder.Result(), nil
}
