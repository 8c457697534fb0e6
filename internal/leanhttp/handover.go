package leanhttp

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// Handover is a listener whose connections come from elsewhere in the process: here those that are not lean any more, which
// net/http gets from it. It is safe for concurrent use.
type Handover struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewHandover returns a listener that says it is at addr.
func NewHandover(addr net.Addr) *Handover {
	return &Handover{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Pass brings c to whoever accepts, and reports whether that took it before the listener was closed or ctx ended.
func (h *Handover) Pass(ctx context.Context, c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.closed:
	case <-ctx.Done():
	}
	return false
}

// Accept implements [net.Listener].
func (h *Handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (h *Handover) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr implements [net.Listener].
func (h *Handover) Addr() net.Addr { return h.addr }

// begun is a connection from which some bytes were read already. It is read by one goroutine at a time.
type begun struct {
	*counted

	read    []byte
	framing framing
}

// Read implements [net.Conn]: first come the bytes that were read already.
func (c *begun) Read(b []byte) (int, error) {
	var n int
	var err error
	if len(c.read) == 0 {
		c.read = nil
		n, err = c.TCPConn.Read(b)
	} else {
		n = copy(b, c.read)
		c.read = c.read[n:]
	}
	c.framing.see(b[:n])
	return n, err //nolint:wrapcheck // The connection's own error is the contract of net.Conn.
}

// WriteTo implements [io.WriterTo], which [net.TCPConn] has and which would pass by what was read already.
func (c *begun) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{c}) //nolint:wrapcheck // As for Read.
}

// framing watches what net/http reads of a connection for a request that says the length of its body twice, by Content-Length
// and by Transfer-Encoding. net/http takes such a request and silently drops the first. A proxy in front of this
// server may have believed the first, and then one of the two takes a part of the body for the next request (RFC 9112 §6.3).
//
// It looks at lines and does not know where bodies begin, so two lines of a body that look like both headers count as well.
// Bodies here are JSON, which has no such lines.
type framing struct {
	line             []byte // the beginning of the line that is being read
	length, encoding bool   // which of the two headers have come since the last empty line
	twice            atomic.Bool
	off              atomic.Bool // the connection speaks another protocol now
}

const (
	contentLength    = "content-length"
	transferEncoding = "transfer-encoding"
	// linePrefix is how much of a line is kept: more than the longer name and its colon.
	linePrefix = 32
)

func (f *framing) see(b []byte) {
	if f.off.Load() {
		return
	}
	for len(b) > 0 {
		end := bytes.IndexByte(b, '\n')
		part := b
		if end >= 0 {
			part = b[:end]
		}
		f.line = append(f.line, part[:min(len(part), linePrefix-len(f.line))]...)
		if end < 0 {
			return
		}
		f.endLine()
		b = b[end+1:]
	}
}

func (f *framing) endLine() {
	line := strings.TrimSuffix(string(f.line), "\r")
	f.line = f.line[:0]
	if line == "" {
		f.length, f.encoding = false, false
		return
	}
	name, _, _ := strings.Cut(line, ":")
	f.length = f.length || strings.EqualFold(name, contentLength)
	f.encoding = f.encoding || strings.EqualFold(name, transferEncoding)
	if f.length && f.encoding {
		f.twice.Store(true)
	}
}

type framingKey struct{}

// Ambiguous reports whether a request, or one that was sent right behind it, gives the length of its body in two ways. The
// handler must refuse it and close its connection. ctx is the request's.
func Ambiguous(ctx context.Context) bool {
	f, ok := ctx.Value(framingKey{}).(*framing)
	return ok && f.twice.Load()
}

// watch has net/http tell requests of the framing of their connections.
func watch(s *http.Server) {
	inner, state := s.ConnContext, s.ConnState
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if inner != nil {
			ctx = inner(ctx, c)
		}
		if b, ok := c.(*begun); ok {
			ctx = context.WithValue(ctx, framingKey{}, &b.framing)
		}
		return ctx
	}
	s.ConnState = func(c net.Conn, to http.ConnState) {
		if b, ok := c.(*begun); ok && to == http.StateHijacked {
			b.framing.off.Store(true)
		}
		if state != nil {
			state(c, to)
		}
	}
}
