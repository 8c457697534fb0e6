package live

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/net/http/httpguts"

	"github.com/fairlead-dev/fairlead/internal/auth"
	hub "github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
)

// Limits of a socket.
const (
	maxFrame     = 64 << 10 // of what a client sends
	maxBids      = 16       // of one socket, under way at a time; what comes then waits in the network
	maxAnswers   = 8        // that wait for the writer; whoever has more waits
	messageBatch = 64       // that are written at a time
)

// socket is one WebSocket. Its reader executes what the client asks for, its writer is the only one that waits for the
// client to take something.
type socket struct {
	*client

	edge    *Edge
	ws      *websocket.Conn
	wire    *corkedConn
	sub     *hub.Subscriber
	answers chan []byte
	bids    chan struct{} // has an element for each bid under way
}

// Socket answers a WebSocket handshake. The socket outlives the request.
func (e *Edge) Socket(w http.ResponseWriter, r *http.Request) error {
	err := e.checkOrigin(r)
	if err == nil {
		err = checkHandshake(w, r)
	}
	var c *client
	if err == nil {
		c, err = e.admit(r)
	}
	if err != nil {
		return err
	}
	hijacking := &corkingWriter{ResponseWriter: w, buffers: &e.buffers}
	// Who may connect was checked above, by our rules and with our answers.
	ws, err := websocket.Accept(hijacking, r, &websocket.AcceptOptions{
		Subprotocols: []string{auth.Subprotocol}, InsecureSkipVerify: true,
		// Pings count, too. One too many is not answered.
		OnPingReceived: func(context.Context, []byte) bool { return e.s.Count(c.principal) == nil },
	})
	if err != nil {
		e.Logger.DebugContext(r.Context(), "websocket", "error", err)
		e.leave(c)
		return nil
	}
	ws.SetReadLimit(maxFrame)
	s := &socket{
		client: c, edge: e, ws: ws, wire: hijacking.conn, sub: e.Hub.NewSubscriber(),
		answers: make(chan []byte, maxAnswers), bids: make(chan struct{}, maxBids),
	}
	e.mu.Lock()
	c.ping = s.pingOnce
	e.mu.Unlock()
	e.work.Go(func() { s.guard(s.read) })
	go func() { // Counted by admit.
		defer e.leave(c)
		s.guard(s.write)
	}()
	return nil
}

// checkHandshake refuses what is no WebSocket handshake (RFC 6455 section 4.2.1).
func checkHandshake(w http.ResponseWriter, r *http.Request) error {
	h := r.Header
	switch {
	case r.Method != http.MethodGet || !r.ProtoAtLeast(1, 1) || !httpguts.HeaderValuesContainsToken(h["Connection"], "upgrade") ||
		!httpguts.HeaderValuesContainsToken(h["Upgrade"], "websocket"):
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		return &edge.Refusal{Kind: upgradeRequired, Detail: "this path takes WebSocket handshakes; /v1/events has the same as server-sent events"}
	case h.Get("Sec-Websocket-Version") != "13":
		w.Header().Set("Sec-Websocket-Version", "13")
		return &edge.Refusal{Kind: upgradeRequired, Detail: "the WebSocket version must be 13"}
	}
	keys := h["Sec-Websocket-Key"]
	if len(keys) == 1 {
		const keyBytes = 16
		if key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(keys[0])); err == nil && len(key) == keyBytes {
			return nil
		}
	}
	return edge.Refuse("Sec-WebSocket-Key must be 16 bytes in base64")
}

// guard keeps a bug in one socket from ending the process.
func (s *socket) guard(run func()) {
	defer func() {
		if p := recover(); p != nil {
			s.edge.Logger.ErrorContext(s.edge.ctx, "live socket panicked", "principal", s.principal.ID, "panic", p, "stack", string(debug.Stack()))
			s.end(errGone)
			_ = s.wire.Conn.Close()
		}
	}()
	run()
}

// read executes what the client sends until the connection ends.
func (s *socket) read() {
	for {
		kind, data, err := s.ws.Read(context.Background())
		if err != nil {
			s.end(errGone)
			return
		}
		if s.over() {
			continue // Nobody answers any more; the close handshake is under way.
		}
		if kind != websocket.MessageText {
			err := s.edge.s.Count(s.principal)
			if err == nil {
				err = edge.Refuse("messages must be text")
			}
			s.refuse(answer{}, err)
			continue
		}
		s.execute(data)
	}
}

// over reports whether the socket is about to end.
func (s *socket) over() bool {
	select {
	case <-s.done:
		return true
	case <-s.edge.ctx.Done():
		return true
	default:
		return false
	}
}

// write sends what there is until the connection ends, and ends it.
func (s *socket) write() {
	defer s.sub.Close()
	defer s.end(errGone)
	for {
		select {
		case <-s.done:
			s.goodbye(*s.cause.Load())
			return
		case <-s.edge.ctx.Done():
			s.finishBids()
			s.goodbye(errGoingAway)
			return
		case a := <-s.answers:
			s.send(a)
		case <-s.sub.Ready():
		case <-s.wire.dirty:
		}
		if err := s.deliver(); err != nil {
			s.goodbye(err)
			return
		}
	}
}

