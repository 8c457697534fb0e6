package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/tracing"
	"github.com/fairlead-dev/fairlead/lock"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	listen       string
	addrFile     string
	data         string
	databaseURL  string
	maxConns     int32
	unavailable  time.Duration
	jwtSecret    string
	jwtPublicKey string
	jwksURL      string
	jwtIssuer    string
	jwtAudience  string
	userRate     int
	keyRetention time.Duration
	stuckAfter   time.Duration
	leaderTTL    time.Duration
	eventsKept   time.Duration
	sagasKept    time.Duration
	redisURL     string
	origins      []string
	hosts        []string
	maxOpen      int
	streams      int
	publicPages  bool
	publish      publishOptions
	beacon       beaconOptions
	ledgers      []string
	drainTimeout time.Duration
	logFormat    string
	logLevel     string
	pprofAddr    string
	otlpEndpoint string
}

// defaultData is the data directory where none is given.
const defaultData = "fairlead-data"

func (o *serveOptions) bind(f *pflag.FlagSet) {
	f.StringVar(&o.listen, "listen", "127.0.0.1:8080", "address to listen on; port 0 takes a free one")
	f.StringVar(&o.addrFile, "addr-file", "", "file to write the address to, once listening")
	f.StringVar(&o.data, "data", defaultData, "data directory: the private PostgreSQL, and the admin key")
	f.StringVar(&o.databaseURL, "database-url", "", "PostgreSQL to use instead of a private one")
	f.Int32Var(&o.maxConns, "database-connections", 16, "most pooled connections to the database, a quarter of them for reads alone; a few more carry notifications and what is sent ahead")
	f.DurationVar(&o.unavailable, "unavailable-after", postgres.UnavailableAfter, "how long the database may be silent before requests that wait for it are told that it is unavailable")
	f.StringVar(&o.jwtSecret, "jwt-secret", "", "secret that verifies users' tokens (HS256 and up, 32 bytes or more); better given in the environment")
	f.StringVar(&o.jwtPublicKey, "jwt-public-key", "", "PEM file of the public keys that verify users' tokens")
	f.StringVar(&o.jwksURL, "jwks-url", "", "where the issuer of users' tokens publishes its keys")
	f.StringVar(&o.jwtIssuer, "jwt-issuer", "", "iss that users' tokens must have")
	f.StringVar(&o.jwtAudience, "jwt-audience", "", "aud that users' tokens must contain")
	f.IntVar(&o.userRate, "user-rate", 50, "requests a second that a user may make; 0: any number. Keys are not limited")
	f.DurationVar(&o.keyRetention, "idempotency-retention", 24*time.Hour, "how long answers are kept under their keys")
	f.DurationVar(&o.stuckAfter, "draw-stuck-after", 10*time.Minute, "how long a campaign may be drawing before the sweeper finishes it")
	f.DurationVar(&o.leaderTTL, "leader-ttl", defaultLeaderTTL, "how long after its death the leader, which closes rounds, is replaced")
	f.DurationVar(&o.eventsKept, "event-retention", 7*24*time.Hour, "how long events of the live stream can be asked for")
	f.DurationVar(&o.sagasKept, "saga-retention", defaultSagaRetention, "how long transfers between ledgers, and other operations of several steps, are listed after their end; 0: for ever")
	f.StringVar(&o.redisURL, "redis-url", "", "Redis that carries hints of new events between servers, instead of PostgreSQL's NOTIFY")
	f.StringSliceVar(&o.origins, "allowed-origins", nil, "origins of pages that may use the live stream, beside the server's own, such as https://shop.example")
	f.StringSliceVar(&o.hosts, "allowed-hosts", nil, "names in the Host header to answer to, such as that which a proxy on this machine passes on; * for any. A loopback listener answers to localhost, loopback addresses and these alone; any other listener to every name unless some are given here")
	f.IntVar(&o.maxOpen, "max-connections", 0, "most open connections; 0: as many as leave room in the process's file descriptors")
	f.IntVar(&o.streams, "streams-per-principal", 100, "sockets and event streams that one key or user may have open; 0: any number")
	f.BoolVar(&o.publicPages, "public-pages", true, "serve a public page of each campaign and auction under way, at /p/campaigns/ID and /p/auctions/ID; accounts appear there by alias")
	o.publish.bind(f)
	o.beacon.bind(f)
	f.StringArrayVar(&o.ledgers, "ledger", nil, "NAME=URL of a further ledger, for transfers between ledgers: its PostgreSQL, or another server as https://:KEY@HOST; may be given several times")
	f.DurationVar(&o.drainTimeout, "drain-timeout", 30*time.Second, "how long a shutdown waits for requests under way")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&o.otlpEndpoint, "otlp-endpoint", "", "URL of an OpenTelemetry collector that traces are sent to by OTLP/HTTP, such as http://127.0.0.1:4318; none when empty. OTEL_… in the environment sets sampling, headers and the like")
	f.StringVar(&o.pprofAddr, "pprof-addr", "", "address of a profiling listener (loopback only); off when empty")
}

