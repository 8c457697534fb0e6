package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"reflect"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/internal/operator"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	fairlead.Options

	addrFile    string
	publicPages bool
	ledgers     []string
	logFormat   string
	logLevel    string
	pprofAddr   string
}

// newServeOptions binds flags to options, which have the defaults.
func newServeOptions(f *pflag.FlagSet) *serveOptions {
	o := &serveOptions{Options: fairlead.DefaultOptions()}
	text := func(p *string, name, usage string) { f.StringVar(p, name, *p, usage) }
	number := func(p *int, name, usage string) { f.IntVar(p, name, *p, usage) }
	period := func(p *time.Duration, name, usage string) { f.DurationVar(p, name, *p, usage) }
	text(&o.Listen, "listen", "address to listen on; port 0 takes a free one")
	text(&o.addrFile, "addr-file", "file to write the address to, once listening")
	text(&o.Data, "data", "data directory: the private PostgreSQL, and the admin key")
	text(&o.DatabaseURL, "database-url", "PostgreSQL to use instead of a private one, as postgres://USER:PASSWORD@HOST:5432/DATABASE")
	number(&o.AccountsInMemory, "accounts-in-memory", "accounts that the server remembers, so that commands need not read them first, with about 1 kB of memory for each")
	f.Int32Var(&o.DatabaseConnections, "database-connections", o.DatabaseConnections, "most pooled connections to the database, 4 or more, a quarter of them for reads alone; a few more carry notifications and speculative transactions")
	period(&o.UnavailableAfter, "unavailable-after", "how long the database may be silent before requests that wait for it are told that it is unavailable")
	text(&o.JWTSecret, "jwt-secret", "secret that verifies users' tokens (HS256 and up, 32 bytes or more); better given in the environment")
	text(&o.JWTPublicKey, "jwt-public-key", "PEM file of the public keys that verify users' tokens")
	text(&o.JWKSURL, "jwks-url", "where the issuer of users' tokens publishes its keys")
	text(&o.JWTIssuer, "jwt-issuer", "iss that users' tokens must have")
	text(&o.JWTAudience, "jwt-audience", "aud that users' tokens must contain")
	number(&o.UserRate, "user-rate", "requests a second that a user may make; 0: any number. Keys are not limited")
	period(&o.IdempotencyRetention, "idempotency-retention", "how long answers are kept under their keys, at least; at most it is twice that, and two sweeps, one each 10m")
	period(&o.DrawStuckAfter, "draw-stuck-after", "how long a campaign may be drawing before the sweeper finishes it")
	period(&o.LeaderTTL, "leader-ttl", "how long after its death the leader, which closes rounds, is replaced")
	period(&o.EventRetention, "event-retention", "how long events of the live stream can be asked for")
	period(&o.SagaRetention, "saga-retention", "how long transfers between ledgers, and other operations of several steps, are listed after their end; 0: for ever")
	text(&o.ReplicaURL, "replica-url", "standby of the database that answers lists and the check of the books; a client sees its own writes there by the header Fairlead-After")
	period(&o.ReplicaLag, "replica-lag", "how old what the standby shows may be before reads go to the primary")
	text(&o.RedisURL, "redis-url", "Redis that carries hints of new events between servers, instead of PostgreSQL's NOTIFY")
	f.StringSliceVar(&o.AllowedOrigins, "allowed-origins", nil, "origins of pages that may use the live stream, beside the server's own, such as https://shop.example")
	f.StringSliceVar(&o.AllowedHosts, "allowed-hosts", nil, "names in the Host header to answer to, such as that which a proxy on this machine passes on; * for any. A loopback listener answers to localhost, loopback addresses and these alone; any other listener to every name unless some are given here")
	number(&o.MaxConnections, "max-connections", "most open connections; 0: as many as leave room in the process's file descriptors")
	number(&o.StreamsPerPrincipal, "streams-per-principal", "sockets and event streams that one key or user may have open; 0: any number")
	f.BoolVar(&o.publicPages, "public-pages", true, "serve a public page of each campaign and auction under way, at /p/campaigns/ID and /p/auctions/ID; accounts appear there by alias")
	f.BoolVar(&o.AllowPrivateTargets, "allow-private-targets", false, "let webhooks go to loopback, private and link-local addresses; for development")
	period(&o.ClaimStaleAfter, "claim-stale-after", "how long a publication stays claimed by a worker that gives no sign of life; 1s or more")
	period(&o.ClaimSweepEvery, "claim-sweep-every", "how often stale claims are released; 1s or more")
	period(&o.RetryBackoff, "retry-backoff", "pause after the first failed attempt; it doubles five times")
	period(&o.PaceBase, "pace-base", "least time between two publications to a target that has answered 429; it doubles with each; 0s: 1.5 times --retry-backoff")
	period(&o.PaceMax, "pace-max", "most that --pace-base grows to; 0s: 150 times --retry-backoff")
	number(&o.BreakerRefusals, "breaker-refusals", "publications in a row answered 429 after which a target is sent nothing for --breaker-open")
	period(&o.BreakerOpen, "breaker-open", "for how long a target is sent nothing after --breaker-refusals; 0s: 150 times --retry-backoff")
	number(&o.PublishConcurrency, "publish-concurrency", "attempts that this server makes at once")
	number(&o.PublishPerTarget, "publish-per-target", "how many of --publish-concurrency go to one target")
	text(&o.SecretsKey, "secrets-key", "key that seals the signing secrets of targets, 32 bytes in hex; more, after commas, only open; better given in the environment")
	text(&o.BeaconChain, "beacon-chain", "public randomness of campaigns in beacon mode: quicknet or default (drand's mainnet), a file with a chain's description as drand relays serve it, or none")
	f.StringSliceVar(&o.BeaconRelays, "beacon-relays", nil, "base URLs of drand relays, asked in turn; drand's public ones when absent. They need not be trusted")
	period(&o.BeaconLead, "beacon-lead", "least time from a campaign's seal to the round that decides it: longer than the database's clock may be slow; a period of the chain at least")
	period(&o.CloseBooksEvery, "close-books-every", "how often the books are closed, in the public log and for the integrity check; 1s or more. Very large ledgers are closed less often in the log, and busy ones sooner for the check")
	period(&o.RecountEvery, "recount-every", "how often all entries are counted, where there are too many to count them whenever somebody asks; 1s or more")
	text(&o.LogOrigin, "log-origin", "name of the public log, when its key is made: a domain and a path of yours, such as shop.example/log; some digits of the key when empty")
	f.StringArrayVar(&o.Witnesses, "witness", nil, "VKEY=URL of a witness that is asked to cosign the public log's checkpoints; may be given several times")
	number(&o.WitnessQuorum, "witness-quorum", "how many witnesses must have cosigned a checkpoint of the public log before it is published")
	f.StringArrayVar(&o.ledgers, "ledger", nil, "NAME=URL of a further ledger, for transfers between ledgers: its PostgreSQL, or another server as https://:KEY@HOST; may be given several times")
	period(&o.DrainDelay, "drain-delay", "how long a shutdown goes on serving while /readyz says draining, so that balancers send requests elsewhere before the port closes; 0s: not at all")
	period(&o.DrainTimeout, "drain-timeout", "how long a shutdown waits for requests under way")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	text(&o.OTLPEndpoint, "otlp-endpoint", "URL of an OpenTelemetry collector that traces are sent to by OTLP/HTTP, such as http://127.0.0.1:4318; none when empty. OTEL_… in the environment sets sampling, headers and the like")
	text(&o.pprofAddr, "pprof-addr", "address of a profiling listener (loopback only); off when empty")
	return o
}

