package leanhttp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// freshPatience is how long a shutdown waits for the first request of a connection, as net/http does.
	freshPatience = 5 * time.Second
	// The pauses between looks at what is still being served, while shutting down.
	firstLook, lastLook = time.Millisecond, 250 * time.Millisecond
	// The pauses after a connection could not be accepted for want of descriptors or the like.
	firstPause, lastPause = 5 * time.Millisecond, time.Second
)

// Server serves plain requests of hot paths itself, and all others with HTTP. It is used once. Its methods are safe for
// concurrent use.
type Server struct {
	// HTTP has the handler of all requests, and the limits and the log of all connections: of the limits, a lean
	// connection keeps ReadHeaderTimeout before its first request, and IdleTimeout, give or take a quarter, from each
	// request on to the end of its answer and to the next.
	HTTP *http.Server
	// Hot reports whether the requests of a path are served lean. Their handler must not need a context that ends when
	// the client goes away, nor what a [http.ResponseController] does, and their answers must be small: they are sent whole.
	Hot func(path string) bool
	// MaxConns bounds the open connections, those of net/http and hijacked ones among them; 0: any number.
	MaxConns int
	// Full is what a connection that finds no room is answered, the whole of it with its head.
	Full []byte
	// Unreadable makes the answer to a request that net/http can't read, the whole of it with its head; the connection ends
	// behind it. The status and the reason are those of net/http, which gives no reason for some. nil: net/http's plain text.
	Unreadable func(status int, reason string) []byte
	// Refused is called at most once a second, with the number of connections refused since the last call and the reason for the
	// last refusal; it may be nil.
	Refused func(connections int, why error)

	open     atomic.Int64
	refusals int       // not reported yet; only the accepting goroutine uses it and the next field
	reported time.Time // last
	closing  atomic.Bool
	listener net.Listener
	rest     *Handover

	mu    sync.Mutex
	conns map[*conn]struct{}
}

// Serve accepts connections on l until Shutdown or Close, and returns [http.ErrServerClosed] then.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closing.Load() {
		s.mu.Unlock()
		_ = l.Close()
		return http.ErrServerClosed
	}
	s.listener, s.rest, s.conns = l, NewHandover(l.Addr()), map[*conn]struct{}{}
	s.mu.Unlock()
	served := make(chan error, 1)
	watch(s.HTTP)
	go func() { served <- s.HTTP.Serve(s.rest) }()
	base := context.Background()
	if s.HTTP.BaseContext != nil {
		base = s.HTTP.BaseContext(l)
	}
	base = context.WithValue(base, http.ServerContextKey, s.HTTP)
	err := s.accept(base, l)
	if !s.closing.Load() {
		err = errors.Join(err, s.Close())
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
		return err
	}
	return <-served
}

func (s *Server) accept(base context.Context, l net.Listener) error {
	pause := firstPause
	for {
		c, err := l.Accept()
		//nolint:staticcheck // There is no better sign that the next time may go well; net/http looks at it, too.
		if temporary, ok := errors.AsType[net.Error](err); ok && temporary.Temporary() {
			s.refused(err)
			time.Sleep(pause) // Nothing tells when there is room again.
			pause = min(2*pause, lastPause)
			continue
		}
		if err != nil {
			return fmt.Errorf("leanhttp: accept: %w", err)
		}
		pause = firstPause
		tcp, ok := c.(*net.TCPConn)
		if !ok { // With TLS, say, or over a unix socket.
			if !s.rest.Pass(base, c) {
				_ = c.Close()
			}
			continue
		}
		if open := s.open.Add(1); s.MaxConns > 0 && open > int64(s.MaxConns) {
			_ = tcp.SetWriteDeadline(time.Now().Add(firstPause)) // Nothing waits in its buffer yet.
			_, _ = tcp.Write(s.Full)
			_ = tcp.Close()
			s.open.Add(-1)
			s.refused(ErrFull)
			continue
		}
		lean := newConn(base, s, &counted{TCPConn: tcp, server: s})
		if !s.remember(lean) {
			_ = lean.Close()
			continue
		}
		go lean.serve() //nolint:contextcheck // The connection has its own, in the requests that it makes.
	}
}

// ErrFull is the reason that [Server.Refused] is given when MaxConns connections are open.
var ErrFull = errors.New("leanhttp: as many connections are open as may be")

// refused notes a connection that could not be taken.
func (s *Server) refused(why error) {
	s.refusals++
	now := time.Now()
	if now.Sub(s.reported) < time.Second {
		return
	}
	if s.Refused != nil {
		s.Refused(s.refusals, why)
	}
	s.refusals, s.reported = 0, now
}

// counted is a connection that makes room when it is closed.
type counted struct {
	*net.TCPConn

	server *Server
	once   sync.Once
}

// Close implements [io.Closer].
func (c *counted) Close() error {
	c.once.Do(func() { c.server.open.Add(-1) })
	return c.TCPConn.Close() //nolint:wrapcheck // The connection's own error is the contract of net.Conn.
}

func (s *Server) remember(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// Shutdown takes no new connections, closes those that are idle, and returns when all requests under way are answered, or
// with the error of ctx when that ends first. The requests under way go on then; Close ends their connections.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.close()
	s.HTTP.SetKeepAlivesEnabled(false)
	for pause := firstLook; s.sweep() > 0; pause = min(2*pause, lastLook) {
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(pause):
		}
	}
	// The lean connections may have handed over their last request until now.
	if end := s.HTTP.Shutdown(ctx); end != nil {
		err = errors.Join(err, fmt.Errorf("leanhttp: %w", end))
	}
	return err
}

// Close ends all connections at once.
func (s *Server) Close() error {
	err := s.close()
	if end := s.HTTP.Close(); end != nil {
		err = errors.Join(err, fmt.Errorf("leanhttp: %w", end))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.end()
	}
	return err
}

// close closes the listener, once.
func (s *Server) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Swap(true) || s.listener == nil {
		return nil
	}
	if err := s.listener.Close(); err != nil {
		return fmt.Errorf("leanhttp: close the listener: %w", err)
	}
	return nil
}

// sweep closes the connections that wait, and returns how many do not.
func (s *Server) sweep() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.state.CompareAndSwap(idle, ended) || time.Since(c.since) > freshPatience && c.state.CompareAndSwap(fresh, ended) {
			_ = c.Close()
			delete(s.conns, c)
		}
	}
	return len(s.conns)
}

func (s *Server) idleTimeout() time.Duration {
	if s.HTTP.IdleTimeout > 0 {
		return s.HTTP.IdleTimeout
	}
	return s.HTTP.ReadTimeout
}
