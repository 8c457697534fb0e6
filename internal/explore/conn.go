//go:build unix

package explore

import (
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// conn is a server's end of a connection to the database. What the server writes stays in out until the gate lets it through. It
// blocks on channels and timers alone, so that a bubble of testing/synctest sees who waits.
type conn struct {
	server string
	who    *goroutines
	signal func() // tells the gate that something is pending

	mu       sync.Mutex
	out      []byte // written, and not let through
	writer   string // how the first of it came to be written: see caller
	asker    uint64 // the goroutine that wrote it
	in       []byte // answered, and not read
	closed   bool   // by the server
	cut      bool   // by the gate
	deadline time.Time
	wake     chan struct{} // has room for one

	link // the gate's
}

func newConn(server string, who *goroutines, signal func()) *conn {
	return &conn{server: server, who: who, signal: signal, wake: make(chan struct{}, 1)}
}

func (c *conn) rouse() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Read implements [net.Conn]. One goroutine reads at a time.
func (c *conn) Read(p []byte) (int, error) {
	for {
		c.mu.Lock()
		deadline := c.deadline
		switch {
		case c.closed:
			c.mu.Unlock()
			return 0, net.ErrClosed
		case !deadline.IsZero() && !time.Now().Before(deadline):
			c.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		case len(c.in) > 0:
			n := copy(p, c.in)
			c.in = c.in[n:]
			c.mu.Unlock()
			return n, nil
		case c.cut:
			c.mu.Unlock()
			return 0, io.EOF
		}
		c.mu.Unlock()
		var over <-chan time.Time
		if !deadline.IsZero() {
			timer := time.NewTimer(time.Until(deadline))
			defer timer.Stop()
			over = timer.C
		}
		select {
		case <-c.wake:
		case <-over:
		}
	}
}

// Write implements [net.Conn]. It never waits.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case c.cut:
		return 0, syscall.EPIPE
	}
	if len(c.out) == 0 {
		c.writer, c.asker = caller(), c.who.here()
	}
	c.out = append(c.out, p...)
	c.signal()
	return len(p), nil
}

// caller says by which functions the goroutine has come to write something. Goroutines that say the same at one moment, and go on
// differently, are told apart by that.
func caller() string {
	var pcs stack
	n := runtime.Callers(3, pcs[:])
	if known, ok := callers.Load(pcs); ok {
		text, _ := known.(string) // Nothing else is kept.
		return text
	}
	frames := runtime.CallersFrames(pcs[:n])
	var text strings.Builder
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		text.WriteString(f.Function)
		text.WriteByte(' ')
	}
	callers.Store(pcs, text.String())
	return text.String()
}

// stack is where a goroutine is, innermost first.
type stack [64]uintptr

// callers keeps what [caller] has said of a stack: the same few ask over and over.
//
//nolint:gochecknoglobals // It says the same to all.
var callers sync.Map

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	c.rouse()
	c.signal()
	return nil
}

// SetReadDeadline implements [net.Conn].
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	c.rouse()
	return nil
}

// SetDeadline implements [net.Conn]. Writes never wait, so theirs does not matter.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline implements [net.Conn].
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// LocalAddr implements [net.Conn].
func (c *conn) LocalAddr() net.Addr { return &net.UnixAddr{Name: c.server, Net: "explored"} }

// RemoteAddr implements [net.Conn].
func (c *conn) RemoteAddr() net.Addr { return &net.UnixAddr{Name: "database", Net: "explored"} }

// answer gives the server what PostgreSQL has said.
func (c *conn) answer(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in = append(c.in, p...)
	c.rouse()
}

// sever ends the connection for the server. What it wrote stays on its way.
func (c *conn) sever() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	c.in = nil
	c.rouse()
}

// gone says that the server no longer hears what is answered.
func (c *conn) gone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed || c.cut
}

// first returns the first whole unit that was written and takes it, if take is set: the start of the session, or all up to a Sync or
// a Query. It returns nil where there is none.
func (c *conn) first(started, take bool) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := unit(c.out, started)
	if n == 0 {
		return nil
	}
	u := c.out[:n:n]
	if take {
		c.out = c.out[n:]
	}
	return u
}

// discard drops what was written.
func (c *conn) discard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = nil
}

// give gives the server an answer. Between transactions nothing tells a connection from the others of its group.
func (c *conn) give(answer []byte) {
	if c.chosen {
		c.who.mark(c.asker, c.who.next())
		c.chosen = false
	}
	c.answer(answer)
	if c.idle && !c.locks {
		c.name = ""
	}
}

// lose has the server lose an answer.
func (c *conn) lose() {
	c.who.mark(c.asker, c.who.next())
	c.chosen = false
	c.sever()
}

// free says that nothing hangs on the session: when it ends makes no difference.
func (c *conn) free() bool {
	return c.name == "" && c.idle && !c.locks && !c.listens && !c.parked && len(c.held) == 0
}
