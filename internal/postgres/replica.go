package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/standby"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

const (
	// lookAtReplica is how often a standby is asked what it has replayed, and lookAtReplicaFor how long it may take to answer.
	lookAtReplica    = 250 * time.Millisecond
	lookAtReplicaFor = time.Second
	// ReplicaLag is how old what a standby shows may be, unless [Options] say otherwise.
	ReplicaLag = 5 * time.Second
	// MinReplicaLag is the least that they may say: the count by which the age is known grows once a second.
	MinReplicaLag = 2 * time.Second
	// cancelReplicaFor is how long a read that is called off may take to say that it has ended. It is waited for before the primary is asked.
	cancelReplicaFor = 100 * time.Millisecond
	// positionFor bounds the wait for a place in the log.
	positionFor = time.Second
)

// ReplicaState is what is known of a standby that reads go to.
type ReplicaState struct {
	Usable bool
	Lag    time.Duration // how old what it shows may be at most; 0: it is not known
	// How many reads it has answered; how many it has failed, or was called off from; and how many the primary answered because the
	// standby was too old, away, or no standby of this database.
	Served, Failed, Behind int64
}

// replica is a standby that reads may go to (package standby). It is believed to be one of this database, and to be as old as it is,
// by what it shows: the row in which this server counts each second (see [history]). Every commit from before that count was sent is
// there, too. So neither a copy that has gone its own way, nor a clock, nor a place in another history's log is taken for the truth.
type replica struct {
	pool   *pgxpool.Pool
	maxLag time.Duration
	count  *history // this server's
	logger *slog.Logger

	served, failed, behind atomic.Int64

	mu       sync.Mutex
	sent     map[int64]time.Time // when counts were sent, not later
	fresh    time.Time           // what was committed by then is there; zero: nothing is known
	replayed standby.Position
	life     context.Context    //nolint:containedctx // Of the time for which it can be used; nil: it can't.
	end      context.CancelFunc // ends life
	began    time.Time
	told     bool // that it can't be used

	stop context.CancelFunc
	over chan struct{}
}

// newReplica returns a standby's connections, and looks after them until it is closed.
func newReplica(ctx context.Context, url string, maxLag time.Duration, like *pgxpool.Config, count *history, logger *slog.Logger) (*replica, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("postgres: replica URL: %w", err)
	}
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = like.MaxConns, 0, 0
	cfg.ConnConfig.ConnectTimeout = lookAtReplicaFor
	maps.Copy(cfg.ConnConfig.RuntimeParams, like.ConnConfig.RuntimeParams)
	cfg.ConnConfig.RuntimeParams["application_name"] = "fairlead replica reads"
	cfg.ConnConfig.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: cancelReplicaFor}
	}
	cfg.AfterConnect = func(_ context.Context, conn *pgx.Conn) error { inUTC(conn); return nil }
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("postgres: replica: %w", err)
	}
	if maxLag == 0 {
		maxLag = ReplicaLag
	}
	r := &replica{pool: pool, maxLag: maxLag, count: count, logger: logger, sent: map[int64]time.Time{}, began: time.Now(), over: make(chan struct{})}
	ctx, stop := context.WithCancel(ctx)
	r.stop = stop
	go r.watch(ctx)
	return r, nil
}

func (r *replica) close() {
	r.stop()
	<-r.over
	r.pool.Close()
}

// noteSent remembers that a count is about to be sent.
func (r *replica) noteSent(count int64, at time.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent[count] = at
	maps.DeleteFunc(r.sent, func(_ int64, sent time.Time) bool { return at.Sub(sent) > time.Minute+r.maxLag })
}

func (r *replica) watch(ctx context.Context) {
	defer close(r.over)
	defer r.look(ctx) // The context has ended: nobody is led here any more.
	wait.Every(ctx, lookAtReplica, nil, func() { r.look(ctx) })
}

