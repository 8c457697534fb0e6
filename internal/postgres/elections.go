package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/pglock"
)

// electionSchema has the locks that leaders are elected by, apart from those of the lock service, unless [Options] name another
// one. Step 21 names it, too.
const electionSchema = "fairlead_elections"

// Limits of the connections that elections use. A call that takes longer comes too late for a term, and a session that
// nobody listens to any more must not keep a row locked.
const (
	electionTimeout     = 2 * time.Second
	electionLockTimeout = time.Second
	electionConns       = 2
)

// Elections is a [lock.Backend] for the server's own elections: the leader that closes rounds is elected by it. Clients of the
// lock service neither see its locks nor can take them. Its connections are its own, so that a pool in which everything is
// taken costs no leader its term.
type Elections struct {
	*pglock.Backend

	db *DB // over the elections' own connections
}

var _ lock.Backend = (*Elections)(nil)

// NewElections returns the elections of db's database. The caller closes them before db.
func NewElections(db *DB) (*Elections, error) {
	config := db.pool.Config() // A copy.
	config.MinConns, config.MinIdleConns, config.MaxConns = 0, 0, electionConns
	config.ConnConfig.RuntimeParams["application_name"] = "fairlead elections"
	config.ConnConfig.RuntimeParams["statement_timeout"] = strconv.FormatInt(electionTimeout.Milliseconds(), 10)
	config.ConnConfig.RuntimeParams["lock_timeout"] = strconv.FormatInt(electionLockTimeout.Milliseconds(), 10)
	db.pooler.settle(&config.ConnConfig.Config)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, fmt.Errorf("postgres: elections: %w", err)
	}
	own := &DB{
		pool: pool, logger: db.logger, presence: db.presence, spec: db.spec,
		runner: pgkit.Runner{Pool: pool, Presence: db.presence, Logger: db.logger},
	}
	return &Elections{pglock.New(pool, pglock.Options{Schema: db.elections, Run: own.run, Logger: db.logger}), own}, nil
}

// Acquire implements [lock.Backend]. The grant commits in a transaction of [DB.run], which refuses a commit that is not
// replicated: a failover could lose its term, and give it out again. The rows of candidates that died are deleted on the way.
func (e *Elections) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	if _, err := e.Sweep(ctx); err != nil {
		e.db.logger.DebugContext(ctx, "deleting old candidates failed, and is tried again at the next election", "error", err)
	}
	return e.AcquireWith(ctx, r, pglock.Hooks{Granted: func(context.Context, pgx.Tx, lock.Grant) error { return nil }})
}

// Renew implements [lock.Backend], with a commit as that of Acquire.
func (e *Elections) Renew(ctx context.Context, id string, ttl time.Duration) (g lock.Grant, err error) {
	grant, err := uuid.Parse(id)
	if err != nil {
		return g, lock.ErrLost
	}
	start := time.Now()
	err = e.db.run(ctx, "election renew", func(ctx context.Context, tx pgx.Tx) (err error) {
		g, err = e.RenewIn(ctx, tx, grant, ttl)
		return err
	})
	g.Start = start
	return g, err
}

// Close gives up the connections. Terms stay until they expire.
func (e *Elections) Close(ctx context.Context) error {
	e.Backend.Close()
	return closeWithin(ctx, e.db.pool.Close)
}
