package fairlead

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/client"
)

const (
	// callTimeout bounds one attempt of a call, as it does in a client with a socket.
	callTimeout = 2 * time.Minute
	// idlePipes is how many pipes are kept for the next calls.
	idlePipes = 256
)

// pipes is a listener whose connections are pipes within the process: calls are requests in full, with streams, deadlines and
// WebSockets, and no socket.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

func newPipes() *pipes {
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

// Accept implements [net.Listener].
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (p *pipes) Close() error { p.close(); return nil }

// Addr implements [net.Listener].
func (*pipes) Addr() net.Addr { return &net.UnixAddr{Name: "embedded", Net: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// startClient makes the client of this process, whose credential is secret.
func (s *Server) startClient(secret string) (err error) {
	p := newPipes()
	s.calls = &http.Client{Transport: &http.Transport{DialContext: p.dial, MaxIdleConnsPerHost: idlePipes}, Timeout: callTimeout}
	edge := &http.Server{Handler: s.edge.Handler(), ReadHeaderTimeout: closeTimeout, ErrorLog: slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug)}
	s.client, err = client.New("http://embedded", secret, client.WithHTTPClient(s.calls))
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = edge.Serve(p) // It ends with ErrServerClosed: pipes do not fail otherwise.
	}()
	s.onClose(func(ctx context.Context) error {
		s.calls.CloseIdleConnections()
		err := errors.Join(s.edge.Close(ctx), edge.Shutdown(ctx), edge.Close())
		<-ended
		return err
	})
	return nil
}
