package fairlead

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/leanhttp"
)

const (
	// callTimeout bounds one attempt of a call, as it does in a client with a socket.
	callTimeout = 2 * time.Minute
	// idlePipes is how many pipes are kept for the next calls.
	idlePipes = 256
)

// startClient makes the client of this process, whose credential is secret. Its connections are pipes: calls are requests in
// full, with streams, deadlines and WebSockets, and no socket.
func (s *Server) startClient(secret string) (err error) {
	pipes := leanhttp.NewHandover(&net.UnixAddr{Name: "embedded", Net: "pipe"})
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		near, far := net.Pipe()
		if !pipes.Pass(ctx, far) {
			return nil, cmp.Or(ctx.Err(), net.ErrClosed)
		}
		return near, nil
	}
	s.calls = &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: idlePipes}, Timeout: callTimeout}
	edge := &http.Server{Handler: s.edge.Handler(), ReadHeaderTimeout: closeTimeout, ErrorLog: slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug)}
	s.client, err = client.New("http://embedded", secret, client.WithHTTPClient(s.calls))
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = edge.Serve(pipes) // It ends with ErrServerClosed: pipes do not fail otherwise.
	}()
	s.onClose(func(ctx context.Context) error {
		s.calls.CloseIdleConnections()
		err := errors.Join(s.edge.Close(ctx), edge.Shutdown(ctx), edge.Close())
		<-ended
		return err
	})
	return nil
}
