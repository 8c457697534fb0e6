package fairlead

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"reflect"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/server/live"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/lock"
)

// None turns a number or a duration off that means its default when it is 0.
const None = -1

// Options say how a server runs. The zero value is a server with a private PostgreSQL; [DefaultOptions] has what its fields
// then mean. Each field is the flag of `fairlead serve` of that name, but for AdminKeyMade, ElectionSchema and Logger.
type Options struct {
	// Listen is the address of [Server.Run]; default "127.0.0.1:8080". Port 0 takes a free one.
	Listen string
	// Data is the data directory: the private PostgreSQL, the admin key and the key that seals secrets; default "fairlead-data".
	Data string
	// DatabaseURL is the PostgreSQL to use; empty: a private one in Data, which needs PostgreSQL's server programs.
	DatabaseURL string
	// DatabaseConnections is the most pooled connections, a quarter of them for reads alone; 4 or more, default 16. A few
	// more carry notifications and speculative transactions.
	DatabaseConnections int32
	// AccountsInMemory is how many accounts the server remembers, so that commands need not read them first: 1,000 to 100,000,000, default
	// 200,000. With what the garbage collector leaves, each takes about 1 kB.
	AccountsInMemory int
	// ElectionSchema is the database schema in which servers elect their leaders; default "fairlead_elections". Two installations
	// whose tables are in two schemas of one database, by search_path in their URLs, need one each. It is chosen before the first start, for all
	// servers of an installation.
	ElectionSchema string
	// UnavailableAfter is how long the database may be silent before requests that wait for it fail; 500 ms or more,
	// default 5 s.
	UnavailableAfter time.Duration

	// AdminKey is the first admin key, 32 to 4,096 visible ASCII characters. Empty: the one kept in Data, or any that the
	// database knows; else one is made and kept in Data.
	AdminKey string
	// AdminKeyMade is called with an admin key that was made; it is kept in the file [AdminKeyFile] names.
	AdminKeyMade func(key string)
	// JWTSecret verifies users' tokens (HS256 and up), 32 bytes or more; JWTPublicKey is a PEM file of public keys and
	// JWKSURL the issuer's key set, which verify them too. Without any of the three there are no users.
	JWTSecret, JWTPublicKey, JWKSURL string
	// JWTIssuer and JWTAudience are what tokens must have in iss and aud; empty: anything.
	JWTIssuer, JWTAudience string
	// UserRate is the requests a second that a user may make; default 50, None: any number. Keys are not limited.
	UserRate int
	// SecretsKey seals the signing secrets of targets: 32 bytes in hex. More keys, after commas, only open. Empty: one
	// kept in Data, derived from AdminKey where that is given.
	SecretsKey string

	// AllowedOrigins are the origins of pages that may use the live stream, beside the server's own: "https://shop.example". There are no wildcards.
	AllowedOrigins []string
	// AllowedHosts are the names in the Host header that [Server.Run] answers to; "*": any. On a loopback listener they are
	// added to this machine's own names; another listener answers to every name when the list is empty.
	AllowedHosts []string
	// MaxConnections is the most open connections; 0: as many as leave room in the process's file descriptors.
	MaxConnections int
	// StreamsPerPrincipal is how many sockets and event streams a key or user may have open; default 100, None: any number.
	StreamsPerPrincipal int
	// NoPublicPages turns the public pages of campaigns and auctions off.
	NoPublicPages bool
	// DrainDelay is how long a shutdown goes on serving while /readyz says "draining", so that balancers send requests elsewhere
	// before the port closes; default 0.
	DrainDelay time.Duration
	// DrainTimeout is how long a shutdown waits for requests under way; default 30 s, None: not at all.
	DrainTimeout time.Duration

	// IdempotencyRetention is how long answers are kept under their keys at least; at most it is twice that, and two sweeps, one each 10 min.
	// 1 min or more, default 24 h.
	IdempotencyRetention time.Duration
	// EventRetention is how long events of the live stream can be asked for; 1 min or more, default 7 days.
	EventRetention time.Duration
	// SagaRetention is how long operations of several steps are listed after their end; 24 h or more and not less than
	// IdempotencyRetention, default 90 days, None: for ever.
	SagaRetention time.Duration
	// DrawStuckAfter is how long a campaign may be drawing before the sweeper finishes it; default 10 min.
	DrawStuckAfter time.Duration
	// LeaderTTL is how long after its death the leader, which closes rounds of auctions, is replaced; 100 ms to 5 s, default 3 s.
	LeaderTTL time.Duration
	// ReplicaURL is a standby of the database, whose reads relieve the primary: lists and the check of the books; empty: all reads go to the primary.
	ReplicaURL string
	// ReplicaLag is how old what the standby shows may be, 2 s or more, default 5 s: beyond that, reads go to the primary.
	ReplicaLag time.Duration
	// RedisURL is a Redis that carries hints of new events between servers; empty: PostgreSQL's NOTIFY does.
	RedisURL string
	// Ledgers are further ledgers for transfers between ledgers, by name: the URL of a PostgreSQL, or of another server as
	// https://:KEY@HOST.
	Ledgers map[string]string

	// BeaconChain is the public randomness of campaigns in beacon mode: "quicknet" (default) or "default", which are drand's, a
	// file with a chain's description, or "none".
	BeaconChain string
	// BeaconRelays are base URLs of drand relays; default: drand's public ones. They need not be trusted.
	BeaconRelays []string
	// BeaconLead is the least time from a campaign's seal to the round that decides it; up to 24 h, default 15 s, None: the
	// chain's period.
	BeaconLead time.Duration

	// CloseBooksEvery is how often the books are closed, in the public log and for the integrity check: 1 s or more, default 1 min.
	CloseBooksEvery time.Duration
	// RecountEvery is how often all entries of a ledger that is too large to be counted whenever somebody asks are counted: 1 s or more, default 24 h.
	RecountEvery time.Duration
	// LogOrigin is the name of the public log, and of its key, when they are made; empty: fairlead/ and some digits of the key.
	LogOrigin string
	// Witnesses are asked to cosign the log's checkpoints, as VKEY=URL each; up to 15.
	Witnesses []string
	// WitnessQuorum is how many witnesses must have cosigned a checkpoint of the log before it is published; default 0.
	WitnessQuorum int

	// AllowPrivateTargets lets webhooks go to loopback, private and link-local addresses.
	AllowPrivateTargets bool
	// ClaimStaleAfter is how long a publication stays claimed by a worker that gives no sign of life; 1 s or more, default 1 h.
	ClaimStaleAfter time.Duration
	// ClaimSweepEvery is how often stale claims are released; 1 s or more, default 30 min.
	ClaimSweepEvery time.Duration
	// RetryBackoff is the pause after the first failed attempt, which doubles five times; 1 ms to 1 h, default 2 s.
	RetryBackoff time.Duration
	// PaceBase is the least time between two publications to a target that has answered 429, which doubles with each; up to
	// 24 h, default 1.5 × RetryBackoff. PaceMax is the most that it grows to; up to 24 h, default 150 × RetryBackoff.
	PaceBase, PaceMax time.Duration
	// BreakerRefusals is how many publications in a row answered 429 keep a target from being sent anything for BreakerOpen;
	// 1 or more, default 3.
	BreakerRefusals int
	// BreakerOpen is for how long that is; up to 24 h, default 150 × RetryBackoff.
	BreakerOpen time.Duration
	// PublishConcurrency is how many attempts are made at once, PublishPerTarget how many of them go to one target; 1 to
	// 10 000, default 256 and 32.
	PublishConcurrency, PublishPerTarget int

	// OTLPEndpoint is the URL of an OpenTelemetry collector that traces are sent to; empty: none.
	OTLPEndpoint string
	// Logger logs what happens; nil: nothing is logged.
	Logger *slog.Logger
}