// complete turns the flags into options, in which 0 would mean the default and a flag of 0 means 0. It finds wrong flags before
// anything is started or written.
func (o *serveOptions) complete() (err error) {
	o.NoPublicPages = !o.publicPages
	o.AdminKey = os.Getenv(adminKeyVariable)
	if o.Ledgers, err = parseLedgers(o.ledgers); err != nil {
		return err
	}
	o.Witnesses = strings.Fields(strings.Join(o.Witnesses, " ")) // The environment gives several in one.
	if o.Logger, err = newLogger(o.logFormat, o.logLevel); err != nil {
		return err
	}
	if o.pprofAddr != "" && !isLoopback(o.pprofAddr) {
		return errors.New("--pprof-addr must be a loopback address, such as 127.0.0.1:6060")
	}
	fields, defaults := reflect.ValueOf(&o.Options).Elem(), reflect.ValueOf(fairlead.DefaultOptions())
	for i := range fields.NumField() {
		f := fields.Field(i)
		switch {
		case !f.CanInt():
		case f.Int() < 0:
			return fmt.Errorf("%s must not be negative", flagOf(fields.Type().Field(i).Name))
		case f.IsZero() && !defaults.Field(i).IsZero():
			f.SetInt(fairlead.None)
		}
	}
	// The address is tried and given back: it is taken for good once there is somebody to answer.
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", o.Listen)
	if err != nil {
		return &optionError{option: "Listen", err: err}
	}
	return l.Close()
}

