package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/command"
)

// Limits of a session. They bound how long a stopped or forgotten process can stand in the way of the others.
const (
	defaultMaxConns  = 16
	maxBidding       = 4     // connections on which bids are sent ahead: one for two processors, up to this
	statementTimeout = "60s" // a refund of the largest campaign takes a few seconds
	lockTimeout      = "10s"
	idleInTxTimeout  = "5s" // a process that was stopped in mid-transaction loses its locks after this
	connectTimeout   = 5 * time.Second
)

// Options configure [Open].
type Options struct {
	URL      string
	MaxConns int32 // 0 means 16
	Logger   *slog.Logger
	Observer Observer // may be nil
	// UnavailableAfter is how long the database may be silent before those who wait for it are told that it is unavailable;
	// 0 means [UnavailableAfter].
	UnavailableAfter time.Duration
}

// Observer is told what the transactions do. Its methods must not block and may be called concurrently.
type Observer interface {
	// Transaction is called at the end of each; attempts counts its runs, outcome is "committed", "failed" or "unknown".
	Transaction(name string, attempts int, took time.Duration, outcome string)
	// Retry is called before each rerun; reason is a SQLSTATE, "stale", "connection" or "commit_unknown".
	Retry(name, reason string)
}

// DB is a pool of connections to one database. It is safe for concurrent use.
type DB struct {
	pool     *pgxpool.Pool
	logger   *slog.Logger
	observer Observer
	presence *presence
	accounts *accountCache
	recent   *recentKeys
	keys     keySweep
	ahead    *pipeline   // of the ledger's transactions
	bidding  []*pipeline // of bids; those on one auction always go by the same
}

// replicationWarning is the connection's custom-data key under which a notice of a commit that may not have been
// replicated is kept until the transaction looks.
const replicationWarning = "fairlead.replication_warning"

// replicationWait is the function in which PostgreSQL waits for its standbys. It is named in the notice whatever the
// language of the message; it warns there, and only there, when a commit is durable on this server alone.
const replicationWait = "SyncRepWaitForLSN"

// Open connects to the database and makes sure that it answers. The caller closes it.
func Open(ctx context.Context, o Options) (*DB, error) {
	cfg, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, fmt.Errorf("postgres: database URL: %w", err)
	}
	cfg.MaxConns = o.MaxConns
	if cfg.MaxConns == 0 {
		cfg.MaxConns = defaultMaxConns
	}
	if o.UnavailableAfter <= 0 {
		o.UnavailableAfter = UnavailableAfter
	}
	// Shorter than the database is waited for, so that there is time for another try.
	cfg.ConnConfig.ConnectTimeout = min(connectTimeout, o.UnavailableAfter/2)
	maps.Copy(cfg.ConnConfig.RuntimeParams, map[string]string{
		"application_name":                    "fairlead",
		"timezone":                            "UTC",
		"default_transaction_isolation":       "read committed",
		"statement_timeout":                   statementTimeout,
		"lock_timeout":                        lockTimeout,
		"idle_in_transaction_session_timeout": idleInTxTimeout,
	})
	cfg.ConnConfig.OnNotice = func(c *pgconn.PgConn, n *pgconn.Notice) {
		if n.Routine == replicationWait {
			c.CustomData()[replicationWarning] = true
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("postgres: connect: %w", err)
	}
	db := &DB{pool: pool, logger: o.Logger, observer: o.Observer, accounts: newAccountCache(), recent: newRecentKeys()}
	db.presence = newPresence(o.UnavailableAfter, cfg.ConnConfig.Copy())
	db.ahead = &pipeline{config: cfg.ConnConfig.Copy(), statements: aheadStatements()}
	for range min(max(runtime.GOMAXPROCS(0)/2, 1), maxBidding) {
		db.bidding = append(db.bidding, &pipeline{config: cfg.ConnConfig.Copy(), statements: bidStatements()})
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("postgres: connect: %w", err)
	}
	return db, nil
}

// Close closes all connections, waiting for those in use.
func (db *DB) Close() {
	db.pool.Close()
	db.ahead.close()
	for _, p := range db.bidding {
		p.close()
	}
	db.presence.close()
}

// bids is the pipeline of an auction.
func (db *DB) bids(id uuid.UUID) *pipeline { return db.bidding[int(id[len(id)-1])%len(db.bidding)] }

// Shutdown is Close that waits no longer than ctx lives: a connection to a database that has stopped answering may never
// come back.
func (db *DB) Shutdown(ctx context.Context) error {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		db.Close()
	}()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("postgres: connections were still in use: %w", ctx.Err())
	}
}

// Ping reports whether the database answers.
func (db *DB) Ping(ctx context.Context) error {
	if err := db.pool.Ping(ctx); err != nil {
		return fmt.Errorf("postgres: ping: %w", err)
	}
	return nil
}

// A read that meets a connection which died in the pool is tried again; a database that is away is told as such soon.
const (
	readTries = 3
	readPause = 50 * time.Millisecond
	// readTimeout bounds a read by keys, scanTimeout one that goes over whole tables. Callers in a hurry bring a deadline.
	readTimeout = 10 * time.Second
	scanTimeout = 15 * time.Minute
)

// query reads rows outside of a transaction, each statement being its own snapshot. Failures of the connection are
// told apart, so that a reader is answered "unavailable" and not "internal error".
func query[T any](ctx context.Context, db *DB, scan pgx.RowToFunc[T], sql string, args ...any) (out []T, err error) {
	err = db.reading(ctx, readTimeout, func(ctx context.Context) error {
		rows, err := db.pool.Query(ctx, sql, args...)
		if err == nil {
			out, err = pgx.CollectRows(rows, scan)
		}
		return err
	})
	return out, err
}

// queryOne is query for exactly one row; it returns absent where there is none.
func queryOne[T any](ctx context.Context, db *DB, absent error, scan pgx.RowToFunc[T], sql string, args ...any) (out T, err error) {
	err = db.reading(ctx, readTimeout, func(ctx context.Context) error {
		rows, err := db.pool.Query(ctx, sql, args...)
		if err == nil {
			out, err = pgx.CollectExactlyOneRow(rows, scan)
		}
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return out, absent
	}
	return out, err
}

// snapshot runs reads that must agree with each other, in one read-only transaction. read may run more than once.
func (db *DB) snapshot(ctx context.Context, timeout time.Duration, read func(context.Context, pgx.Tx) error) error {
	o := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return db.reading(ctx, timeout, func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, db.pool, o, func(tx pgx.Tx) error { return read(ctx, tx) })
	})
}

// reading runs a read, again if the connection fails, and marks what is left of such failures as unavailability. A read
// that takes its time is cut when the database is away.
func (db *DB) reading(ctx context.Context, timeout time.Duration, read func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ctx, stop := db.presence.watch(ctx)
	defer stop()
	for try := 1; ; try++ {
		err := read(ctx)
		if err == nil {
			return nil
		}
		if errors.Is(context.Cause(ctx), errAway) {
			return command.Unavailable(errAway)
		}
		if v, _ := classify(err); v != connectionLost || try == readTries || !sleep(ctx, readPause) {
			return readError(err)
		}
	}
}

// errEmpty is returned when a query that always has a row has none.
var errEmpty = errors.New("a query without its row")
