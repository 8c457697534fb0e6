package pglock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/lock"
)

// Times of the protocol. Holders that die are replaced within TTL + HandOver + PollInterval and what the transactions
// take, which package lock promises to be within TTL + 2 s.
const (
	// PollInterval is how often a process looks after its waiting requests.
	PollInterval = 400 * time.Millisecond
	// BlindPollInterval is how often it does while notifications do not arrive.
	BlindPollInterval = 50 * time.Millisecond
	// HandOver is how long a lock that was handed over to another process waits for its waiter to take it. With the release
	// before and the grant after, those behind a dead waiter lose a second at most.
	HandOver = 900 * time.Millisecond
	// aliveFor is how long a waiting request counts as alive after its process last said so. The statements know it, too.
	aliveFor = 1200 * time.Millisecond
	// forgetAfter is after how much silence of its process the row of a request is deleted.
	forgetAfter = time.Minute
	// followInterval is how often a request looks for the answer that another process is making for it.
	followInterval = 25 * time.Millisecond
	// cleanupTimeout bounds what is done for callers who have gone.
	cleanupTimeout = 5 * time.Second
	// leaveFor is how long a request that gives up waits for its place in line to be given up, too. Then that goes on without it.
	leaveFor = 2 * time.Second
	// askFor is how much longer than its Wait a request may take where rows that it needs are locked, or the database is slow.
	askFor = 5 * time.Second
)

// maxWaiters bounds the waiting requests of one process.
const maxWaiters = 8192

// maxMoves bounds how often a transaction is run again because a row moved. Each time another one made progress.
const maxMoves = 50

// ErrAnswered is returned by [Backend.AcquireWith] when Known says that the request was answered before.
var ErrAnswered = errors.New("the request was answered before")

// ErrLocked is for a [Run] to return where another session has locked a row, and nothing was applied. A request that is about to
// ask ends with it; one that waits in line goes on waiting.
//
// A request without [Hooks].Run, and with a Wait that is not [lock.Forever], also returns it when the database has not decided within 5 s of that
// Wait. The backend then gives back what the request may be granted later.
var ErrLocked = errors.New("another session has locked a row")

// errNotDecided is why such a request ends.
var errNotDecided = fmt.Errorf("%w, or the database is slow: it has not decided in time", ErrLocked)

// Hooks let a caller commit something of its own together with a grant.
type Hooks struct {
	// Request names what is asked for to other processes that are asked the same; nil: nobody is.
	Request []byte
	// Known queues statements in the transaction that decides, to run once the keys are locked. The function that it returns reads their results: it tells
	// whether the request was answered before, or why it can't be decided. May be nil.
	Known func(ctx context.Context, tx pgx.Tx, b *pgx.Batch) (answered func() (bool, error))
	// Granted is called at the end of the transaction that commits the grant, and may commit it itself; an error undoes the grant.
	// May be nil.
	Granted func(ctx context.Context, tx pgx.Tx, g lock.Grant) error
	// Run runs the transactions that need the rows of the request's keys; nil: the backend's does. Requests of one process for one key share
	// transactions, which the first one's runs, to its end, whatever becomes of its context.
	Run Run
}

func (h Hooks) granted(ctx context.Context, tx pgx.Tx, g lock.Grant) error {
	if h.Granted == nil {
		return nil
	}
	return h.Granted(ctx, tx, g)
}

// Run runs fn in one READ COMMITTED transaction, again where that helps, and commits.
type Run func(ctx context.Context, name string, fn func(ctx context.Context, tx pgx.Tx) error) error

// Options configure [New]. The zero value is fine.
type Options struct {
	// Schema has the tables; see [Schema.Install].
	Schema Schema
	// Run runs transactions; nil means that the backend does, which retries what a retry may mend for 15 s.
	Run      Run
	Logger   *slog.Logger       // may be nil
	Observer lock.StoreObserver // called again by a transaction that is run again; may be nil
}

