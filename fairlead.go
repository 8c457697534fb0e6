// Package fairlead is the Fairlead server as a value. A Go program that opens one calls it exactly as it would call a server
// on another machine, by the Go client, and may serve it to others too:
//
//	server, err := fairlead.Open(ctx, fairlead.Options{DatabaseURL: url})
//	...
//	defer server.Close(ctx)
//	account, err := server.Client().CreateAccount(ctx, client.CreateAccountRequest{ID: "ann", Currency: "EUR"})
//
// `fairlead serve` is [Open] and [Server.Run] with flags. Several servers, embedded or not, may share a database.
package fairlead

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/recent"
	"github.com/fairlead-dev/fairlead/internal/server"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/services/publish/deliver"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
	"github.com/fairlead-dev/fairlead/internal/tracing"
	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/lockprom"
	"github.com/fairlead-dev/fairlead/multidraw"
	"github.com/fairlead-dev/fairlead/saga"
)

const (
	// closeTimeout bounds the end of a private PostgreSQL, and all other steps of a shutdown together but the drain, which has an
	// option: also what runs in the background, whose last statements wait where the database does not answer.
	closeTimeout = 15 * time.Second
	// closeBriefly is what a step has where those before it have taken all of that time, as publications under way may: for them the
	// drain's time goes on.
	closeBriefly = 3 * time.Second
)

// startPatience is how long a start waits for a database that takes connections and does not answer. A start holds up nobody.
const startPatience = 30 * time.Second

// Server is a running server with everything beneath it. Make it with [Open], and end it with [Server.Close] or
// [Server.Run]. It is safe for concurrent use.
type Server struct {
	o           Options
	logger      *slog.Logger
	local       *localpg.Instance // nil with a database of the user's
	url         string            // of the database
	db          *postgres.DB
	auth        *auth.Authenticator
	ledger      *ledger.Service
	lottery     *lottery.Service
	auction     *auction.Service
	multidraw   *multidraw.Service
	publish     *publish.Service
	cross       *cross.Service
	sagaMetrics *telemetry.Sagas
	losses      func(ledger string) func(open int64, found bool) // metrics
	watched     []*postgres.DB                                   // for lost commits: the server's own and those of ledgers
	publisher   *publish.Worker
	deliverer   *deliver.Deliverer
	locks       *postgres.Locks
	lockMetrics *lockprom.Metrics
	storedKeys  func(n int64) // for metrics
	barrier     barrier       // of the background work
	snapshots   func(seconds float64, transactions int64)
	overdue     func(time.Duration)
	registry    *prometheus.Registry
	recent      *recent.Hour     // what was measured lately
	traces      *tracing.Tracing // nil when they are off
	election    *lock.Election   // of the leader that closes rounds
	delivering  *lock.Election   // of the one that delivers the events of subscriptions
	events      *postgres.Events
	hub         *live.Hub
	edge        *server.Server
	client      *client.Client
	calls       *http.Client // of client
	listener    net.Listener

	// working ends when the server begins to stop: sweepers, the leader and the worker end with it. answering ends after the
	// last answer: until then other processes hear of what commands did, and running operations are looked after.
	working, answering context.Context //nolint:containedctx // They are the server's lifetimes.
	stop               context.CancelCauseFunc
	endAnswering       context.CancelFunc
	background         sync.WaitGroup
	serving            sync.WaitGroup // Run, until it has drained
	closers            []func(context.Context) error
	keeper             *logkeeper.Keeper
	keeping            *lock.Election
	books              *bookkeeper
	closing            sync.Once
	closed             error // what closing returned
}

