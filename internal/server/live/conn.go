package live

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of a socket's connection.
const (
	// sendBuffer is what the kernel may take of a client that reads nothing; the kernel doubles it. It is small so that a
	// stalled client is noticed, and large enough for a busy auction over a long way.
	sendBuffer = 64 << 10
	// maxUnsent is what may wait in this process.
	maxUnsent = 1 << 20
	// keptBuffer is the largest buffer that is used again.
	keptBuffer = 64 << 10
	// The buffers of the WebSocket's frames.
	readBuffer  = 1 << 10
	frameBuffer = 256
	// lastWords is how long the end of a connection waits for what was still to be sent.
	lastWords = time.Second
)

var errUnsent = errors.New("too much is waiting to be sent")

// corkedConn collects what is written until its owner flushes it, so that a batch of frames is one packet, nothing that is
// written ever waits, and a write that took too long can be continued: what the client has not taken is not lost.
type corkedConn struct {
	net.Conn

	buffers *sync.Pool
	dirty   chan struct{} // has an element when somebody else than the flusher has written
	stuck   atomic.Bool   // a flush is waiting for the client

	mu      sync.Mutex
	unsent  *bytes.Buffer // nil when there is nothing
	corked  bool
	through time.Duration // when set, what is written is sent at once, with this deadline

	sending sync.Mutex
}

// Write implements [net.Conn].
func (c *corkedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if c.unsent == nil {
		c.unsent = c.buffers.Get().(*bytes.Buffer) //nolint:errcheck,forcetypeassert // The pool has nothing else.
	}
	if c.unsent.Len()+len(p) > maxUnsent {
		c.mu.Unlock()
		return 0, errUnsent
	}
	c.unsent.Write(p)
	corked, through := c.corked, c.through
	c.mu.Unlock()
	if through > 0 {
		return len(p), c.flush(through)
	}
	if !corked {
		select {
		case c.dirty <- struct{}{}:
		default:
		}
	}
	return len(p), nil
}

// cork says that what is written until the next flush is the flusher's own.
func (c *corkedConn) cork() {
	c.mu.Lock()
	c.corked = true
	c.mu.Unlock()
}

// uncork makes every write be sent at once from now on.
func (c *corkedConn) uncork(timeout time.Duration) {
	c.mu.Lock()
	c.through = timeout
	c.mu.Unlock()
}

// flush sends what was written. After a timeout the rest stays, and another flush goes on from there.
func (c *corkedConn) flush(timeout time.Duration) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.send(timeout)
}

// send is flush for a caller that holds the mutex sending.
func (c *corkedConn) send(timeout time.Duration) error {
	c.mu.Lock()
	out := c.unsent
	c.unsent, c.corked = nil, false
	c.mu.Unlock()
	if out == nil {
		return nil
	}
	c.stuck.Store(true)
	err := c.SetWriteDeadline(time.Now().Add(timeout))
	if err == nil {
		_, err = out.WriteTo(c.Conn)
	}
	c.stuck.Store(false)
	if out.Len() == 0 {
		if out.Cap() <= keptBuffer {
			out.Reset()
			c.buffers.Put(out)
		}
		return err
	}
	c.mu.Lock()
	if c.unsent != nil {
		out.Write(c.unsent.Bytes())
	}
	c.unsent = out
	c.mu.Unlock()
	return err
}

// Close implements [net.Conn]. What is still to be sent is, if the connection takes it.
func (c *corkedConn) Close() error {
	if c.sending.TryLock() {
		_ = c.send(lastWords) // The connection ends one way or the other.
		c.sending.Unlock()
	}
	return c.Conn.Close()
}

// corkingWriter lets a WebSocket take over the connection through a corkedConn and with small buffers.
type corkingWriter struct {
	http.ResponseWriter

	buffers *sync.Pool
	conn    *corkedConn // after Hijack
}

// Hijack implements [http.Hijacker].
func (w *corkingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	// The handshake's answer waits in the server's buffer.
	if err := errors.Join(conn.SetDeadline(time.Time{}), rw.Flush()); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	if tcp, ok := conn.(interface{ SetWriteBuffer(bytes int) error }); ok {
		_ = tcp.SetWriteBuffer(sendBuffer) // Without it a stalled client is noticed later.
	}
	w.conn = &corkedConn{Conn: conn, buffers: w.buffers, dirty: make(chan struct{}, 1)}
	// What the client sent right behind its handshake was read already. The reader looks full of it to its new owner, who
	// takes it from there.
	early := make([]byte, rw.Reader.Buffered())
	if _, err := io.ReadFull(rw.Reader, early); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	reader := bufio.NewReaderSize(bytes.NewReader(early), max(readBuffer, len(early)))
	if len(early) > 0 {
		_, _ = reader.Peek(len(early))
	}
	return w.conn, bufio.NewReadWriter(reader, bufio.NewWriterSize(w.conn, frameBuffer)), nil
}