// Backend keeps locks in PostgreSQL. It is safe for concurrent use.
type Backend struct {
	tables

	pool       *pgxpool.Pool
	run        Run
	logger     *slog.Logger
	maxWaiters int
	process    string // names this backend in the rows of its requests

	mu       sync.Mutex
	waiters  map[uuid.UUID]*waiter
	asking   map[string]*turn      // by key
	cohorts  map[uuid.UUID]*cohort // by who has the lock, and by their bases
	runs     map[string]*cohort    // by key
	broken   []BrokenDeadlock      // oldest first
	closed   bool
	renewals *pgxpool.Pool // made when first needed

	watched bool        // the background has been started
	fresh   []uuid.UUID // that have just joined the line

	closing chan struct{}   // closed at the end
	base    context.Context //nolint:containedctx // The life of the backend's own goroutines.
	stop    context.CancelFunc
	tasks   sync.WaitGroup
	inspect chan struct{} // has a value when the waiters are to be looked after at once
	joined  chan struct{} // has a value when there are fresh ones
	hints   chan uuid.UUID
	hearing atomic.Bool // notifications arrive
	mute    atomic.Bool // there are none in this database

	errands  *groupcommit.Group[struct{}, errand, errandDone]
	busy     atomic.Int64 // simple requests, and releases, that are under way
	unshared atomic.Bool  // the database can't share
	plain    atomic.Bool  // it has none of the functions
	older    atomic.Bool  // it has no functions for one request alone

	// pollFails says that the last poll has failed; it is the watching goroutine's own.
	pollFails bool
}

var (
	_ lock.Backend   = (*Backend)(nil)
	_ lock.Inspector = (*Backend)(nil)
)

// New returns a backend on the pool's database, which has the tables. It takes connections from the pool for short
// transactions, and makes up to two of its own: one for notifications when somebody waits, one for renewals, so that a
// pool in which everything is taken loses no lock. The caller closes it, and then the pool.
//
// The pool's MinConns should be what is needed under load. In a pool that is not full, a caller who finds all connections
// taken waits for a new one, though others are free again long before that; and a release that waits keeps everybody waiting.
func New(pool *pgxpool.Pool, o Options) *Backend {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Backend{
		tables: tables{st: newStatements(o.Schema), observer: o.Observer}, pool: pool, run: o.Run, logger: o.Logger, maxWaiters: maxWaiters,
		process: uuid.NewString(), asking: map[string]*turn{}, cohorts: map[uuid.UUID]*cohort{}, runs: map[string]*cohort{}, waiters: map[uuid.UUID]*waiter{}, closing: make(chan struct{}), inspect: make(chan struct{}, 1),
		joined: make(chan struct{}, 1), hints: make(chan uuid.UUID, maxHints),
	}
	if b.run == nil {
		b.run = ownRun(pool)
	}
	b.base, b.stop = context.WithCancel(context.Background())
	b.errands = b.newErrands()
	return b
}

// Close answers those that wait with [lock.ErrClosed] and ends what runs in the background. Locks stay as they are.
func (b *Backend) Close() {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	renewals := b.renewals
	b.mu.Unlock()
	if !first {
		return
	}
	close(b.closing)
	b.tasks.Go(b.endErrands)
	b.tasks.Go(b.settleAll)
	b.stop()
	b.tasks.Wait()
	if renewals != nil {
		renewals.Close()
	}
}

// Acquire implements [lock.Backend].
func (b *Backend) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return b.AcquireWith(ctx, r, Hooks{})
}

// AcquireWith is Acquire that commits more than the grant. Besides the errors of Acquire it returns [ErrAnswered], and
// what the hooks return.
func (b *Backend) AcquireWith(ctx context.Context, r lock.Request, h Hooks) (lock.Grant, error) {
	id, err := uuid.Parse(r.ID)
	if err != nil {
		return lock.Grant{}, fmt.Errorf("pglock: %w: the id must be a UUID", lock.ErrInvalid)
	}
	if r, err = r.Clean(); err != nil {
		return lock.Grant{}, fmt.Errorf("pglock: acquire: %w", err)
	}
	w := &waiter{
		backend: b, hooks: h, signal: make(chan struct{}, 1), granted: make(chan *lock.Grant, 1), wait: r.Wait, deadline: time.Now().Add(r.Wait),
		request: request{
			id: id, keys: r.Keys, owner: r.Owner, newOwner: r.NewOwner, ttl: r.TTL.Microseconds(), hold: r.MaxHold.Microseconds(), fingerprint: h.Request,
		},
	}
	if w.simple() {
		w.request.process = b.process
	}
	if h.Run == nil && r.Wait != lock.Forever {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, min(r.Wait, math.MaxInt64-askFor)+askFor, errNotDecided)
		defer cancel()
	}
	// Who asks while holding the lock of a cohort is known to hold it first: others may wait for that.
	if holder, err := uuid.Parse(r.Owner); err == nil && !r.NewOwner {
		if err := b.flush(ctx, b.pool, holder); err != nil {
			b.logger.DebugContext(ctx, "telling who has a lock failed, and is tried again", "owner", r.Owner, "error", err)
		}
	}
	return w.acquire(ctx)
}