// parseLedgers reads the flags, each of which may hold several, separated by white space, as the environment gives them.
func parseLedgers(flags []string) (map[string]string, error) {
	ledgers := map[string]string{}
	for one := range strings.FieldsSeq(strings.Join(flags, " ")) {
		name, address, ok := strings.Cut(one, "=")
		if !ok || address == "" {
			return nil, errors.New("--ledger must be NAME=URL, such as eu=postgres://host/database or us=https://:KEY@host")
		}
		if _, twice := ledgers[name]; twice {
			return nil, fmt.Errorf("--ledger: %q is given twice", name)
		}
		ledgers[name] = address
	}
	return ledgers, nil
}

// flagOf is what sets an option: SagaRetention is --saga-retention.
func flagOf(option string) string {
	switch option {
	case "AdminKey":
		return adminKeyVariable
	case "Ledgers":
		return "--ledger"
	case "Witnesses":
		return "--witness"
	case "JWKSURL":
		return "--jwks-url"
	}
	words := regexp.MustCompile(`([a-z])([A-Z])|([A-Z])([A-Z][a-z])`).ReplaceAllString(option, "$1$3-$2$4")
	return "--" + strings.ToLower(words)
}

// collectLess sets the garbage collector's target and limit unless the environment does.
func collectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		limitMemory(memlimit.FromCgroup)
	}
}

// limitMemory has the garbage collector run more often when nine tenths of the memory are used that this process is allowed. Where there is no limit,
// or nobody can tell, it changes nothing.
func limitMemory(allowed memlimit.Provider) {
	if bytes, err := allowed(); err == nil && bytes <= math.MaxInt64 {
		debug.SetMemoryLimit(int64(bytes / 10 * 9))
	}
}

// garbagePercent lets the heap grow to five times what is live before it is collected. What is live is small, a few
// megabytes, and collecting it less often leaves about a tenth more of the processor to commands.
const garbagePercent = 400

func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || (ip != nil && ip.IsLoopback()))
}

func newServe() *cobra.Command {
	var o *serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: "Run the server. Without --database-url it keeps a private PostgreSQL in the data directory: it needs the\n" +
			"PostgreSQL server programs installed, and starts, supervises and stops them by itself.\n\n" +
			"FAIRLEAD_ADMIN_KEY sets the first admin key (32 or more visible ASCII characters). Without it one is made,\n" +
			"printed once, and kept in admin.key in the data directory. At the first start a link is printed that signs in to\n" +
			"the console, once and within half an hour; fairlead console prints another.\n\n" +
			"Ctrl-C, SIGTERM and a closed terminal end it: it answers the requests under way and exits with status 0. A second Ctrl-C\n" +
			"or SIGTERM ends it at once. To wipe a trial, remove the data directory.",
		Example: "  fairlead serve                                   # a private PostgreSQL, data in ./fairlead-data\n" +
			"  fairlead serve --database-url postgres://fairlead:secret@db.internal:5432/fairlead --listen 0.0.0.0:8080\n" +
			"  FAIRLEAD_ADMIN_KEY=$(openssl rand -hex 32) fairlead serve --listen 127.0.0.1:8081 --data ~/fairlead-data",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			warnOfUnknown(cmd, o.Logger)
			o.AdminKeyMade = func(key string) {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "admin key (shown once, kept in %s): %s\n", fairlead.AdminKeyFile(o.Data), key)
			}
			collectLess()
			s, err := o.start(cmd.Context())
			switch {
			case err == nil:
				return o.serve(cmd, s)
			case cmd.Context().Err() != nil: // That has cut it off, which is no failure.
				o.Logger.Info("ended before it was ready", "error", err)
				return nil //nolint:nilerr // Whoever ends it has not failed.
			}
			return err
		},
	}
	o = newServeOptions(cmd.Flags())
	return cmd
}

