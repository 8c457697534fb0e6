package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/postgres/speculation"
	"github.com/fairlead-dev/fairlead/internal/postgres/turns"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/standby"
	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/lock/pglock"
)

// Limits of a session. They bound how long a stopped or forgotten process can stand in the way of the others.
const (
	defaultMaxConns  = 16
	maxPipelines     = 4       // connections for speculative transactions: one for two processors, up to this
	statementTimeout = "60s"   // a refund of the largest campaign takes a few seconds
	lockTimeout      = "2s"    // above deadlock_timeout; where a transaction sets no other: for what a statement locks before it runs, too
	readLockTimeout  = "100ms" // of reads, which wait for more outside of a connection: see lockedReads
	idleInTxTimeout  = "5s"    // a process that was stopped in mid-transaction loses its locks after this
	connectTimeout   = 5 * time.Second
	openPause        = 100 * time.Millisecond // between tries to connect at the start
	// readShare is which part of MaxConns is added for reads where ReadConns does not say how many.
	readShare = 4
	// cancelPatience is how long a read that was called off may take to say that it has ended, before its connection is
	// closed.
	cancelPatience = 2 * time.Second
)

// UnavailableAfter is how long the database may be silent, unless [Options] say otherwise.
const UnavailableAfter = 5 * time.Second

// AccountsInMemory is how many accounts are remembered, unless [Options] say otherwise.
const AccountsInMemory = speculation.DefaultAccounts

// Options configure [Open].
type Options struct {
	URL string
	// MaxConns is the most pooled connections for commands and background work; 0 means 16.
	MaxConns int32
	// ReadConns is the most connections for reads, beside MaxConns; 0 means a quarter as many, and at least one. Reads take
	// no others, so however many of them hang, commands and the leader go on.
	ReadConns int32
	// AccountsInMemory is how many accounts are remembered, so that commands need not read them; 0 means [AccountsInMemory].
	AccountsInMemory int
	Logger           *slog.Logger
	Observer         Observer // may be nil
	// UnavailableAfter is how long the database may be silent before those who wait for it get "unavailable";
	// 0 means [UnavailableAfter].
	UnavailableAfter time.Duration
	// Patience is how long [Open] tries to connect again where PostgreSQL does not answer in time, as on a machine that is busy with
	// starting it. One try takes at most half of UnavailableAfter, and there is one at least.
	Patience time.Duration
	// ReplicaURL is a standby that reads go to which package standby allows; empty: there is none. It needs a Watch.
	ReplicaURL string
	// ReplicaLag is how old what the standby shows may be, [MinReplicaLag] or more; 0 means [ReplicaLag].
	ReplicaLag time.Duration
	// Watch has the database watched for lost commits, see [DB.WatchHistory]; nil: it is not.
	Watch *Watch
	// Sessions is how many connections to this database the whole process may need, see [Sessions]. A connection pooler that does
	// not give as many is refused. 0: it is not asked for more than a few.
	Sessions int
	// ElectionSchema has the locks that leaders are elected by; empty: fairlead_elections. [DB.Migrate] makes it. It is the same for all
	// servers of an installation from its beginning: terms would begin anew in another one.
	ElectionSchema string
	// NoTurns has this process take no turns with others (package turns). Tests that want processes to meet set it.
	NoTurns bool
	// Dial opens the connections to the database; nil: the network does. Tests order and cut what goes over them.
	Dial pgconn.DialFunc
}

// Observer receives what the transactions do, for metrics. Its methods must not block and may be called concurrently.
type Observer interface {
	speculation.Observer
	// Blocked is called when the number of rows that others have locked changes, or that of the commands that wait for them.
	Blocked(rows, commands int)
	// BlockedTables is called when a look has found how many tables others keep locked, or rows there, that transactions here have met.
	BlockedTables(tables int)
	// MetOldPrimary is called when a connection leads to a primary on an older timeline than the last one: it was refused, or it
	// committed and is the primary again.
	MetOldPrimary(refused bool)
}

