package leanhttp

import (
	"context"
	"io"
	"net"
	"sync"
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
	if len(c.read) == 0 {
		n, err := c.TCPConn.Read(b)
		c.framing.see(b[:n])
		return n, err //nolint:wrapcheck // The connection's own error is the contract of net.Conn.
	}
	n := copy(b, c.read)
	c.framing.see(b[:n])
	if c.read = c.read[n:]; len(c.read) == 0 {
		c.read = nil
	}
	return n, nil
}

// WriteTo implements [io.WriterTo], which [net.TCPConn] has and which would pass by what was read already.
func (c *begun) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(c.read)
	c.read = c.read[n:]
	if err != nil {
		return int64(n), err //nolint:wrapcheck // As for Read.
	}
	more, err := c.TCPConn.WriteTo(w)
	return int64(n) + more, err //nolint:wrapcheck // As for Read.
}
