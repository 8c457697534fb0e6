package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/server"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
	"github.com/fairlead-dev/fairlead/internal/tracing"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// How often the sweepers look. Each looks once at the start, too.
const (
	holdSweep    = time.Second
	lotterySweep = 15 * time.Second
	keySweep     = 10 * time.Minute
)

// shutdownTimeout bounds each step of a shutdown but the drain, which has a flag.
const shutdownTimeout = 15 * time.Second

// userRateWindow is the time in which a user's spent quota grows back.
const userRateWindow = 10 * time.Second

// node is a running server with everything beneath it.
type node struct {
	o           *serveOptions
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
	publisher   *publish.Worker
	locks       *postgres.Locks
	lockMetrics *telemetry.Locks
	traces      *tracing.Tracing // nil when they are off
	election    *lock.Election
	events      *postgres.Events
	hub         *live.Hub
	server      *server.Server
	listener    net.Listener
	closers     []func(context.Context) error // in the order of starting
}

// garbagePercent lets the heap grow to five times what is live before it is collected. What is live is small, a few
// megabytes, and collecting it less often leaves about a tenth more of the processor to commands.
const garbagePercent = 400

// startNode brings everything up and listens; the caller then calls run. announce is given an admin key that was made.
func startNode(ctx context.Context, o *serveOptions, logger *slog.Logger, announce func(key string)) (_ *node, err error) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	n := &node{o: o, logger: logger}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close(ctx))
		}
	}()
	// First, so that it is closed last and has seen the rest end.
	if n.traces, err = tracing.Start(ctx, tracing.Options{Endpoint: o.otlpEndpoint, Version: version(), Logger: logger}); err != nil {
		return nil, err
	}
	n.onClose(n.traces.Close)
	if err := n.openDatabase(ctx); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reads := o.maxConns / readShare
	n.db, err = postgres.Open(ctx, postgres.Options{
		URL: n.url, MaxConns: o.maxConns - reads, ReadConns: reads, Logger: logger, Observer: telemetry.NewTransactions(registry),
		UnavailableAfter: o.unavailable,
	})
	if err != nil {
		return nil, err
	}
	telemetry.ObservePools(registry, n.db.Pools)
	n.onClose(n.db.Shutdown)
	if err := n.prepareDatabase(ctx); err != nil {
		return nil, err
	}
	//nolint:contextcheck // What is started outlives the start; close ends it.
	if err := errors.Join(n.startLive(ctx, registry), n.startCross(ctx, registry), n.startServices(registry)); err != nil {
		return nil, err
	}
	if err := ensureAdminKey(ctx, postgres.NewAPIKeys(n.db), o.data, announce); err != nil {
		return nil, err
	}
	return n, n.listen(ctx)
}

func (n *node) onClose(f func(context.Context) error) { n.closers = append(n.closers, f) }

// openDatabase finds the database: the user's, or a private one that it starts.
func (n *node) openDatabase(ctx context.Context) error {
	if n.o.databaseURL != "" {
		n.url = n.o.databaseURL
		return nil
	}
	local, err := localpg.Start(ctx, localpg.Options{Dir: n.o.data, Logger: n.logger})
	if err != nil {
		return err
	}
	n.local, n.url = local, local.URL()
	n.onClose(local.Stop)
	return nil
}

// prepareDatabase refuses a database that would not keep its word, and brings the schema up to date.
func (n *node) prepareDatabase(ctx context.Context) error {
	findings, err := n.db.Check(ctx)
	if err != nil {
		return err
	}
	for _, f := range findings {
		if f.Fatal {
			return fmt.Errorf("refusing to start: %s", f.Message)
		}
		n.logger.WarnContext(ctx, "database", "check", f.Check, "finding", f.Message)
	}
	applied, err := postgres.Migrate(ctx, n.url)
	for _, m := range applied {
		n.logger.InfoContext(ctx, "migration applied", "version", m.Version, "name", m.Name)
	}
	return err
}