// DefaultOptions are the values that zero fields of [Options] mean.
func DefaultOptions() Options {
	return Options{
		Listen: "127.0.0.1:8080", Data: "fairlead-data", DatabaseConnections: 16, AccountsInMemory: postgres.AccountsInMemory, UnavailableAfter: postgres.UnavailableAfter, ReplicaLag: postgres.ReplicaLag,
		AdminKeyMade: func(string) {}, UserRate: 50, StreamsPerPrincipal: 100, DrainTimeout: 30 * time.Second,
		IdempotencyRetention: 24 * time.Hour, EventRetention: 7 * 24 * time.Hour, SagaRetention: 90 * 24 * time.Hour,
		DrawStuckAfter: 10 * time.Minute, LeaderTTL: defaultLeaderTTL, BeaconChain: "quicknet", BeaconLead: 15 * time.Second,
		CloseBooksEvery: logkeeper.DefaultCloseEvery, RecountEvery: 24 * time.Hour,
		ClaimStaleAfter: time.Hour, ClaimSweepEvery: 30 * time.Minute, RetryBackoff: 2 * time.Second, BreakerRefusals: 3,
		PublishConcurrency: publish.DefaultConcurrency, PublishPerTarget: publish.DefaultPerTarget,
		Logger: slog.New(slog.DiscardHandler),
	}
}

