package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/lock"
)

// Limits of the connection that leases are kept on. What takes longer is of no use to a lease, and a session that
// nobody listens to any more must not go on holding it.
const (
	leaseTimeout     = 2 * time.Second // of a call as a whole, connecting included; callers bring shorter ones
	leaseLockTimeout = time.Second
	// leaseCleanup bounds the wait for broken connections at the end.
	leaseCleanup = 5 * time.Second
)

// Leases is a [lock.Backend] of single keys for the elections of the house: the leader that closes rounds is elected on it.
// Its leases are in the table of that name, expire by the database's clock, and are nobody else's business: neither do
// clients of the lock service see them, nor can they take them. It has one connection of its own outside of the pool, made
// when it is first needed and again whenever it broke, so that a pool in which everything is taken costs no leader its
// lease. Calls take turns on it, and those that wait look twice a second, in no order. It is safe for concurrent use.
type Leases struct {
	config *pgx.ConnConfig
	turn   chan struct{} // holds a value while a call is under way
	conn   *pgx.Conn     // nil when there is none; owned by whoever has the turn
	broken []*pgx.Conn   // that may still be closing; owned likewise
}

var _ lock.Backend = (*Leases)(nil)

// NewLeases returns the leases of db's database. The caller closes them.
func NewLeases(db *DB) *Leases {
	config := db.pool.Config().ConnConfig // A copy.
	config.RuntimeParams["application_name"] = "fairlead leases"
	config.RuntimeParams["statement_timeout"] = strconv.FormatInt(leaseTimeout.Milliseconds(), 10)
	config.RuntimeParams["lock_timeout"] = strconv.FormatInt(leaseLockTimeout.Milliseconds(), 10)
	return &Leases{config: config, turn: make(chan struct{}, 1)}
}

// acquireLease takes a lease that nobody has or that has expired, which is looked at again, with a later reading of the
// clock, once the row is locked. As long as it is held nothing is written or locked, so that those who wait cost little.
// Its answer is one row with the new term, or one with the microseconds that are left; none when somebody else has just
// made the row.
const acquireLease = `
WITH taken AS (
	INSERT INTO leases (name, holder, term, expires_at)
	SELECT $1, $2, 1, clock_timestamp() + $3::bigint * interval '1 microsecond'
	WHERE NOT EXISTS (SELECT FROM leases WHERE name = $1 AND expires_at > clock_timestamp())
	ON CONFLICT (name) DO UPDATE SET
		holder = excluded.holder, term = leases.term + 1, expires_at = clock_timestamp() + $3::bigint * interval '1 microsecond'
		WHERE leases.expires_at <= clock_timestamp()
	RETURNING term, expires_at
)
SELECT term, 0::bigint, expires_at FROM taken
UNION ALL
SELECT 0, greatest(0, ceil(1e6 * extract(epoch FROM expires_at - clock_timestamp())))::bigint, expires_at
FROM leases WHERE name = $1 AND NOT EXISTS (SELECT FROM taken)`

// Waits of those that wait for a lease.
const (
	// maxLeaseWait is the longest pause between two tries: so much later is a resigned lease noticed.
	maxLeaseWait = 500 * time.Millisecond
	// minLeaseWait keeps a lease that is for ever about to expire from being asked for in a tight loop.
	minLeaseWait = 10 * time.Millisecond
	// minLeaseTry is the least time that a try is given, to connect in, though the TTL be short.
	minLeaseTry = 500 * time.Millisecond
)

// Acquire implements [lock.Backend] for one key and no maximum hold; else it returns a [lock.ErrInvalid]. A lease that has
// expired goes to whoever asks first. What a call has taken whose answer was lost has to expire.
func (l *Leases) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	if len(r.Keys) != 1 || r.MaxHold != 0 {
		return lock.Grant{}, fmt.Errorf("postgres: acquire lease: %w: one key, and no maximum hold", lock.ErrInvalid)
	}
	began := time.Now()
	for waited := false; ; waited = true {
		g, left, err := l.try(ctx, r)
		if err != nil {
			return lock.Grant{}, fmt.Errorf("postgres: acquire lease %s: %w", r.Keys[0], err)
		}
		if left == 0 {
			g.Waited = waited
			return g, nil
		}
		// A little is added by chance, lest many try in step.
		pause := min(max(left, minLeaseWait), maxLeaseWait) + rand.N(minLeaseWait) //nolint:gosec // Jitter needs no secrecy.
		if r.Wait >= 0 {
			rest := r.Wait - time.Since(began)
			if rest <= 0 {
				return lock.Grant{}, lock.ErrHeld
			}
			pause = min(pause, rest)
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return lock.Grant{}, context.Cause(ctx)
		}
	}
}