// Renew implements [lock.Backend].
func (b *Backend) Renew(ctx context.Context, id string, ttl time.Duration) (lock.Grant, error) {
	pool, err := b.reserved()
	if err != nil {
		return lock.Grant{}, err
	}
	start := time.Now()
	u, err := uuid.Parse(id)
	if err != nil {
		return lock.Grant{}, lock.ErrLost
	}
	if err := b.flush(ctx, pool, u); err != nil {
		return lock.Grant{}, fmt.Errorf("pglock: renew: %w", err)
	}
	g, err := scanGrant(pool.QueryRow(ctx, b.st.Renew, u, ttl.Microseconds()))
	if errors.Is(err, pgx.ErrNoRows) {
		return lock.Grant{}, lock.ErrLost
	}
	if err != nil {
		return lock.Grant{}, fmt.Errorf("pglock: renew: %w", err)
	}
	g.Start = start
	return g, nil
}

// reserved is a pool of one connection that nothing but renewals uses.
func (b *Backend) reserved() (*pgxpool.Pool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, lock.ErrClosed
	}
	if b.renewals == nil {
		c := b.pool.Config()
		c.MinConns, c.MinIdleConns, c.MaxConns = 0, 0, 1
		pool, err := pgxpool.NewWithConfig(b.base, c)
		if err != nil {
			return nil, fmt.Errorf("pglock: %w", err)
		}
		b.renewals = pool
	}
	return b.renewals, nil
}

// RenewIn renews within the caller's transaction.
func (b *Backend) RenewIn(ctx context.Context, tx pgx.Tx, id uuid.UUID, ttl time.Duration) (lock.Grant, error) {
	g, err := scanGrant(tx.QueryRow(ctx, b.st.Renew, id, ttl.Microseconds()))
	if errors.Is(err, pgx.ErrNoRows) {
		return lock.Grant{}, lock.ErrLost
	}
	return g, err
}

// Released is what a release did.
type Released struct {
	Held  bool // false: the lock was no longer held
	Owner string
	For   time.Duration // how long the lock was held
	next  settled
}

// ReleaseIn releases within the caller's transaction, which must commit even if the lock was no longer held; then the
// caller passes what it returned to [Backend.Wake].
func (b *Backend) ReleaseIn(ctx context.Context, tx pgx.Tx, id uuid.UUID) (Released, error) {
	return b.release(ctx, tx, id, false)
}

// Wake tells those that a release has granted the lock to.
func (b *Backend) Wake(ctx context.Context, r Released) { b.follow(context.WithoutCancel(ctx), r.next) }

// Transact runs fn, again when a row moved that fn has read.
func Transact(ctx context.Context, run Run, name string, fn func(ctx context.Context, tx pgx.Tx) error) error {
	for n := 1; ; n++ {
		err := run(ctx, name, fn)
		if !errors.Is(err, errMoved) || n == maxMoves || ctx.Err() != nil {
			return err
		}
	}
}

// maxRounds bounds how often more keys are taken into one settling. The next look finds what is left then.
const maxRounds = 4