// withDefaults fills zero fields, and turns None to what the services take for it.
func (o Options) withDefaults() Options {
	fields, defaults := reflect.ValueOf(&o).Elem(), reflect.ValueOf(DefaultOptions())
	for i := range fields.NumField() {
		if fields.Field(i).IsZero() {
			fields.Field(i).Set(defaults.Field(i))
		}
	}
	for _, n := range []*int{&o.UserRate, &o.StreamsPerPrincipal} {
		*n = max(*n, 0)
	}
	for _, d := range []*time.Duration{&o.DrainTimeout, &o.SagaRetention, &o.BeaconLead, &o.DrawStuckAfter} {
		*d = max(*d, 0)
	}
	return o
}

// OptionError is returned by [Open] when an option can't be used.
type OptionError struct {
	// Option is the field of [Options].
	Option string
	Err    error
}

// Error implements error.
func (e *OptionError) Error() string { return "fairlead: Options." + e.Option + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *OptionError) Unwrap() error { return e.Err }

func wrong(option, format string, args ...any) error {
	return &OptionError{Option: option, Err: fmt.Errorf(format, args...)}
}

// Limits of the options.
const (
	// readShare is which part of the connections serves reads, which take no others; minConnections leaves one for them.
	readShare                = 4
	minConnections           = readShare
	minAccounts, maxAccounts = 1_000, 100_000_000 // that a server remembers
	// minUnavailable leaves time for a connection to be made on a busy machine.
	minUnavailable = 500 * time.Millisecond
	// defaultLeaderTTL is shorter than other elections': with the wait between two tries it keeps a fail-over well under
	// five seconds. maxLeaderTTL keeps the promise that rounds close within 7 s of their leader's death.
	defaultLeaderTTL = 3 * time.Second
	maxLeaderTTL     = 5 * time.Second
	// minRetention leaves clients and subscribers time to come back after a break.
	minRetention = time.Minute
	// minSagaRetention is longer than any process may stand still in the middle of a step and go on: its mark is what tells
	// the step from one that was never executed.
	minSagaRetention = 24 * time.Hour
	minCloseBooks    = time.Second
	minClaimAge      = time.Second
	minBackoff       = time.Millisecond
	maxBackoff       = time.Hour
	maxPace          = 24 * time.Hour
	maxAtOnce        = 10_000
	maxBeaconLead    = 24 * time.Hour
)

// ledgerName is what a ledger may be called.
var ledgerName = regexp.MustCompile(`^[A-Za-z0-9._:@-]{1,64}$`)

// DatabaseSessions returns how many connections to its database a server with these options opens at most: those of the pools, and
// others for elections, notifications, speculative transactions, readiness and the upkeep of sagas.
func (o Options) DatabaseSessions() int {
	return postgres.Sessions(o.withDefaults().DatabaseConnections) + upkeepSessions
}