// deliver sends everything that is there.
func (s *socket) deliver() error {
	batch := s.edge.batches.Get().(*[]hub.Message) //nolint:errcheck,forcetypeassert // The pool has nothing else.
	defer func() {
		clear((*batch)[:cap(*batch)])
		s.edge.batches.Put(batch)
	}()
	for {
		s.drainAnswers()
		// Pull may have to wait for the log.
		if err := s.wire.flush(s.edge.Times.Write); err != nil {
			return err
		}
		messages, err := s.sub.Pull(s.edge.ctx, *batch)
		if err != nil {
			return errGoingAway
		}
		if len(messages) == 0 {
			return nil
		}
		s.wire.cork()
		dropped := s.sendAll(messages)
		if err := s.wire.flush(s.edge.Times.Write); err != nil {
			return err
		}
		if dropped {
			return errTooSlow
		}
		if s.over() {
			return nil
		}
	}
}

func (s *socket) drainAnswers() {
	for {
		select {
		case a := <-s.answers:
			s.send(a)
		default:
			return
		}
	}
}

// sendAll reports whether a subscription was dropped.
func (s *socket) sendAll(messages []hub.Message) (dropped bool) {
	for i := range messages {
		switch m := &messages[i]; m.Kind {
		case hub.KindEvent:
			s.send(m.JSON)
		case hub.KindSubscribed:
			s.send(edge.Marshal(answer{Op: "subscribed", Topic: m.Topic, Seq: &m.Seq}))
		case hub.KindDropped:
			dropped = true
			s.send(edge.Marshal(answer{Op: "dropped", Topic: m.Topic, LastSeq: &m.Seq}))
		}
	}
	return dropped
}

// send puts a message into the connection's buffer. It does not wait, and its errors come back from the flush.
func (s *socket) send(message []byte) {
	_ = s.ws.Write(context.Background(), websocket.MessageText, message)
}

// goodbye ends the connection for a reason.
func (s *socket) goodbye(cause error) {
	switch {
	case errors.Is(cause, os.ErrDeadlineExceeded):
		s.sendAll(s.sub.Behind())
		s.sub.Close()
		if s.wire.flush(s.edge.Times.Linger) != nil {
			_ = s.ws.CloseNow()
			return
		}
		s.close(websocket.StatusTryAgainLater, "too slow")
	case errors.Is(cause, errTooSlow):
		s.close(websocket.StatusTryAgainLater, "too slow")
	case errors.Is(cause, errGoingAway):
		s.close(websocket.StatusGoingAway, "the server is going away")
	case errors.Is(cause, errCredential):
		s.close(websocket.StatusPolicyViolation, "the credential is no longer valid")
	default:
		_ = s.ws.CloseNow() // It has ended already.
	}
}

func (s *socket) close(code websocket.StatusCode, reason string) {
	// Who does not answer the close is not waited for any longer than needed.
	impatient := time.AfterFunc(s.edge.Times.Goodbye, func() {
		if s.edge.ctx.Err() != nil {
			_ = s.wire.Conn.Close()
		}
	})
	defer impatient.Stop()
	s.wire.uncork(s.edge.Times.Write)
	_ = s.ws.Close(code, reason) // The client may have been faster.
}

// finishBids waits for the answers of the bids under way.
func (s *socket) finishBids() {
	patience := time.NewTimer(edge.CommandTimeout)
	defer patience.Stop()
	for range maxBids {
		for taken := false; !taken; {
			select {
			case s.bids <- struct{}{}:
				taken = true
			case a := <-s.answers:
				s.send(a)
			case <-s.done:
				return
			case <-patience.C:
				return
			}
		}
	}
	s.drainAnswers()
	_ = s.wire.flush(s.edge.Times.Goodbye) // The goodbye follows either way.
}

// pingOnce makes the client show that it is there. One that does not take what it was sent is dealt with by the writer.
func (s *socket) pingOnce() {
	if s.wire.stuck.Load() || s.over() {
		return
	}
	ctx, cancel := context.WithTimeout(s.edge.ctx, s.edge.Times.Pong)
	defer cancel()
	if err := s.ws.Ping(ctx); err != nil && !s.wire.stuck.Load() {
		s.end(errGone)
	}
}

// newBatch and newBuffer fill the pools that sockets share, so that a quiet one holds neither.
func newBatch() any {
	b := make([]hub.Message, 0, messageBatch)
	return &b
}

func newBuffer() any { return new(bytes.Buffer) }

// pools are those pools.
type pools struct {
	batches sync.Pool
	buffers sync.Pool
}

// Limits of a socket's connection.
const (
	// sendBuffer is what the kernel may take of a client that reads nothing; the kernel doubles it. It is small so that a
	// stalled client is noticed, and large enough for a busy auction over a long way.
	sendBuffer = 64 << 10
	maxUnsent  = 1 << 20     // what may wait in this process
	keptBuffer = 64 << 10    // the largest buffer that is used again
	lastWords  = time.Second // how long the end of a connection waits for what was still to be sent
	// The buffers of the WebSocket's frames.
	readBuffer, frameBuffer = 1 << 10, 256
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
