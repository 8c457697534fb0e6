package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/leanhttp"
	"github.com/fairlead-dev/fairlead/internal/recent"
	"github.com/fairlead-dev/fairlead/internal/server/edge"
	"github.com/fairlead-dev/fairlead/internal/server/live"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/standby"
	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// Limits of a connection. Bodies are small, so whoever needs longer is not a client but a slow-loris.
const (
	readHeaderTimeout = 10 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = 120 * time.Second // heavy.go gives large documents more
	idleTimeout       = 120 * time.Second
	maxHeaderBytes    = 64 << 10
	dismissPause      = 250 * time.Millisecond // nothing tells when the last answer was written to its socket
)

// Keys is what the server needs for the administration of API keys.
type Keys interface {
	// Execute makes or revokes a key, once per idempotency key.
	Execute(ctx context.Context, c command.Command[auth.KeyOp]) (command.Answer, error)
	// Keys lists all keys, oldest first.
	Keys(ctx context.Context) ([]auth.Key, error)
}

// Options are what a server is made of. All but Limiter, Logger and Registry are required.
type Options struct {
	Ledger  *ledger.Service
	Lottery *lottery.Service
	Auction *auction.Service
	Publish *publish.Service
	// Multidraw makes many draws at once. Its Reconcile runs beside the server.
	Multidraw *multidraw.Service
	// Cross moves money between ledgers. Its Reconcile runs beside the server.
	Cross *cross.Service
	Locks Locks
	Keys  Keys
	// Operator reads what operators look at, and what public pages show.
	Operator Operator
	// Sessions keeps who is signed in to the console; nil: there is no console.
	Sessions Sessions
	// Log is the public log.
	Log PublicLog
	// PublicPages says whether anybody may look at the pages of campaigns and auctions under way.
	PublicPages bool
	Auth        *auth.Authenticator
	Limiter     *auth.Limiter // nil: no rate limit
	Live        LiveOptions   // without a hub, the live stream is not served
	// CheckHosts has a loopback listener answer to this machine's own names and AllowedHosts alone, and any other listener,
	// where AllowedHosts names some, too.
	CheckHosts   bool
	AllowedHosts []string
	// MaxConnections bounds the open connections; 0: as many as leave room in the process's descriptors.
	MaxConnections int
	// Ready returns nil when commands can be served.
	Ready func(context.Context) error
	// Acknowledge is called before a client is told of a success, with what its record is stored under; it may be nil.
	Acknowledge func(key idempotency.ID, execution uuid.UUID)
	// Position returns a place in the database's log that is after all that was committed before the call; false: nobody needs one, or it
	// can't be told. It may be nil.
	Position func(context.Context) (standby.Position, bool)
	Registry *prometheus.Registry
	// Recent keeps what was measured over the last hour; nil: nothing is.
	Recent  *recent.Hour
	Logger  *slog.Logger
	Version string
	// Trace is called for each request; it may be nil.
	Trace Trace
	// Scratch is the directory for files that keep large answers while the server runs; empty: the system's for temporary
	// files. They take up to 512 MB, and have no names.
	Scratch string
}

// Server is the HTTP edge. Its handler is safe for concurrent use.
type Server struct {
	Options

	live        *live.Edge
	metrics     *httpMetrics
	aliasSecret atomic.Pointer[[]byte]
	signIns     *auth.Limiter // by address
	archive     *archive
	pages       *shelf[[]byte] // what public pages show
	scans       *bound
	checks      *bound
	tiles       *bound // of the public log
	// sameOrigin refuses what other sites' pages do with a visitor's session.
	sameOrigin http.CrossOriginProtection

	openAPI  func() ([]byte, error) // builds the document when it is first asked for
	handler  http.Handler
	hot      func(path string) bool
	batched  []route // that POST /v1/commands takes requests of
	batches  batchesOf
	unready  wait.News       // what /readyz says
	leaving  atomic.Bool     // /readyz says so, and all else goes on
	draining context.Context //nolint:containedctx // Ends when the server begins to shut down.
	drain    context.CancelFunc
}