// Open starts a server: it opens the database, brings the schema up to date, and starts what runs in the background, such as
// sweepers and the worker of publications. ctx bounds the start alone. It returns an [*OptionError] when an option can't be
// used, before anything is started or written, and an error when the database would not keep Fairlead's promises.
func Open(ctx context.Context, o Options) (*Server, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Server{o: o, logger: o.Logger}
	s.working, s.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	s.answering, s.endAnswering = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) (err error) {
	// First, so that it is closed last and has seen the rest end.
	if s.traces, err = tracing.Start(ctx, tracing.Options{Endpoint: s.o.OTLPEndpoint, Version: Version(), Logger: s.logger}); err != nil {
		return err
	}
	s.onClose(s.traces.Close)
	if err := s.openDatabase(ctx); err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reads := s.o.DatabaseConnections / readShare
	s.db, err = postgres.Open(ctx, postgres.Options{
		URL: s.url, MaxConns: s.o.DatabaseConnections - reads, ReadConns: reads, AccountsInMemory: s.o.AccountsInMemory, Logger: s.logger, Observer: telemetry.NewTransactions(registry),
		UnavailableAfter: s.o.UnavailableAfter, Patience: startPatience, Watch: s.watchOf(registry, cross.Local), Sessions: s.o.DatabaseSessions(),
		ReplicaURL: s.o.ReplicaURL, ReplicaLag: s.o.ReplicaLag, ElectionSchema: s.o.ElectionSchema,
	})
	if err != nil {
		return err
	}
	telemetry.ObservePools(registry, s.db.Pools)
	telemetry.ObserveShared(registry, s.db.SharedTargets)
	telemetry.ObserveAccounts(registry, s.db.RememberedAccounts)
	telemetry.ObserveReads(registry, s.db.BlockedReads)
	telemetry.ObserveEngine(registry, s.db.Missing())
	if s.o.ReplicaURL != "" {
		telemetry.ObserveReplica(registry, s.db.Replica)
	}
	s.barrier = barrier{s.logger, telemetry.NewPanics(registry)}
	s.storedKeys = telemetry.NewKeys(registry)
	s.snapshots = telemetry.NewSnapshots(registry)
	s.onClose(s.db.Shutdown)
	if err := s.prepare(ctx, s.db); err != nil {
		return err
	}
	if err := s.startLive(ctx, registry); err != nil {
		return err
	}
	if err := s.startCross(ctx, registry); err != nil {
		return err
	}
	// It needs both.
	if err := s.startServices(registry); err != nil { //nolint:contextcheck // What is started outlives the start; Close ends it.
		return err
	}
	if err := s.ensureAdminKey(ctx, postgres.NewAPIKeys(s.db)); err != nil {
		return err
	}
	s.db.OnLostHistory(func() {
		s.hub.Reset()
		s.edge.Forget()
	})
	s.work()
	return nil
}

// watchOf says how the database of a ledger is watched for lost commits.
func (s *Server) watchOf(registry *prometheus.Registry, ledger string) *postgres.Watch {
	if s.losses == nil {
		s.losses = telemetry.NewHistory(registry)
	}
	return &postgres.Watch{Version: Version(), KeysKept: s.o.IdempotencyRetention, Losses: s.losses(ledger)}
}

// historyLost is why two-phase transactions are left as they are.
func (s *Server) historyLost() error {
	for _, db := range s.watched {
		if db.HistoryLost() {
			return saga.ErrHistoryLost
		}
	}
	return nil
}

func (s *Server) onClose(f func(context.Context) error) { s.closers = append(s.closers, f) }

// openDatabase finds the database: the user's, or a private one that it starts.
func (s *Server) openDatabase(ctx context.Context) error {
	if s.o.DatabaseURL != "" {
		s.url = s.o.DatabaseURL
		return nil
	}
	local, err := localpg.Start(ctx, localpg.Options{Dir: s.o.Data, Logger: s.logger})
	if _, ok := errors.AsType[*os.PathError](err); ok {
		return wrong("Data", "%w", err)
	}
	if err != nil {
		return err
	}
	s.local, s.url = local, local.URL()
	return nil
}

// prepare refuses a database that would not keep its word, and brings its schema up to date.
func (s *Server) prepare(ctx context.Context, db *postgres.DB, about ...any) error {
	findings, err := db.Check(ctx)
	if err != nil {
		return err
	}
	logger := s.logger.With(about...)
	for _, f := range findings {
		if f.Fatal {
			return fmt.Errorf("refusing to start: %s: %s", f.Message, f.Remedy)
		}
		logger.WarnContext(ctx, "database", "check", f.Check, "finding", f.Message, "remedy", f.Remedy)
	}
	applied, err := db.Migrate(ctx, func(slow string) { logger.WarnContext(ctx, "migration", "takes", slow) })
	for _, m := range applied {
		logger.InfoContext(ctx, "migration applied", "version", m.Version, "name", m.Name)
	}
	if err != nil {
		return err
	}
	denied, err := db.Privileges(ctx) // They may be granted later. Until then /readyz says so.
	for _, f := range denied {
		logger.WarnContext(ctx, "database", "check", f.Check, "finding", f.Message, "remedy", f.Remedy)
	}
	if err != nil {
		return err
	}
	losses, err := db.Losses(ctx)
	for i := range losses {
		logger.ErrorContext(ctx, "history lost, and not accepted by an operator (see: fairlead doctor)", "loss", losses[i].String())
	}
	s.watched = append(s.watched, db)
	return err
}

// Handler returns the whole server as one handler, for a listener of the program's own. It answers to every host name.
func (s *Server) Handler() http.Handler { return s.edge.Handler() }

// Client returns a client of this server that needs no socket and has an administrator's rights. Its calls are those of any
// other client, with their keys, limits and errors; what it changes is in the audit log as done by the embedding program.
func (s *Server) Client() *client.Client { return s.client }