// DB is the connections to one database: a pool for commands and for the work in the background, a pool for reads, and those
// of speculative transactions. It is safe for concurrent use.
type DB struct {
	pool  *pgxpool.Pool
	reads reads
	// positions are looks at the primary's log.
	positions *groupcommit.Group[struct{}, struct{}, standby.Position]
	records   *groupcommit.Group[struct{}, []idempotency.ID, []idempotency.ID]
	logger    *slog.Logger
	observer  Observer
	presence  *pgkit.Presence
	runner    pgkit.Runner
	spec      *speculation.Speculator
	blocked   *blockedRows
	stuck     *stuckTransactions // nil: none is known
	shared    sharedTargets
	turns     *turns.Turns
	ready     readiness
	history   history
	pooler    pooler
	url       string
	elections pglock.Schema
	denied    wait.News          // of privileges that the role lacks
	engine    pgkit.Capabilities // of those that [probe] looks for
	gate      pgkit.Gate
	// chapters is whether accounts that change come to later chapters: somebody holds a snapshot that dead versions are kept for.
	chapters atomic.Bool
}

// planning are the planner's settings of all connections. What the planner believes of a table is wrong while the table is
// new, and a plan that it has made for an empty table stays in a session until autovacuum comes by. So it has no choice:
// each row is looked up by an index, in nested loops that begin at what the statement is given. Only in a transaction that
// goes over whole tables is it free to do otherwise: see scanFreely.
func planning() map[string]string {
	return map[string]string{
		"enable_seqscan": "off", "enable_bitmapscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off",
		"jit": "off", // It would compile whatever can't be done without these.
	}
}

// scanFreely lets a transaction go over whole tables, in the time that this takes.
const scanFreely = `SELECT set_config('statement_timeout', '15min', true), set_config('enable_seqscan', 'on', true),
	set_config('enable_bitmapscan', 'on', true), set_config('enable_hashjoin', 'on', true), set_config('enable_mergejoin', 'on', true)`

// Open connects to the database and makes sure that it answers. The caller closes it. Its error is an [operator.UnreadyError] where
// the database refuses or does not answer, and a [PoolerError] where a connection pooler is in between that nothing here can work with.
func Open(ctx context.Context, o Options) (*DB, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	for start := time.Now(); ; {
		db, err := openOnce(ctx, o)
		late := pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded)
		if !late || time.Since(start) >= o.Patience || !wait.For(ctx, openPause) {
			return db, err
		}
		o.Logger.WarnContext(ctx, "the database does not answer in time: trying again", "error", err)
	}
}

