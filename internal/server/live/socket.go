package live

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

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
	case r.Method != http.MethodGet || !r.ProtoAtLeast(1, 1) || !hasToken(h, "Connection", "upgrade") || !hasToken(h, "Upgrade", "websocket"):
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

// hasToken looks for a token in a header that is a list.
func hasToken(h http.Header, name, token string) bool {
	for _, line := range h.Values(name) {
		for part := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.Trim(part, " \t"), token) {
				return true
			}
		}
	}
	return false
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
