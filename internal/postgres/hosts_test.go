package postgres

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestSilentHost has a host that takes connections and says nothing, before one that answers. The first connection waits for it, others
// pass it over, one asks it again now and then, and when it answers it is used again.
func TestSilentHost(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(pgtest.Server(t).URL())
	testwait.Must(t, err)
	front := listenSilently(t, config.Host, config.Port)
	config.Fallbacks = []*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port}}
	config.Host, config.Port = "127.0.0.1", netip.MustParseAddrPort(front.Addr().String()).Port()
	config.ConnectTimeout = 2 * silentAfter

	log := &testwait.Buffer{}
	h := newHosts(slog.New(slog.NewTextHandler(log, nil)))
	h.silentFor = time.Hour
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		return h.dial(ctx, dial, network, address)
	}
	connect := func(asks bool, why string) {
		t.Helper()
		before := front.asked.Load()
		// A slow machine may need more than one try to be in time.
		testwait.Eventually(t, patience, "a connection", func() bool {
			conn, err := pgx.ConnectConfig(t.Context(), config)
			if err == nil {
				_ = conn.Close(t.Context())
			}
			return err == nil
		})
		if asked := front.asked.Load() > before; asked != asks {
			t.Errorf("%s: the silent host was asked: %t, want %t", why, asked, asks)
		}
	}
	connect(true, "at first")
	connect(false, "after that")
	connect(false, "after that")
	h.silentFor = 0
	connect(true, "when it is time to ask again")
	front.open.Store(true)
	connect(true, "when it answers")
	h.silentFor = time.Hour
	connect(true, "after it has answered")
	if said := log.String(); strings.Count(said, "says nothing") != 1 || strings.Count(said, "answers again") != 1 {
		t.Errorf("the log says %s", said)
	}
}

// TestTheOnlyHostIsAsked never passes over a host where no other one has said anything lately.
func TestTheOnlyHostIsAsked(t *testing.T) {
	t.Parallel()
	h := newHosts(slog.New(slog.DiscardHandler))
	h.waited("a", time.Now().Add(-silentAfter), context.DeadlineExceeded)
	if _, passed := h.ask("a"); passed {
		t.Error("the only host is passed over")
	}
	h.heard["b"] = time.Now().Add(-2 * heardWithin)
	if _, passed := h.ask("a"); passed {
		t.Error("passed over for a host that was heard long ago")
	}
	h.spoke("b")
	if _, passed := h.ask("a"); !passed {
		t.Error("not passed over for a host that answers")
	}
	h.waited("b", time.Now(), context.DeadlineExceeded) // Its caller had little time.
	if _, passed := h.ask("b"); passed {
		t.Error("a host is passed over that had no time to answer")
	}
}

// silence is a host that takes connections and says nothing, or passes everything on once it is open.
type silence struct {
	net.Listener
	asked atomic.Int32
	open  atomic.Bool
}

func listenSilently(t *testing.T, host string, port uint16) *silence {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testwait.Must(t, err)
	s := &silence{Listener: l}
	t.Cleanup(func() { _ = l.Close() })
	network, address := pgconn.NetworkAddress(host, port)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.asked.Add(1)
			if !s.open.Load() {
				go func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() }()
				continue
			}
			to, err := new(net.Dialer).DialContext(t.Context(), network, address)
			if err != nil {
				_ = conn.Close()
				continue
			}
			go func() { _, _ = io.Copy(to, conn); _ = to.Close() }()
			go func() { _, _ = io.Copy(conn, to); _ = conn.Close() }()
		}
	}()
	return s
}