// follow wakes those that were granted, and settles what one transaction could not.
func (b *Backend) follow(ctx context.Context, s settled) {
	b.wake(s.woken)
	for round := 0; len(s.more) > 0 && round < maxRounds; round++ {
		before := s.more
		ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
		err := Transact(ctx, b.run, "lock settle", func(ctx context.Context, tx pgx.Tx) (err error) {
			s, err = b.settle(ctx, tx, before)
			return err
		})
		cancel()
		if err != nil {
			b.logger.DebugContext(ctx, "settling locks failed, and is tried again by those that wait", "error", err)
			return
		}
		b.wake(s.woken)
		if slices.Equal(s.more, before) {
			return
		}
	}
}

// resolve breaks the deadlocks that there are.
func (b *Backend) resolve(ctx context.Context) error {
	holders, waiters, err := b.graph(ctx, b.pool)
	if err != nil || len(lock.NewGraph(holders, waiters).Deadlocks()) == 0 {
		return err
	}
	var broken []lock.Deadlock
	var victims []uuid.UUID
	var keys []string
	if err := Transact(ctx, b.run, "lock deadlock", func(ctx context.Context, tx pgx.Tx) (err error) {
		broken, victims, keys, err = b.arbitrate(ctx, tx)
		return err
	}); err != nil {
		return err
	}
	b.remember(broken, time.Now())
	for _, d := range broken {
		if b.observer != nil {
			b.observer.Victim()
		}
		b.logger.WarnContext(ctx, "deadlock broken", "cycle", d.Cycle, "keys", d.Keys, "victim", d.Victim)
	}
	b.tell(victims)
	if len(keys) > 0 {
		slices.Sort(keys)
		b.follow(ctx, settled{more: slices.Compact(keys)})
	}
	return nil
}

// maxHolders bounds a snapshot.
const maxHolders = 10_000

// Snapshot implements [lock.Inspector]. It shows 10,000 holders at most.
func (b *Backend) Snapshot(ctx context.Context) (out lock.Snapshot, err error) {
	o := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, b.pool, o, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, b.st.ReadGrants, maxHolders)
		if err != nil {
			return err
		}
		out.Holders, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (lock.Grant, error) { return scanGrant(row) })
		if err != nil {
			return err
		}
		holders, waiters, err := b.graph(ctx, tx)
		if err != nil {
			return err
		}
		out.Waiters, out.Edges = waiters, lock.NewGraph(holders, waiters).Edges()
		err = tx.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&out.At)
		out.At = out.At.UTC()
		return err
	})
	if err != nil {
		return out, fmt.Errorf("pglock: snapshot: %w", err)
	}
	return out, nil
}

// Find implements [lock.Inspector].
func (b *Backend) Find(ctx context.Context, key string) (lock.Grant, bool, error) {
	g, err := scanGrant(b.pool.QueryRow(ctx, b.st.FindGrant, key))
	if errors.Is(err, pgx.ErrNoRows) {
		return g, false, nil
	}
	if err != nil {
		return g, false, fmt.Errorf("pglock: find: %w", err)
	}
	return g, true, nil
}

// Sweep deletes the rows of leases and waiting requests that ended long ago by themselves, after it has shortened those that
// were written by a clock that was ahead. Nothing depends on it but the size of the tables. It returns how many it deleted.
func (b *Backend) Sweep(ctx context.Context) (int, error) {
	rows, err := b.pool.Query(ctx, b.st.FindAhead)
	if err == nil {
		var ahead []uuid.UUID
		if ahead, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID]); err == nil {
			err = b.endAhead(ctx, b.pool, ahead)
		}
	}
	if err == nil {
		_, err = b.pool.Exec(ctx, b.st.SilenceWaiters)
	}
	if err != nil {
		return 0, fmt.Errorf("pglock: sweep: %w", err)
	}
	var total int64
	for _, s := range []struct {
		sql  string
		args []any
	}{
		{b.st.ExpiredLines, []any{forgetAfter.Microseconds()}},
		{b.st.SweepWaiters, []any{forgetAfter.Microseconds()}},
		{b.st.SweepQueue, nil},
	} {
		tag, err := b.pool.Exec(ctx, s.sql, s.args...)
		if err != nil {
			return int(total), fmt.Errorf("pglock: sweep: %w", err)
		}
		total += tag.RowsAffected()
	}
	return int(total), nil
}