func openOnce(ctx context.Context, o Options) (*DB, error) {
	cfg, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, fmt.Errorf("postgres: database URL: %w", err)
	}
	cfg.MaxConns = o.MaxConns
	cfg.MaxConns = cmp.Or(cfg.MaxConns, defaultMaxConns)
	if o.UnavailableAfter <= 0 {
		o.UnavailableAfter = UnavailableAfter
	}
	// Shorter than the database is waited for, so that there is time for another try.
	cfg.ConnConfig.ConnectTimeout = min(connectTimeout, o.UnavailableAfter/2)
	if o.Dial != nil {
		cfg.ConnConfig.DialFunc = o.Dial
	}
	maps.Copy(cfg.ConnConfig.RuntimeParams, planning())
	maps.Copy(cfg.ConnConfig.RuntimeParams, textForm())
	maps.Copy(cfg.ConnConfig.RuntimeParams, map[string]string{
		"application_name":                    "fairlead",
		"timezone":                            "UTC",
		"default_transaction_isolation":       "read committed",
		"statement_timeout":                   statementTimeout,
		"lock_timeout":                        lockTimeout,
		"idle_in_transaction_session_timeout": idleInTxTimeout,
	})
	pgkit.NoteReplication(&cfg.ConnConfig.Config)
	pgkit.DropReadOnly(cfg)
	onlyNewest(&cfg.ConnConfig.Config, o.Logger, o.Observer)
	newest, err := newestVersion()
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	db := &DB{logger: o.Logger, observer: o.Observer, shared: sharedTargets{logger: o.Logger}, url: o.URL, elections: pglock.Schema(cmp.Or(o.ElectionSchema, electionSchema))}
	db.history.begin(o.Watch, newest, o.Logger)
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		inUTC(conn)
		return db.history.met(ctx, conn)
	}
	pgkit.SpareTroubled(cfg)
	if db.pooler, err = findPooler(ctx, &cfg.ConnConfig.Config, o.Sessions); err != nil {
		if _, refused := errors.AsType[*PoolerError](err); !refused {
			err = unready(operator.UnreadyDatabase, err)
		}
		return nil, fmt.Errorf("postgres: connect: %w", err)
	}
	db.pooler.settle(&cfg.ConnConfig.Config)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("postgres: connect: %w", err)
	}
	forReads := readConfig(cfg, o.ReadConns, max(readTimeout, o.UnavailableAfter))
	db.pooler.settle(&forReads.ConnConfig.Config)
	readPool, err := pgxpool.NewWithConfig(ctx, forReads)
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("postgres: connect: %w", err)
	}
	db.pool, db.reads.pool = pool, readPool
	if err := db.probe(ctx); err != nil {
		pool.Close()
		readPool.Close()
		return nil, fmt.Errorf("postgres: connect: %w", unready(operator.UnreadyDatabase, err))
	}
	db.presence = pgkit.NewPresence(o.UnavailableAfter, cfg.ConnConfig.Copy())
	db.runner = pgkit.Runner{Pool: pool, Presence: db.presence, Logger: o.Logger}
	if o.Observer != nil {
		db.runner.Observer = o.Observer
	}
	db.reads = reads{pool: readPool, presence: db.presence, locked: newLockedReads(int(forReads.MaxConns))}
	db.positions, db.records = db.newPositions(), db.newRecords()
	db.blocked, db.stuck = newBlockedRows(db), newStuckTransactions(int(cfg.MaxConns))
	db.ready.db, db.ready.config, db.ready.newest = db, cfg.ConnConfig.Copy(), newest
	db.ready.config.RuntimeParams["lock_timeout"] = strconv.FormatInt(schemaWithin.Milliseconds(), 10)
	db.pooler.settle(&db.ready.config.Config)
	config := cfg.ConnConfig.Copy()
	config.RuntimeParams["lock_timeout"] = strconv.FormatInt(speculativeBlockedAfter.Milliseconds(), 10)
	config.RuntimeParams["plan_cache_mode"] = "force_generic_plan" // A plan for each batch would be the same one.
	db.pooler.settle(&config.Config)
	pgkit.EndReadOnly(&config.Config)
	spec := speculation.Options{
		Pool: pool, Config: config, Pipelines: min(max(runtime.GOMAXPROCS(0)/2, 1), maxPipelines), Statements: db.speculativeStatements(), Explicit: !db.engine.Has(pgkit.Batches),
		Presence: db.presence, NewBook: func(now time.Time) *ledger.Book { return newBook(now, db.chapters.Load()) },
		Blocked: func(accounts []string) bool {
			return db.blocked.find(accountRow, accounts...) != nil || db.blocked.find(newAccountRow, accounts...) != nil
		},
		Read: func(ctx context.Context, ids []string) ([]ledger.Account, error) {
			return query(ctx, db, scanAccount, selectAccounts, ids)
		},
		Met: db.history.met, MostAccounts: o.AccountsInMemory,
	}
	if o.Observer != nil {
		spec.Observer = o.Observer
	}
	db.spec = speculation.New(spec)
	db.turns = db.newTurns(o.NoTurns)
	db.OnLostHistory(db.spec.Forget)
	if o.ReplicaURL != "" {
		if db.reads.replica, err = newReplica(context.WithoutCancel(ctx), o.ReplicaURL, o.ReplicaLag, forReads, &db.history, o.Logger); err != nil {
			pool.Close()
			readPool.Close()
			return nil, err
		}
	}
	return db, nil
}

