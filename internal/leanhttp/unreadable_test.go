package leanhttp

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestUnreadableRequestsAreAnswered sends what net/http can't read, and answers of handlers that look nearly like its own.
func TestUnreadableRequestsAreAnswered(t *testing.T) {
	t.Parallel()
	r, _ := newDoor(t, func(s *Server) {
		s.HTTP.MaxHeaderBytes = 4 << 10
		s.Unreadable = func(status int, reason string) []byte {
			body := fmt.Sprintf("%d|%s", status, reason)
			return fmt.Appendf(nil, "HTTP/1.1 418 I'm a teapot\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}
		s.HTTP.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte("the handler's own"))
		})
	})
	// net/http reads its limit and 4 KiB more. This is no longer: bytes that net/http leaves unread would reset the connection.
	large := ("GET /cold HTTP/1.1\r\nX: " + strings.Repeat("x", 8<<10))[:8<<10]
	for request, want := range map[string]string{
		"nonsense\r\n\r\n":           "400|",
		"GET /cold HTTP/1.1\r\n\r\n": "400|missing required Host header",
		"POST /hot HTTP/1.1\r\n\r\n": "400|missing required Host header",
		"GET /cold HTTP/4.0\r\n\r\n": "505|unsupported protocol version",
		large:                        "431|",
		"POST /cold HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\nX: y\r\n\r\n":   "501|",
		"POST /hot HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: tea\r\n\r\n{}": "417|",
		"GET /cold HTTP/1.0\r\nHost: h\r\nExpect: tea\r\n\r\n":                        "417|",
		"GET /cold HTTP/1.1\r\nHost: h\r\n\r\n":                                       "the handler's own",
		"POST /hot HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n":                  "the handler's own",
	} {
		p := r.dial()
		p.send(request)
		if _, body := p.answer(); body != want {
			t.Errorf("%.60q is answered %q, not %q", request, body, want)
		}
		_ = p.Close()
	}
}