// try takes a lease that is free; left says for how long it still is another's, 0: it was taken. An answer that comes later
// than half a TTL would leave too little of the lease to be worth it.
func (l *Leases) try(ctx context.Context, r lock.Request) (g lock.Grant, left time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, max(r.TTL/2, minLeaseTry))
	defer cancel()
	start := time.Now()
	err = l.call(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		var term, us int64
		var expires time.Time
		err := conn.QueryRow(ctx, acquireLease, r.Keys[0], r.ID, r.TTL.Microseconds()).Scan(&term, &us, &expires)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			left = minLeaseWait // Somebody else has just made the row.
			return nil
		case err != nil:
			return err
		case term == 0:
			left = max(time.Duration(us)*time.Microsecond, 1)
		}
		g = lock.Grant{ID: r.ID, Owner: r.Owner, Tokens: map[string]int64{r.Keys[0]: term}, TTL: r.TTL, ExpiresAt: expires.UTC(), Start: start}
		return nil
	})
	return g, left, err
}

const renewLease = `
UPDATE leases SET expires_at = clock_timestamp() + $2::bigint * interval '1 microsecond'
WHERE holder = $1 AND expires_at > clock_timestamp() RETURNING name, term, expires_at`

// Renew implements [lock.Backend]. A TTL is needed, as none is stored.
func (l *Leases) Renew(ctx context.Context, id string, ttl time.Duration) (g lock.Grant, err error) {
	if !lock.ValidTTL(ttl) {
		return g, fmt.Errorf("postgres: renew lease: %w: a TTL is needed", lock.ErrInvalid)
	}
	start := time.Now()
	err = l.call(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		var name string
		var term int64
		var expires time.Time
		if err := conn.QueryRow(ctx, renewLease, id, ttl.Microseconds()).Scan(&name, &term, &expires); err != nil {
			return lostWithoutRow(err)
		}
		g = lock.Grant{ID: id, Tokens: map[string]int64{name: term}, TTL: ttl, ExpiresAt: expires.UTC(), Start: start}
		return nil
	})
	if err != nil {
		return lock.Grant{}, fmt.Errorf("postgres: renew lease: %w", err)
	}
	return g, nil
}

func lostWithoutRow(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return lock.ErrLost
	}
	return err
}

// The epoch is past whatever happens to the clock. The term stays known.
const resignLease = `
UPDATE leases SET expires_at = to_timestamp(0) WHERE holder = $1 AND expires_at > clock_timestamp()`

// Release implements [lock.Backend].
func (l *Leases) Release(ctx context.Context, id string) error {
	err := l.call(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, resignLease, id)
		if err == nil && tag.RowsAffected() != 1 {
			return lock.ErrLost
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("postgres: resign lease: %w", err)
	}
	return nil
}

// Close gives the connection up. A call after it makes a new one.
func (l *Leases) Close(ctx context.Context) error {
	if err := l.take(ctx); err != nil {
		return fmt.Errorf("postgres: close leases: %w", err)
	}
	defer l.leave()
	ctx, cancel := context.WithTimeout(ctx, leaseCleanup)
	defer cancel()
	var err error
	if l.conn != nil {
		err = l.conn.Close(ctx)
		l.conn = nil
	}
	for _, conn := range l.broken {
		select {
		case <-conn.PgConn().CleanupDone():
		case <-ctx.Done():
			return errors.Join(err, fmt.Errorf("postgres: a connection for leases is still closing: %w", ctx.Err()))
		}
	}
	l.broken = nil
	return err
}

func (l *Leases) take(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Leases) leave() { <-l.turn }

// call runs one statement in its own transaction. Whatever fails takes the connection with it, as the reason might be
// the connection, except for a lease that is lost.
func (l *Leases) call(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	if err := l.take(ctx); err != nil {
		return err
	}
	defer l.leave()
	if l.conn == nil {
		conn, err := pgx.ConnectConfig(ctx, l.config)
		if err != nil {
			return readError(err)
		}
		l.conn = conn
	}
	custom := l.conn.PgConn().CustomData()
	delete(custom, replicationWarning)
	err := f(ctx, l.conn)
	switch {
	case errors.Is(err, lock.ErrLost):
		return err
	case err == nil && custom[replicationWarning] == true:
		return errNotReplicated // A failover could lose this term, and give it out again.
	case err != nil:
		l.discard(ctx)
		return readError(err)
	}
	return nil
}

// discard closes the connection without waiting for a server that may not answer.
func (l *Leases) discard(ctx context.Context) {
	// A connection whose last call ran out of time is closing already, in the background.
	if !l.conn.IsClosed() {
		_ = l.conn.Close(ctx) // What it is closed for was an error already.
	}
	l.broken = slices.DeleteFunc(append(l.broken, l.conn), func(conn *pgx.Conn) bool {
		select {
		case <-conn.PgConn().CleanupDone():
			return true
		default:
			return false
		}
	})
	l.conn = nil
}