// New builds a server.
func New(o Options) (*Server, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Recent == nil {
		o.Recent = recent.New(time.Now())
	}
	s := &Server{Options: o, metrics: newHTTPMetrics(o.Registry), pages: newShelf[[]byte](publicEntries, publicBytes, nil)}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.archive = newArchive(o.Scratch, s.metrics)
	s.scans, s.checks = newBound("scan", scansAtOnce, scansQueued, 0, s.metrics), newBound("check", checksAtOnce, checksQueued, 0, s.metrics)
	s.tiles = newBound("log", tilesAtOnce, tilesQueued, 0, s.metrics)
	s.Live.Logger = o.Logger
	s.live = live.New(liveServer{s}, s.Live)
	routes := s.routes()
	var err error
	if s.signIns, err = auth.NewLimiter(auth.LimiterOptions{Policy: "sign-in", Quota: signInQuota, Window: signInWindow}); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s.openAPI = sync.OnceValues(func() ([]byte, error) { return openAPI(routes, o.Version) })
	s.handler, s.hot = s.outermost(s.mux(routes)), hotPaths(routes)
	return s, nil
}

// dismiss answers the commands that are still waiting with what is known of their outcome, and gives the answers a moment to be
// written. cut ends the reads.
func (s *Server) dismiss(ctx context.Context, cut func()) error {
	ended, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cancel()
	err := errors.Join(s.Ledger.Close(ended), s.Lottery.Close(ended), s.Auction.Close(ended), s.Publish.Close(ended))
	cut()
	time.Sleep(dismissPause)
	return err
}

// Forget drops the answers that are kept for those who ask again, because they may show what the database has lost.
func (s *Server) Forget() {
	s.archive.forget()
	s.pages.clear()
}

// Handler returns the whole edge as one handler.
func (s *Server) Handler() http.Handler { return s.handler }

// Close ends what the handler has under way beside requests, for a server that is not [Server.Serve]'s: live streams, and
// documents that are being built. Requests that may change something are refused from then on.
func (s *Server) Close(ctx context.Context) error {
	s.drain()
	err := s.live.Close(ctx)
	s.archive.close()
	return err
}

// Leave makes /readyz say that the server drains. It goes on serving.
func (s *Server) Leave() { s.leaving.Store(true) }

// Serve answers requests on l until ctx ends; then it turns unready, takes no new connections, and waits up to grace
// for the requests under way. It answers those that are still under way then with what is known of
// their outcome, and logs that; it returns nil all the same. Its errors are those of the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener, grace time.Duration) error {
	// After the grace period, reads that are still under way are cancelled.
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	if s.CheckHosts {
		if h := hostsOf(l.Addr(), s.AllowedHosts); h != nil {
			base = context.WithValue(base, hostsKey{}, h)
		}
	}
	base = withDeadlines(base, edge.CommandTimeout)
	srv := &leanhttp.Server{Hot: s.hot, MaxConns: cmp.Or(s.MaxConnections, maxConnections()), Full: fullAnswer(), Unreadable: unreadableAnswer, Refused: s.refusedConnections, HTTP: &http.Server{
		BaseContext: func(net.Listener) context.Context { return base },
		Handler:     s.handler, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(s.Logger.Handler(), slog.LevelDebug),
	}}
	defer s.archive.close()
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }() //nolint:contextcheck // The requests' contexts are made from base.
	select {
	case err := <-failed:
		return fmt.Errorf("server: %w", err)
	case <-ctx.Done():
	}
	s.drain()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	// A socket is no request that comes to an end by itself; its client resumes elsewhere.
	farewell := make(chan error, 1)
	go func() { farewell <- s.live.Close(drain) }()
	var late error
	if err := srv.Shutdown(drain); err != nil {
		late = errors.Join(err, s.dismiss(ctx, cut), srv.Close())
	}
	if late = errors.Join(late, <-farewell); late != nil { // Whoever waited has been told what is known. That is how a drain may end.
		s.Logger.WarnContext(ctx, "requests were still under way at the end of the drain", "drain_timeout", grace, "error", late)
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("server: %w", err)
	}
	return nil
}

// Trace begins a request's trace: what serves the request runs under the context that it returns, and end is called with
// what came of it. It must not block.
//
// The route is the pattern that matched, empty where none did. The status is 0 where the request was broken off without an
// answer. The code is of the problem that was answered, empty where there was none. A replay is an answer under an
// idempotency key that had its answer already.
type Trace func(r *http.Request) (ctx context.Context, end func(route string, status int, code, requestID string, replayed bool))

// unmatched is the route of requests that match none.
const unmatched = "unmatched"