// look asks the standby what it has.
func (r *replica) look(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, lookAtReplicaFor)
	defer cancel()
	var (
		standing bool
		replayed *string
		count    *int64
	)
	err := r.pool.QueryRow(asking, `SELECT pg_is_in_recovery(), CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()::text END, (SELECT beat FROM servers WHERE id = $1)`,
		r.count.server).Scan(&standing, &replayed, &count)
	r.mu.Lock()
	defer r.mu.Unlock()
	reason := ""
	switch {
	case err != nil:
		reason = "it does not answer: " + err.Error()
	case !standing || replayed == nil:
		reason = "it is no standby"
	case count == nil:
		reason = "it does not have this server's row: it is no standby of this database, or far behind"
	default:
		if sent, known := r.sent[*count]; known && sent.After(r.fresh) {
			r.fresh = sent
		}
		if r.replayed, err = standby.Parse(*replayed); err != nil {
			reason = err.Error()
		} else if time.Since(r.fresh) > r.maxLag {
			reason = "it is behind by more than " + r.maxLag.String()
		}
	}
	if reason != "" {
		r.fresh = time.Time{}
	}
	if reason == "" {
		if r.life == nil {
			r.life, r.end = context.WithCancel(context.WithoutCancel(ctx))
			r.logger.InfoContext(ctx, "reads go to the replica")
		}
		r.told = false
		return
	}
	lost := r.life != nil
	if lost {
		r.end()
		r.life, r.end = nil, nil
	}
	// At the start the first count, and the replica, have some time.
	if !r.told && ctx.Err() == nil && (lost || time.Since(r.began) > r.maxLag) {
		r.told = true
		r.logger.WarnContext(ctx, "reads go to the primary, because the replica can't be used", "reason", reason)
	}
}

// use returns the standby's connections where a read may use them now. The returned context ends when they can't be used any more.
func (r *replica) use(ctx context.Context, after standby.Position) (*pgxpool.Pool, context.Context, context.CancelFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.life == nil || after > r.replayed || time.Since(r.fresh) > r.maxLag {
		r.behind.Add(1)
		return nil, nil, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(r.life, cancel)
	return r.pool, ctx, func() { stop(); cancel() }
}

// read reads from the standby where that may be, and reports whether it did. Only a success is taken from there. Whoever finds in it that
// something is absent, or not yet so, reads again without.
func (r *replica) read(ctx context.Context, timeout time.Duration, read func(context.Context, *pgxpool.Pool) error) bool {
	after, answered, allowed := standby.Allowed(ctx)
	if r == nil || !allowed {
		return false
	}
	ok := r.try(ctx, after, timeout, read)
	answered(ok)
	return ok
}

func (r *replica) try(ctx context.Context, after standby.Position, timeout time.Duration, read func(context.Context, *pgxpool.Pool) error) bool {
	pool, using, done := r.use(ctx, after)
	if pool == nil {
		return false
	}
	defer done()
	using, cancel := context.WithTimeout(using, timeout)
	defer cancel()
	if err := read(using, pool); err != nil {
		if _, sql := errors.AsType[*pgconn.PgError](err); sql || pgconn.Timeout(err) || using.Err() != nil {
			r.failed.Add(1)
		} else {
			r.behind.Add(1)
		}
		return false
	}
	r.served.Add(1)
	return true
}

// Replica returns the state of the standby that reads go to; false: there is none.
func (db *DB) Replica() (ReplicaState, bool) {
	r := db.reads.replica
	if r == nil {
		return ReplicaState{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := ReplicaState{Usable: r.life != nil, Served: r.served.Load(), Failed: r.failed.Load(), Behind: r.behind.Load()}
	if !r.fresh.IsZero() {
		s.Lag = time.Since(r.fresh)
	}
	return s, true
}

// newPositions returns a group whose callers share looks at the primary's log.
func (db *DB) newPositions() *groupcommit.Group[struct{}, struct{}, standby.Position] {
	return groupcommit.New(func(ctx context.Context, _ struct{}, asked []struct{}) ([]standby.Position, error) {
		ctx, cancel := context.WithTimeout(ctx, positionFor)
		defer cancel()
		var text string
		if err := db.pool.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn()::text`).Scan(&text); err != nil {
			return nil, err
		}
		at, err := standby.Parse(text)
		all := make([]standby.Position, len(asked))
		for i := range all {
			all[i] = at
		}
		return all, err
	}, groupcommit.Options{Overlap: 1, Divisible: func(error) bool { return false }})
}

// Position returns a place in the primary's log that is after all that was committed before the call. Without a replica nobody needs one,
// and it returns false, as it does where the database can't tell within a second.
func (db *DB) Position(ctx context.Context) (standby.Position, bool) {
	if db.reads.replica == nil {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), positionFor)
	defer cancel()
	at, err := db.positions.Do(ctx, struct{}{}, struct{}{})
	return at, err == nil
}
