// Package busypoll makes connections that stay awake for an answer that comes at once.
//
// A server on the same machine answers within some tens of microseconds. Most of that goes to sleep: the caller's thread is
// put to sleep and woken, on an idle processor, for each answer. Whoever looks again and again instead has the answer
// sooner, and has used no more processor time for it, as Linux does within the kernel for sockets with SO_BUSY_POLL.
// It is worth nothing where answers take longer, and so a connection finds out how long they take.
package busypoll

import (
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// patience is how long an answer is looked for before the caller sleeps until it comes.
	patience = 100 * time.Microsecond
	// worth is how long answers may take, on average, to be looked for: about twice what it takes to sleep and be woken.
	worth = 60 * time.Microsecond
	// late is what an answer counts as that did not come in time.
	late = 2 * patience
	// again is every how many answers one is looked for where they take longer.
	again = 64
)

// Wrap returns a connection that looks for an answer where one is awaited under a deadline: in the first Read after
// SetDeadline. A client that is used by one caller at a time sets one for each call; one that is used by many waits without,
// and its waiting is not changed. A connection that can't be looked at, as one with TLS, is returned as it is.
func Wrap(c net.Conn) net.Conn {
	if runtime.NumCPU() == 1 { // The only processor is the server's meanwhile.
		return c
	}
	return wrap(c)
}

func wrap(c net.Conn) net.Conn {
	of, ok := c.(syscall.Conn)
	if !ok {
		return c
	}
	raw, err := of.SyscallConn()
	if err != nil {
		return c
	}
	w := &conn{Conn: c, raw: raw}
	w.look = w.poll
	return w
}

// conn is safe for concurrent use as its connection is, but for reading, which one goroutine does.
type conn struct {
	net.Conn

	raw     syscall.RawConn
	look    func(fd uintptr) bool // poll, made once
	awaited atomic.Bool           // a deadline was set and nothing read since
	usual   time.Duration         // that answers take; those of late count more
	left    int                   // answers that were not looked for since one was

	into  []byte // of a poll
	until time.Time
	found bool
	n     int
	err   error
}

// SetDeadline implements [net.Conn].
func (c *conn) SetDeadline(t time.Time) error {
	c.awaited.Store(!t.IsZero())
	return c.Conn.SetDeadline(t)
}

// Read implements [net.Conn].
func (c *conn) Read(b []byte) (int, error) {
	switch {
	case !c.awaited.Swap(false) || len(b) == 0:
	case c.usual > worth && c.left < again:
		c.left++
	default:
		c.left = 0
		took, found := c.await(b)
		c.usual += (took - c.usual) / 8
		if found {
			return c.n, c.err
		}
	}
	return c.Conn.Read(b)
}

// await looks for an answer, and tells how long it took.
func (c *conn) await(b []byte) (time.Duration, bool) {
	began := time.Now()
	c.into, c.found, c.until = b, false, began.Add(patience)
	err := c.raw.Read(c.look)
	c.into = nil
	if err != nil || !c.found { // The usual way tells what is wrong.
		return late, false
	}
	return time.Since(began), true
}