// start makes a server that listens.
func (o *serveOptions) start(ctx context.Context) (*fairlead.Server, error) {
	s, err := fairlead.Open(ctx, o.Options)
	if err != nil {
		return nil, nameFlag(err)
	}
	addr, err := s.Listen(ctx)
	if err == nil && o.addrFile != "" {
		if err = writeWhole(o.addrFile, addr.String()+"\n"); err != nil {
			err = fmt.Errorf("--addr-file: %w", err)
		}
	}
	if err != nil {
		return nil, errors.Join(nameFlag(err), s.Close(ctx))
	}
	return s, nil
}

// serve runs a server until the command's context ends.
func (o *serveOptions) serve(cmd *cobra.Command, s *fairlead.Server) error {
	ctx := cmd.Context()
	link, signsIn := s.ConsoleLink(ctx, true)
	base, _, _ := strings.Cut(link, "/console/")
	defer o.keepAddress(ctx, base)()
	if signsIn {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "console (signs in once, within %s): %s\n", operator.LinkLife, link)
	} else {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "console: %s\n", link)
	}
	profiling, stop := context.WithCancel(ctx)
	var profiler sync.WaitGroup
	if o.pprofAddr != "" {
		profiler.Go(func() { o.profile(profiling) })
	}
	tellSupervisor(ctx, o.Logger, daemon.SdNotifyReady)
	stopping := context.AfterFunc(ctx, func() { tellSupervisor(ctx, o.Logger, daemon.SdNotifyStopping) })
	err := s.Run(ctx)
	stopping()
	stop()
	profiler.Wait()
	return err
}

// keepAddress writes the server's URL to its data directory, where other verbs find it. What it returns removes it again, unless
// another server has written its own.
func (o *serveOptions) keepAddress(ctx context.Context, base string) (remove func()) {
	if _, err := os.Stat(o.Data); err != nil {
		return func() {} // Nothing is kept: the database and the key came with the flags.
	}
	file := addressFile(o.Data)
	if err := writeWhole(file, base+"\n"); err != nil {
		o.Logger.WarnContext(ctx, "other commands will not find this server by --data", "error", err)
	}
	return func() {
		if kept, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(kept)) == base {
			_ = os.Remove(file)
		}
	}
}

// writeWhole writes a file that appears whole or not at all, since whoever waits for it reads it at once.
func writeWhole(name, text string) error {
	err := os.WriteFile(name+".tmp", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(name+".tmp", name)
	}
	return err
}

// profile serves the runtime's profiles on a loopback address.
func (o *serveOptions) profile(ctx context.Context) {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	// A page of another site, whose name leads here, must not read what a browser on this machine may.
	own := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if host != "localhost" && !net.ParseIP(host).IsLoopback() {
			http.Error(w, "this listener answers to its own address alone", http.StatusMisdirectedRequest)
			return
		}
		mux.ServeHTTP(w, r)
	})
	srv := &http.Server{Addr: o.pprofAddr, Handler: own, ReadHeaderTimeout: profileTimeout}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		o.Logger.ErrorContext(ctx, "profiling listener", "error", err)
	}
}

// profileTimeout bounds the head of a request for a profile.
const profileTimeout = 15 * time.Second

// tellSupervisor tells systemd how the server is (sd_notify(3)), where it was started by a unit of Type=notify: anywhere
// else it does nothing. A unit that depends on this one is then started once this one answers, and not before.
func tellSupervisor(ctx context.Context, logger *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		logger.WarnContext(ctx, "systemd was not notified", "state", state, "error", err)
	}
}