func (n *node) startServices(registry *prometheus.Registry) (err error) {
	lanes := telemetry.NewLaneMetrics(registry)
	draws := telemetry.NewLottery(registry)
	n.ledger = ledger.NewService(postgres.NewLedger(n.db), groupcommit.Options{Observer: n.traces.Lanes("ledger", lanes.For("ledger"))})
	n.onClose(n.ledger.Close)
	randomness, err := n.startBeacon()
	if err != nil {
		return err
	}
	n.lottery = lottery.NewService(postgres.NewLottery(n.db, draws), lottery.Options{
		Lanes: groupcommit.Options{Observer: n.traces.Lanes("lottery", lanes.For("lottery"))}, StuckAfter: n.o.stuckAfter, Observer: draws, Logger: n.logger,
		Committed: n.soldOrDrawn, Beacon: randomness,
	})
	n.onClose(n.lottery.Close)
	n.startLocks(registry)
	if err := n.startAuctions(registry, lanes); err != nil {
		return err
	}
	n.startMultidraws(registry)
	if err := n.startPublishing(registry, lanes); err != nil {
		return err
	}

	jwt := auth.JWTOptions{Secret: []byte(n.o.jwtSecret), JWKSURL: n.o.jwksURL, Issuer: n.o.jwtIssuer, Audience: n.o.jwtAudience}
	if n.o.jwtPublicKey != "" {
		if jwt.PublicKeysPEM, err = os.ReadFile(n.o.jwtPublicKey); err != nil {
			return fmt.Errorf("--jwt-public-key: %w", err)
		}
	}
	keys := postgres.NewAPIKeys(n.db)
	if n.auth, err = auth.New(auth.Options{Store: keys, JWT: jwt}); err != nil {
		return err
	}
	n.onClose(func(context.Context) error { n.auth.Close(); return nil })
	var limiter *auth.Limiter
	if n.o.userRate > 0 {
		quota := n.o.userRate * int(userRateWindow/time.Second)
		if limiter, err = auth.NewLimiter(auth.LimiterOptions{Quota: quota, Window: userRateWindow}); err != nil {
			return fmt.Errorf("--user-rate: %w", err)
		}
	}
	n.server, err = server.New(server.Options{
		Ledger: n.ledger, Lottery: n.lottery, Auction: n.auction, Multidraw: n.multidraw, Publish: n.publish, Cross: n.cross, Locks: n.locks, Keys: keys,
		Desk: postgres.NewDesk(n.db), Sessions: postgres.NewDesk(n.db), PublicPages: n.o.publicPages, Auth: n.auth, Limiter: limiter, Ready: n.db.Ping,
		Live:       server.LiveOptions{Hub: n.hub, AllowedOrigins: n.o.origins, MaxPerPrincipal: n.o.streams},
		CheckHosts: true, AllowedHosts: n.o.allowedHosts(), MaxConnections: n.o.maxOpen,
		Registry: registry, Logger: n.logger, Version: version(), Trace: n.traces.Requests(), Scratch: n.scratch(),
	})
	return err
}

// scratch is the data directory where it can be written to, as it is on a disk and not in memory; else the system's directory
// of temporary files.
func (n *node) scratch() string {
	if os.MkdirAll(n.o.data, 0o700) != nil {
		return ""
	}
	probe, err := os.CreateTemp(n.o.data, "fairlead-probe-*")
	if err != nil {
		return ""
	}
	_, _ = probe.Close(), os.Remove(probe.Name())
	return n.o.data
}

func (n *node) listen(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", n.o.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	n.listener = l
	if os.Geteuid() == 0 {
		n.logger.WarnContext(ctx, "serving as root: whatever breaks into the server has the whole machine; give it a user of its own")
	}
	if n.o.addrFile != "" {
		// The file appears whole or not at all, since whoever waits for it reads it at once.
		tmp := n.o.addrFile + ".tmp"
		if err := os.WriteFile(tmp, []byte(n.addr()+"\n"), 0o600); err != nil {
			return fmt.Errorf("--addr-file: %w", err)
		}
		if err := os.Rename(tmp, n.o.addrFile); err != nil {
			return fmt.Errorf("--addr-file: %w", err)
		}
	}
	n.logger.InfoContext(ctx, "listening", "addr", n.addr(), "docs", "http://"+n.addr()+"/docs", "version", version())
	return nil
}

func (n *node) addr() string { return n.listener.Addr().String() }

