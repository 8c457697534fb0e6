package leanhttp

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// bufferSize is the largest plain request with its head, in bytes.
	bufferSize = 4 << 10
	// keptBuffer is the largest buffer of an answer that a connection keeps for the next one, in bytes.
	keptBuffer = 16 << 10
	// rearm is how far a connection's deadline may lag behind, so that it need not be moved for each request.
	rearm = 5 * time.Second
)

// What a connection is doing.
const (
	fresh  int32 = iota // nothing has come yet
	active              // a request is being served
	idle                // it waits for the next request
	ended               // it is closed, or net/http's
)

// conn is a connection while it is lean. All but its state belongs to the goroutine that serves it.
type conn struct {
	*counted

	server *Server
	since  time.Time // of its acceptance
	state  atomic.Int32
	armed  time.Time // when the deadline was last moved
	common *http.Request
	// Of the request that is being served:
	request http.Request
	url     url.URL
	header  http.Header
	body    body

	out  response
	wire []byte
}

// body is a request's, which came with its head.
type body struct{ bytes.Reader }

// Close implements [io.Closer].
func (*body) Close() error { return nil }

func newConn(base context.Context, s *Server, tcp *counted) *conn {
	c := &conn{counted: tcp, server: s, since: time.Now(), header: make(http.Header, 8), out: response{header: make(http.Header, 8)}}
	c.common = (&http.Request{
		Method: http.MethodPost, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: tcp.RemoteAddr().String(), Body: &c.body,
	}).WithContext(context.WithValue(base, http.LocalAddrContextKey, tcp.LocalAddr()))
	return c
}

// serve answers the connection's requests while they are plain. It returns when the connection is closed, or net/http's.
func (c *conn) serve() {
	defer c.server.forget(c)
	if limit := c.server.HTTP.ReadHeaderTimeout; limit > 0 {
		_ = c.SetReadDeadline(c.since.Add(limit)) // An error means that it is closed, which the read will tell.
	}
	buffer := make([]byte, bufferSize)
	for filled := 0; ; {
		if filled == 0 {
			var err error
			if filled, err = c.Read(buffer); err != nil {
				c.end()
				return
			}
		}
		if !c.begin() {
			return
		}
		clear(c.header)
		h, ok := parseHead(buffer[:filled], c.header)
		size := h.size + h.length
		if !ok || size > filled || !c.server.Hot(h.path) {
			c.handOver(buffer[:filled])
			return
		}
		if !c.answer(&h, buffer[h.size:size]) {
			c.end()
			return
		}
		filled = copy(buffer, buffer[size:filled])
		c.state.Store(idle)
		if c.server.closing.Load() { // Read after the state is set; a shutdown sets closing first and reads the state then.
			c.end()
			return
		}
	}
}

// begin notes that a request has come, unless a shutdown has closed the connection.
func (c *conn) begin() bool {
	if !c.state.CompareAndSwap(idle, active) && !c.state.CompareAndSwap(fresh, active) {
		return false
	}
	limit := c.server.idleTimeout()
	if now := time.Now(); limit > 0 && now.Sub(c.armed) > min(rearm, limit/4) {
		c.armed = now
		_ = c.SetDeadline(now.Add(limit)) // As for the first.
	}
	return true
}

// end closes the connection, once.
func (c *conn) end() {
	if c.state.Swap(ended) != ended {
		_ = c.Close() // There is nobody to tell.
	}
}

// handOver brings the connection to net/http with what was read from it.
func (c *conn) handOver(read []byte) {
	_ = c.SetDeadline(time.Time{}) // net/http sets its own.
	if c.server.rest.Pass(c.common.Context(), &begun{counted: c.counted, read: bytes.Clone(read)}) {
		c.state.Store(ended)
		return
	}
	c.end()
}

// answer calls the handler and writes its answer. It reports whether the connection may be used again. A panic of the handler
// ends the connection, as it does in net/http.
func (c *conn) answer(h *head, body []byte) (again bool) {
	c.body.Reset(body)
	c.url = url.URL{Path: h.path}
	c.request = *c.common
	r := &c.request
	r.URL = &c.url
	r.Header, r.Host, r.RequestURI, r.ContentLength = h.header, h.host, h.path, int64(h.length)
	defer func() {
		//nolint:errorlint // The sentinel is panicked with as it is.
		if p := recover(); p != nil && p != http.ErrAbortHandler && c.server.HTTP.ErrorLog != nil {
			c.server.HTTP.ErrorLog.Printf("leanhttp: panic serving %s: %v\n%s", r.RemoteAddr, p, debug.Stack())
		}
	}()
	c.server.HTTP.Handler.ServeHTTP(&c.out, r)
	last := c.out.wantsClose() || c.server.closing.Load()
	c.wire = c.out.appendTo(c.wire[:0], time.Now(), last)
	c.out.reset()
	_, err := c.Write(c.wire)
	if cap(c.wire) > keptBuffer {
		c.wire, c.out.body = nil, nil
	}
	return err == nil && !last
}

// response gathers an answer, which goes out in one piece when its handler has returned. Unlike that of net/http, it says
// the body's length itself, and sends neither trailers nor informational answers.
type response struct {
	header http.Header
	status int
	body   []byte
}

func (w *response) Header() http.Header { return w.header }

func (w *response) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
}

func (w *response) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if !bodyAllowed(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	w.body = append(w.body, b...)
	return len(b), nil
}

func (w *response) reset() {
	clear(w.header)
	w.status, w.body = 0, w.body[:0]
}

// wantsClose reports whether the handler asked for the connection's end.
func (w *response) wantsClose() bool {
	return slices.ContainsFunc(w.header["Connection"], func(v string) bool { return strings.EqualFold(v, "close") })
}

// appendTo appends the whole answer to b. now is the Date of an answer that has none of its own.
func (w *response) appendTo(b []byte, now time.Time, last bool) []byte {
	w.WriteHeader(http.StatusOK)
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(w.status), 10)
	b = append(append(append(b, ' '), http.StatusText(w.status)...), "\r\n"...)
	for name, values := range w.header {
		if name == "Content-Length" || name == "Connection" || name == "" || !all(name, inName) {
			continue
		}
		for _, value := range values {
			b = append(append(b, name...), ": "...)
			b = append(append(b, oneLine.Replace(strings.TrimSpace(value))...), "\r\n"...)
		}
	}
	if bodyAllowed(w.status) {
		b = append(b, "Content-Length: "...)
		b = append(strconv.AppendInt(b, int64(len(w.body)), 10), "\r\n"...)
	}
	if last {
		b = append(b, "Connection: close\r\n"...)
	}
	if w.header["Date"] == nil {
		b = append(now.UTC().AppendFormat(append(b, "Date: "...), http.TimeFormat), "\r\n"...)
	}
	return append(append(b, "\r\n"...), w.body...)
}

// oneLine keeps a handler that puts a line's end into a header's value from writing another header.
//
//nolint:gochecknoglobals // It never changes.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

func bodyAllowed(status int) bool {
	return status >= http.StatusOK && status != http.StatusNoContent && status != http.StatusNotModified
}