// check finds what is wrong with the options before anything is started or written.
func (o *Options) check() error {
	for _, d := range []struct {
		option     string
		value      time.Duration
		least, top time.Duration // top 0: none
	}{
		{"UnavailableAfter", o.UnavailableAfter, minUnavailable, 0},
		{"ReplicaLag", o.ReplicaLag, postgres.MinReplicaLag, 0},
		{"IdempotencyRetention", o.IdempotencyRetention, minRetention, 0},
		{"EventRetention", o.EventRetention, minRetention, 0},
		{"DrawStuckAfter", o.DrawStuckAfter, 0, 0},
		{"LeaderTTL", o.LeaderTTL, lock.MinTTL, maxLeaderTTL},
		{"DrainDelay", o.DrainDelay, 0, 0},
		{"BeaconLead", o.BeaconLead, 0, maxBeaconLead},
		{"CloseBooksEvery", o.CloseBooksEvery, minCloseBooks, 0},
		{"RecountEvery", o.RecountEvery, minCloseBooks, 0},
		{"ClaimStaleAfter", o.ClaimStaleAfter, minClaimAge, 0},
		{"ClaimSweepEvery", o.ClaimSweepEvery, minClaimAge, 0},
		{"RetryBackoff", o.RetryBackoff, minBackoff, maxBackoff},
		{"PaceBase", o.PaceBase, 0, maxPace},
		{"PaceMax", o.PaceMax, 0, maxPace},
		{"BreakerOpen", o.BreakerOpen, 0, maxPace},
	} {
		switch {
		case d.top > 0 && (d.value < d.least || d.value > d.top):
			return wrong(d.option, "must be between %s and %s", d.least, d.top)
		case d.value < d.least:
			return wrong(d.option, "must be %s or more", d.least)
		}
	}
	if _, err := o.witnesses(); err != nil {
		return err
	}
	switch {
	case o.DatabaseConnections < minConnections:
		return wrong("DatabaseConnections", "must be %d or more", minConnections)
	case o.AccountsInMemory < minAccounts || o.AccountsInMemory > maxAccounts:
		return wrong("AccountsInMemory", "must be between %d and %d", minAccounts, maxAccounts)
	case o.MaxConnections < 0:
		return wrong("MaxConnections", "must not be negative")
	case o.SagaRetention != 0 && o.SagaRetention < max(minSagaRetention, o.IdempotencyRetention):
		return wrong("SagaRetention", "must be %s or more, and not less than the retention of idempotency keys", minSagaRetention)
	case o.BreakerRefusals < 1:
		return wrong("BreakerRefusals", "must be 1 or more")
	case o.PublishConcurrency < 1 || o.PublishConcurrency > maxAtOnce:
		return wrong("PublishConcurrency", "must be between 1 and %d", maxAtOnce)
	case o.PublishPerTarget < 1 || o.PublishPerTarget > o.PublishConcurrency:
		return wrong("PublishPerTarget", "must be between 1 and the number of attempts at once")
	}
	if err := o.checkURLs(); err != nil {
		return err
	}
	for _, origin := range o.AllowedOrigins {
		if _, err := live.ParseOrigin(origin); err != nil {
			return wrong("AllowedOrigins", "%q is none: %w", origin, err)
		}
	}
	if o.AdminKey != "" {
		if err := auth.ValidAdminKey(o.AdminKey); err != nil {
			return wrong("AdminKey", "%w", err)
		}
	}
	if o.JWTSecret != "" {
		if err := auth.ValidSecret([]byte(o.JWTSecret)); err != nil {
			return wrong("JWTSecret", "%w", err)
		}
	}
	if o.JWTPublicKey != "" {
		if _, err := os.Stat(o.JWTPublicKey); err != nil {
			return wrong("JWTPublicKey", "%w", err)
		}
	}
	if _, err := parseSecretsKeys(o.SecretsKey); err != nil {
		return wrong("SecretsKey", "%w", err)
	}
	_, _, err := o.beacon()
	return err
}

// allowedHosts are the names to answer to: those given, and the one that Listen has.
func (o *Options) allowedHosts() []string {
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil || host == "" || net.ParseIP(host) != nil || !isLoopbackName(host) {
		return o.AllowedHosts
	}
	return append([]string{host}, o.AllowedHosts...)
}

// isLoopbackName reports whether a listener by that name is on a loopback address.
func isLoopbackName(host string) bool {
	a, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(host, "0"))
	return err == nil && a.IP.IsLoopback()
}

// unprepared reports whether a database's URL says that statements are run without being prepared. A server prepares its statements, so that pgx knows
// the types of their parameters. A malformed URL is another fault.
func unprepared(url string) (mode pgx.QueryExecMode, bad bool) {
	config, err := pgx.ParseConfig(url)
	if url == "" || err != nil {
		return mode, false
	}
	mode = config.DefaultQueryExecMode
	return mode, mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeSimpleProtocol
}
