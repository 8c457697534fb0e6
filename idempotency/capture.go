package idempotency

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// ErrResponseTooLarge is returned by the handler's Write once an answer exceeds [Options.MaxResponse].
var ErrResponseTooLarge = errors.New("idempotency: the answer is too large to be kept")

// capture gathers a handler's answer. Nothing reaches the client before the answer is kept, so it offers neither
// http.Flusher nor http.Hijacker.
type capture struct {
	real     http.ResponseWriter
	header   http.Header
	sent     http.Header // as it was when the status was written
	status   int
	body     []byte
	limit    int // bytes of body
	tooLarge bool
}

var _ http.ResponseWriter = (*capture)(nil)

func newCapture(w http.ResponseWriter, limit int) *capture {
	return &capture{real: w, header: http.Header{}, limit: limit}
}

// SetReadDeadline, SetWriteDeadline and EnableFullDuplex are what an [http.ResponseController] finds: they write nothing.
// There is no Unwrap, which would let it flush and hijack.

// SetReadDeadline sets the connection's own.
func (c *capture) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(c.real).SetReadDeadline(t)
}

// SetWriteDeadline sets the connection's own.
func (c *capture) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(c.real).SetWriteDeadline(t)
}

// EnableFullDuplex enables the connection's own.
func (c *capture) EnableFullDuplex() error {
	return http.NewResponseController(c.real).EnableFullDuplex()
}

// Header implements [http.ResponseWriter].
func (c *capture) Header() http.Header { return c.header }

// WriteHeader implements [http.ResponseWriter]. Informational statuses are not passed on, since they can't be repeated.
func (c *capture) WriteHeader(status int) {
	switch {
	case status < 100 || status > 999:
		panic(fmt.Sprintf("idempotency: invalid status %d", status)) // As net/http does.
	case c.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols):
		c.status, c.sent = status, c.header.Clone()
	}
}

// Write implements [http.ResponseWriter].
func (c *capture) Write(p []byte) (int, error) {
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
	switch {
	case !bodyAllowed(c.status):
		return 0, http.ErrBodyNotAllowed
	case len(p) > c.limit-len(c.body):
		c.tooLarge = true
		return 0, ErrResponseTooLarge
	}
	c.body = append(c.body, p...)
	return len(p), nil
}

func bodyAllowed(status int) bool {
	return status >= http.StatusOK && status != http.StatusNoContent && status != http.StatusNotModified
}

// response is the answer, or false when it is too large to be kept.
func (c *capture) response(maxHeader int) (Response, bool) {
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
	h := c.sent
	// Those that the server or a proxy makes for each answer anew.
	for _, name := range [...]string{"Connection", "Content-Length", "Date", "Keep-Alive", "Trailer", "Transfer-Encoding", "Upgrade"} {
		h.Del(name)
	}
	if _, ok := h["Content-Type"]; !ok && len(c.body) > 0 {
		h.Set("Content-Type", http.DetectContentType(c.body))
	}
	size := 0
	for name, values := range h {
		for _, v := range values {
			size += len(name) + len(v) + len(": \r\n")
		}
	}
	if c.tooLarge || size > maxHeader {
		return Response{}, false
	}
	return Response{Status: c.status, Header: h, Body: c.body}, true
}

// addsUp reports whether a header field that several handlers have set is sent with the values of all of them.
func addsUp(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Link", "Proxy-Authenticate", "Server-Timing", "Set-Cookie", "Vary", "Via", "Warning", "Www-Authenticate":
		return true
	}
	return false
}

// send answers with a response. Headers that were set before, by what is in front of the middleware, stay as they are
// unless the response has others; where values add up, both stay.
func send(w http.ResponseWriter, a Response, replayed bool) {
	h := w.Header()
	for name, values := range a.Header {
		var before []string
		if addsUp(name) {
			before = h[name]
		}
		h[name] = append(slices.Clip(before), values...)
	}
	if replayed {
		h.Set(ReplayedHeader, "true")
	}
	status := a.Status
	if status < http.StatusOK || status > 999 {
		status = http.StatusOK // Of an answer that was not made for HTTP.
	}
	if bodyAllowed(status) {
		h.Set("Content-Length", strconv.Itoa(len(a.Body)))
	}
	w.WriteHeader(status)
	if len(a.Body) > 0 && bodyAllowed(status) {
		_, _ = w.Write(a.Body) // A client that has gone asks again.
	}
}
