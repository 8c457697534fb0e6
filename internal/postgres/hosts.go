package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// silentFor is for how long a host that said nothing is passed over before somebody asks it again.
	silentFor = 2 * time.Second
	// probePatience is how long that one waits for its first word.
	probePatience = 500 * time.Millisecond
	// silentAfter is how long a connection must have waited for a first word to say anything about the host.
	silentAfter = time.Second
	// heardWithin is how lately another host must have said something. Without one, there is nowhere else to go.
	heardWithin = 10 * time.Second
)

// hosts keeps connections from waiting for a host of several that says nothing, such as a frozen machine: PostgreSQL's clients try the
// hosts in order, and each such host costs each of them the time limit of connecting, while another may have become the primary. A
// host that said nothing is passed over for silentFor; then one connection asks it again. It is safe for concurrent use.
type hosts struct {
	logger    *slog.Logger
	silentFor time.Duration

	mu            sync.Mutex
	heard, silent map[string]time.Time // by address; heard is when it last said something, silent when it last was waited for
}

func newHosts(logger *slog.Logger) *hosts {
	return &hosts{logger: logger, silentFor: silentFor, heard: map[string]time.Time{}, silent: map[string]time.Time{}}
}

// dial connects to a host, or returns an error at once where it is passed over.
func (h *hosts) dial(ctx context.Context, dial func(context.Context, string, string) (net.Conn, error), network, address string) (net.Conn, error) {
	probing, passed := h.ask(address)
	if passed {
		return nil, fmt.Errorf("%s said nothing a moment ago", address)
	}
	begun := time.Now()
	if probing {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, probePatience)
		defer cancel()
	}
	conn, err := dial(ctx, network, address)
	if err != nil {
		h.waited(address, begun, err)
		return nil, err
	}
	c := &hostConn{Conn: conn, of: h, address: address, begun: begun}
	if probing {
		c.giveUp = time.AfterFunc(probePatience, func() { _ = conn.Close() })
	}
	return c, nil
}

// ask says whether a host is passed over, or is the one that has to be asked again.
func (h *hosts) ask(address string) (probing, passed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, was := h.silent[address]
	if !was {
		return false, false
	}
	another := false
	for other, heard := range h.heard {
		another = another || other != address && time.Since(heard) < heardWithin
	}
	switch {
	case !another:
		return false, false
	case time.Since(at) < h.silentFor:
		return false, true
	default:
		h.silent[address] = time.Now()
		return true, false
	}
}

// waited notes a host that said nothing until a connection ran out of time.
func (h *hosts) waited(address string, since time.Time, err error) {
	if !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) || time.Since(since) < silentAfter {
		return
	}
	h.mu.Lock()
	_, known := h.silent[address]
	h.silent[address] = time.Now()
	h.mu.Unlock()
	if !known {
		h.logger.Warn("a host of the database says nothing; where another one answers, it is passed over", "address", address)
	}
}

func (h *hosts) spoke(address string) {
	h.mu.Lock()
	_, was := h.silent[address]
	delete(h.silent, address)
	h.heard[address] = time.Now()
	h.mu.Unlock()
	if was {
		h.logger.Info("a host of the database answers again", "address", address)
	}
}

// hostConn notes whether a host says anything.
type hostConn struct {
	net.Conn
	of      *hosts
	address string
	begun   time.Time
	giveUp  *time.Timer // closes the connection unless the host says something; nil: it has time
	spoke   bool        // only the one who reads looks at it
}

// Read implements [net.Conn].
func (c *hostConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.spoke {
		return n, err
	}
	if n > 0 {
		if c.giveUp != nil {
			c.giveUp.Stop()
		}
		c.spoke = true
		c.of.spoke(c.address)
	} else if err != nil {
		c.of.waited(c.address, c.begun, err)
	}
	return n, err
}

// Close implements [net.Conn].
func (c *hostConn) Close() error {
	if c.giveUp != nil {
		c.giveUp.Stop()
	}
	return c.Conn.Close()
}