// DatabaseURL returns the database's address: [Options].DatabaseURL, or that of the private PostgreSQL.
func (s *Server) DatabaseURL() string { return s.url }

// Listen takes the address that [Server.Run] serves, and returns it. Run does so by itself; calling it before is for programs
// that have to know the port.
func (s *Server) Listen(ctx context.Context) (net.Addr, error) {
	if s.listener == nil {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.o.Listen)
		if err != nil {
			return nil, wrong("Listen", "%w", err)
		}
		s.listener = l
		if os.Geteuid() == 0 {
			s.logger.WarnContext(ctx, "serving as root: whatever breaks into the server has the whole machine; give it a user of its own")
		}
		addr := l.Addr().String()
		s.logger.InfoContext(ctx, "listening", "addr", addr, "docs", "http://"+addr+"/docs", "version", Version())
	}
	return s.listener.Addr(), nil
}

// Run listens and serves until ctx ends or the database is lost for good; then it drains the requests under way and closes the
// server. It returns nil after a clean end. It is called once, and not at the same time as [Server.Listen].
func (s *Server) Run(ctx context.Context) error {
	s.serving.Add(1)
	err := s.serve(ctx)
	s.serving.Done()
	return errors.Join(err, s.Close(ctx))
}

func (s *Server) serve(ctx context.Context) error {
	if _, err := s.Listen(ctx); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, s.leave)()
	err := s.edge.Serve(s.working, s.listener, s.o.DrainTimeout) //nolint:contextcheck // It ends by stop, which ctx calls.
	//nolint:contextcheck // As above.
	if cause := context.Cause(s.working); cause != nil && !errors.Is(cause, context.Canceled) {
		err = errors.Join(err, cause)
	}
	s.logger.InfoContext(ctx, "drained")
	return err
}

// leave says that the server drains, and stops it after a delay, or as soon as [Server.Close] does.
func (s *Server) leave() {
	s.edge.Leave()
	wait.For(s.working, s.o.DrainDelay)
	s.stop(nil)
}

// Close stops everything and returns what went wrong. It waits for [Server.Run] to drain. It does so under a cancelled
// context too, and has a time limit: where the database doesn't answer, it is no longer waited for, which is logged.
func (s *Server) Close(ctx context.Context) error {
	s.stop(nil)
	s.serving.Wait()
	s.closing.Do(func() {
		s.endAnswering()
		var failures []error
		if s.listener != nil { // Run has closed it, if it was called.
			_ = s.listener.Close()
		}
		within := func(limit time.Duration, stop func(context.Context) error) {
			step, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
			defer cancel()
			switch err := stop(step); {
			case errors.Is(err, context.DeadlineExceeded): // As where the database does not answer. What was promised to clients is done.
				s.logger.WarnContext(ctx, "shutting down without waiting any longer", "error", err)
			default:
				failures = append(failures, err)
			}
		}
		deadline := time.Now().Add(closeTimeout)
		within(s.o.DrainTimeout+closeTimeout, s.endBackground)
		for _, stop := range slices.Backward(s.closers) {
			within(max(time.Until(deadline), closeBriefly), stop)
		}
		if s.local != nil {
			within(closeTimeout, s.local.Stop)
		}
		s.closed = errors.Join(failures...)
	})
	return s.closed
}

// endBackground waits until what runs in the background has ended. It has been told to.
func (s *Server) endBackground(ctx context.Context) error {
	ended := make(chan struct{})
	go func() { defer close(ended); s.background.Wait() }()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("fairlead: background work was still under way: %w", ctx.Err())
	}
}

// ConsoleLink returns a link that signs in to the web console once, within half an hour. It returns the console's address
// alone where none can be made, and where first is set and somebody has signed in before.
func (s *Server) ConsoleLink(ctx context.Context, first bool) (link string, signsIn bool) {
	page := "/console/"
	if s.listener != nil {
		page = "http://" + localAddress(s.listener.Addr().String()) + page
	}
	secret, hash := operator.NewSecret()
	made, err := postgres.NewOperator(s.db).MakeLink(ctx, hash, operator.LinkLife, first)
	if err != nil {
		s.logger.WarnContext(ctx, "no link to the console was made", "error", err)
	}
	if made {
		page += operator.LinkFragment + secret
	}
	return page, made
}

// localAddress is where a server that listens on addr is reached from the same machine.
func localAddress(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// module is this module's path.
const module = "github.com/fairlead-dev/fairlead"

// Version returns the version of Fairlead that the program was built with, "devel" and the commit for a checkout.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == module }); i >= 0 {
		return info.Deps[i].Version
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "devel"
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" && len(setting.Value) >= 12 {
				v += "-" + setting.Value[:12]
			}
		}
	}
	return v
}