// run serves until ctx ends or the database is lost for good, then drains and stops everything.
func (n *node) run(ctx context.Context) error {
	serving, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var background sync.WaitGroup
	background.Go(func() {
		n.sweep(serving, "holds", holdSweep, func(ctx context.Context) (int, error) { return n.ledger.Sweep(ctx) })
	})
	background.Go(func() { n.sweep(serving, "lottery", lotterySweep, n.lottery.Sweep) })
	background.Go(func() { n.sweep(serving, "beacon rounds", beaconSweep, n.lottery.SweepRounds) })
	background.Go(func() { n.sweep(serving, "locks", lockSweep, n.sweepLocks) })
	background.Go(func() {
		n.sweep(serving, "idempotency keys", keySweep, func(ctx context.Context) (int, error) {
			deleted, err := n.db.SweepKeys(ctx, n.o.keyRetention)
			return int(deleted), err
		})
	})
	background.Go(func() {
		n.sweep(serving, "events", eventSweep, func(ctx context.Context) (int, error) {
			deleted, err := n.events.Prune(ctx, n.o.eventsKept)
			return int(deleted), err
		})
	})
	background.Go(func() { n.sweep(serving, "sagas", sagaSweep, n.sweepSagas) })
	background.Go(func() { n.sweep(serving, "what is in doubt", doubtSweep, n.sampleDoubts) })
	// What the last commands did is told to other processes too, so the hub runs until they are answered.
	telling, silence := context.WithCancel(context.WithoutCancel(ctx))
	defer silence()
	background.Go(func() { n.hub.Run(telling) })
	background.Go(func() { n.lead(serving) })
	background.Go(func() { n.publisher.Run(serving) })
	// Operations that run are tended until they are interrupted by the end.
	background.Go(func() { n.multidraw.Tend(telling) })
	background.Go(func() { n.cross.Tend(telling) })
	if n.o.pprofAddr != "" {
		background.Go(func() { n.profile(serving) })
	}
	if n.local != nil {
		background.Go(func() {
			select {
			case <-n.local.Done():
				stop(errors.Join(errors.New("the private PostgreSQL ended"), n.local.Err()))
			case <-serving.Done():
			}
		})
	}
	tellSupervisor(ctx, n.logger, daemon.SdNotifyReady)
	stopping := context.AfterFunc(serving, func() { tellSupervisor(ctx, n.logger, daemon.SdNotifyStopping) })
	defer stopping()
	err := n.server.Serve(serving, n.listener, n.o.drainTimeout)
	if cause := context.Cause(serving); cause != nil && !errors.Is(cause, context.Canceled) {
		err = errors.Join(err, cause)
	}
	stop(nil)
	silence()
	background.Wait()
	n.logger.InfoContext(ctx, "drained")
	return errors.Join(err, n.close(ctx))
}

// close stops what was started, last first. It does so under a cancelled context too.
func (n *node) close(ctx context.Context) error {
	var failures []error
	for _, stop := range slices.Backward(n.closers) {
		step, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		failures = append(failures, stop(step))
		cancel()
	}
	n.closers = nil
	return errors.Join(failures...)
}

// sweep calls f now and then every period until ctx ends. A failure is logged; the next round tries again.
func (n *node) sweep(ctx context.Context, name string, every time.Duration, f func(context.Context) (int, error)) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		done, err := f(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			n.logger.WarnContext(ctx, "sweep failed", "sweeper", name, "error", err)
		case done > 0:
			n.logger.InfoContext(ctx, "swept", "sweeper", name, "count", done)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// profile serves the runtime's profiles on a loopback address.
func (n *node) profile(ctx context.Context) {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	srv := &http.Server{Addr: n.o.pprofAddr, Handler: mux, ReadHeaderTimeout: shutdownTimeout}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		n.logger.ErrorContext(ctx, "profiling listener", "error", err)
	}
}

const adminKeyVariable = "FAIRLEAD_ADMIN_KEY"

func adminKeyFile(data string) string { return filepath.Join(data, "admin.key") }

// ensureAdminKey makes sure that there is an admin key: the one of the environment, the one kept in the data
// directory, any that the database knows, or a new one. A new one is kept before it is registered, so that a crash in
// between leaves a file that the next start registers, and never a key that nobody knows.
func ensureAdminKey(ctx context.Context, store auth.KeyStore, data string, announce func(string)) error {
	now := time.Now().UTC()
	register := func(secret string) error {
		_, err := auth.EnsureAdminKey(ctx, store, secret, uuid.Must(uuid.NewV7()).String(), now)
		return err
	}
	if secret := os.Getenv(adminKeyVariable); secret != "" {
		err := register(secret)
		if errors.Is(err, auth.ErrKeyRevoked) {
			return fmt.Errorf("%s holds a key that was revoked, which stays so: set another one, or unset it", adminKeyVariable)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", adminKeyVariable, err)
		}
		return nil
	}
	kept, err := os.ReadFile(adminKeyFile(data))
	if err == nil {
		if err := register(string(kept)); err != nil && !errors.Is(err, auth.ErrKeyRevoked) {
			return fmt.Errorf("%s: %w", adminKeyFile(data), err)
		}
		return nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	known, err := store.Keys(ctx)
	if err != nil {
		return err
	}
	for _, k := range known {
		if k.Role == auth.RoleAdmin && k.RevokedAt == nil {
			return nil
		}
	}
	secret, _, err := auth.GenerateKey(auth.RoleAdmin)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(adminKeyFile(data), []byte(secret), 0o600); err != nil {
		return err
	}
	announce(secret)
	return register(secret)
}
