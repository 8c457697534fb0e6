package conform

import (
	"context"
	"errors"
	"net"
	"sync"
)

// line is how one process reaches a server. It can be cut, as by a network that is away.
type line struct {
	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

var errCut = errors.New("the connection is cut")

func (l *line) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return l.keep(new(net.Dialer).DialContext(ctx, network, address))
}

// keep has a connection that was just made end with the line.
func (l *line) keep(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		_ = c.Close()
		return nil, errCut
	}
	l.conns = append(l.conns, c)
	return c, nil
}

// cut ends all connections, and refuses new ones until mend is called.
func (l *line) cut() (mend func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.down = false
	}
}