// RememberedAccounts returns how many accounts this process remembers, and how many it has forgotten for others.
func (db *DB) RememberedAccounts() (accounts int, forgotten int64) {
	return db.spec.Accounts.Remembered()
}

// textForm is how values are written and read as text, which roles, databases and servers may set otherwise, also while a server runs.
func textForm() map[string]string {
	return map[string]string{"client_encoding": "UTF8", "datestyle": "ISO, MDY", "standard_conforming_strings": "on"}
}

// inUTF8 reports whether an address asks for UTF-8 whatever the database's encoding is.
func inUTF8(url string) bool {
	config, err := pgconn.ParseConfig(url)
	return err == nil && strings.EqualFold(config.RuntimeParams["client_encoding"], "UTF8")
}

// inUTC has the connection read all times as UTC.
func inUTC(conn *pgx.Conn) {
	codec := &pgtype.TimestamptzCodec{ScanLocation: time.UTC}
	conn.TypeMap().RegisterType(&pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: codec})
}

// readConfig is the configuration of the pool for reads. A read that its caller gives up, or that takes too long, is ended
// in PostgreSQL too: what nobody waits for must not go on taking processor time and connections.
func readConfig(of *pgxpool.Config, conns int32, timeout time.Duration) *pgxpool.Config {
	cfg := of.Copy()
	cfg.MaxConns = conns
	if conns == 0 {
		cfg.MaxConns = max(of.MaxConns/readShare, 1)
	}
	cfg.MinConns, cfg.MinIdleConns = 0, 0
	cfg.ConnConfig.RuntimeParams["application_name"] = "fairlead reads"
	cfg.ConnConfig.RuntimeParams["lock_timeout"] = readLockTimeout
	cfg.ConnConfig.RuntimeParams["statement_timeout"] = strconv.FormatInt(timeout.Milliseconds(), 10)
	cfg.ConnConfig.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: cancelPatience}
	}
	return cfg
}

// Pool is what a pool of connections is doing.
type Pool struct {
	Name       string // commands or reads
	Max, InUse int
	// Taken is how often a connection was taken since the start, Waits how often none was free, and Waited for how long all
	// of those had to wait.
	Taken, Waits int64
	Waited       time.Duration
}

// Pools returns the state of both pools, for metrics.
func (db *DB) Pools() []Pool {
	of := func(name string, p *pgxpool.Pool) Pool {
		s := p.Stat()
		return Pool{
			Name: name, Max: int(s.MaxConns()), InUse: int(s.AcquiredConns()),
			Taken: s.AcquireCount(), Waits: s.EmptyAcquireCount(), Waited: s.EmptyAcquireWaitTime(),
		}
	}
	return []Pool{of("commands", db.pool), of("reads", db.reads.pool)}
}

// Close closes all connections, waiting for those in use.
func (db *DB) Close() {
	db.turns.Close()
	db.blocked.close()
	db.ready.mu.Lock()
	db.ready.close()
	db.ready.mu.Unlock()
	if db.reads.replica != nil {
		db.reads.replica.close()
	}
	db.reads.pool.Close()
	db.pool.Close()
	db.spec.Close()
	db.presence.Close()
}

// Shutdown is Close that waits no longer than ctx lives: a connection to a database that has stopped answering may never
// come back.
func (db *DB) Shutdown(ctx context.Context) error { return closeWithin(ctx, db.Close) }

func closeWithin(ctx context.Context, closeAll func()) error {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		closeAll()
	}()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("postgres: connections were still in use: %w", ctx.Err())
	}
}
