package leanhttp

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
)

// framing watches what net/http reads of a connection for a request that says the length of its body twice, by Content-Length
// and by Transfer-Encoding. net/http takes such a request and silently drops the first. A proxy in front of this
// server may have believed the first, and then one of the two takes a part of the body for the next request (RFC 9112 §6.3).
//
// It knows lines alone, not where bodies begin: two lines of a body that look like both headers count as well. Bodies here are
// JSON, which has no such lines.
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

// Ambiguous reports whether a request, or one that was sent right behind it, says the length of its body in two ways. It is to
// be refused, and its connection closed. ctx is the request's.
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