// readShare is which part of the connections serves reads, which take no others; minConnections leaves one for them.
const (
	readShare      = 4
	minConnections = readShare
)

// minUnavailable leaves time for a connection to be made on a busy machine.
const minUnavailable = 500 * time.Millisecond

// defaultLeaderTTL is shorter than other elections': with the wait between two tries it keeps a fail-over well under five
// seconds.
const defaultLeaderTTL = 3 * time.Second

// maxLeaderTTL keeps the promise that rounds close within 7 s of their leader's death.
const maxLeaderTTL = 5 * time.Second

// check finds what is wrong with the flags before anything is started or written.
func (o *serveOptions) check() error {
	switch {
	case o.drainTimeout < 0:
		return errors.New("--drain-timeout must not be negative")
	case o.maxConns < minConnections:
		return fmt.Errorf("--database-connections must be %d or more", minConnections)
	case o.unavailable < minUnavailable:
		return fmt.Errorf("--unavailable-after must be %s or more: connections take their time", minUnavailable)
	case o.maxOpen < 0:
		return errors.New("--max-connections must not be negative")
	case o.streams < 0:
		return errors.New("--streams-per-principal must not be negative")
	case o.userRate < 0:
		return errors.New("--user-rate must not be negative")
	case o.keyRetention < time.Minute:
		return errors.New("--idempotency-retention must be 1m or more: clients retry for longer than less")
	case o.leaderTTL < lock.MinTTL || o.leaderTTL > maxLeaderTTL:
		return fmt.Errorf("--leader-ttl must be between %s and %s", lock.MinTTL, maxLeaderTTL)
	case o.eventsKept < time.Minute:
		return errors.New("--event-retention must be 1m or more: subscribers resume after longer than less")
	case o.sagasKept != 0 && o.sagasKept < max(minSagaRetention, o.keyRetention):
		return fmt.Errorf("--saga-retention must be 0, or %s or more and not less than --idempotency-retention", minSagaRetention)
	case o.stuckAfter < 0:
		return errors.New("--draw-stuck-after must not be negative")
	case o.pprofAddr != "" && !isLoopback(o.pprofAddr):
		return errors.New("--pprof-addr must be a loopback address, such as 127.0.0.1:6060")
	}
	if o.otlpEndpoint != "" {
		if _, err := tracing.ParseEndpoint(o.otlpEndpoint); err != nil {
			return fmt.Errorf("--otlp-endpoint %w", err)
		}
	}
	if err := o.publish.check(); err != nil {
		return err
	}
	if err := o.beacon.check(); err != nil {
		return err
	}
	if _, err := parseLedgers(o.ledgers); err != nil {
		return err
	}
	if key := os.Getenv(adminKeyVariable); key != "" {
		if err := auth.ValidAdminKey(key); err != nil {
			return fmt.Errorf("%s: %w", adminKeyVariable, err)
		}
	}
	if o.jwtPublicKey != "" {
		if _, err := os.Stat(o.jwtPublicKey); err != nil {
			return fmt.Errorf("--jwt-public-key: %w", err)
		}
	}
	// The address is tried and given back: it is taken for good once there is somebody to answer.
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	return l.Close()
}

// allowedHosts are the names to answer to: those given, and the one that --listen has.
func (o *serveOptions) allowedHosts() []string {
	host, _, err := net.SplitHostPort(o.listen)
	if err != nil || host == "" || net.ParseIP(host) != nil || !isLoopbackName(host) {
		return o.hosts
	}
	return append([]string{host}, o.hosts...)
}

// isLoopbackName reports whether a listener by that name is on a loopback address.
func isLoopbackName(host string) bool {
	a, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(host, "0"))
	return err == nil && a.IP.IsLoopback()
}

func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || (ip != nil && ip.IsLoopback()))
}

func newServe() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: "Run the server. Without --database-url it keeps a private PostgreSQL in the data directory: it needs the\n" +
			"PostgreSQL server programs installed, and starts, supervises and stops them by itself.\n\n" +
			"FAIRLEAD_ADMIN_KEY sets the first admin key (32 or more visible ASCII characters). Without it one is made,\n" +
			"printed once, and kept in admin.key in the data directory. At the first start a link is printed that signs in to\n" +
			"the console, once and within half an hour; fairlead console prints another.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logger, err := newLogger(o.logFormat, o.logLevel)
			if err != nil {
				return err
			}
			if err := o.check(); err != nil {
				return err
			}
			n, err := startNode(cmd.Context(), &o, logger, func(key string) {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "admin key (shown once, kept in %s): %s\n", adminKeyFile(o.data), key)
			})
			if err != nil {
				return err
			}
			n.announceConsole(cmd.Context(), cmd.ErrOrStderr())
			return n.run(cmd.Context())
		},
	}
	o.bind(cmd.Flags())
	return cmd
}
