package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/leader"
)

// Limits of the connection that leases are kept on. What takes longer is of no use to a lease, and a session that
// nobody listens to any more must not go on holding it.
const (
	leaseTimeout     = 2 * time.Second // of a call as a whole, connecting included; callers bring shorter ones
	leaseLockTimeout = time.Second
	// leaseCleanup bounds the wait for broken connections at the end.
	leaseCleanup = 5 * time.Second
)

// Leases keeps leases in the table of that name, by the database's clock. It has one connection of its own outside of
// the pool, made when it is first needed and again whenever it broke, so that a pool in which everything is taken costs
// no leader its lease. Calls take turns on it. It is safe for concurrent use.
type Leases struct {
	config *pgx.ConnConfig
	turn   chan struct{} // holds a value while a call is under way
	conn   *pgx.Conn     // nil when there is none; owned by whoever has the turn
	broken []*pgx.Conn   // that may still be closing; owned likewise
}

var _ leader.Lease = (*Leases)(nil)

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
	RETURNING term
)
SELECT term, 0::bigint FROM taken
UNION ALL
SELECT 0, greatest(0, ceil(1e6 * extract(epoch FROM expires_at - clock_timestamp())))::bigint
FROM leases WHERE name = $1 AND NOT EXISTS (SELECT FROM taken)`

// Acquire implements [leader.Lease]. A lease that has expired goes to whoever asks first, its last holder included.
func (l *Leases) Acquire(ctx context.Context, name, holder string, ttl time.Duration) (term int64, ok bool, wait time.Duration, err error) {
	err = l.call(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		var left int64
		err := conn.QueryRow(ctx, acquireLease, name, holder, ttl.Microseconds()).Scan(&term, &left)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		wait = time.Duration(left) * time.Microsecond
		return err
	})
	if err != nil {
		return 0, false, 0, fmt.Errorf("postgres: acquire lease %s: %w", name, err)
	}
	return term, term > 0, wait, nil
}

const renewLease = `
UPDATE leases SET expires_at = clock_timestamp() + $4::bigint * interval '1 microsecond'
WHERE name = $1 AND holder = $2 AND term = $3 AND expires_at > clock_timestamp()`

// Renew implements [leader.Lease].
func (l *Leases) Renew(ctx context.Context, name, holder string, term int64, ttl time.Duration) (ok bool, err error) {
	err = l.call(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, renewLease, name, holder, term, ttl.Microseconds())
		ok = tag.RowsAffected() == 1
		return err
	})
	if err != nil {
		return false, fmt.Errorf("postgres: renew lease %s: %w", name, err)
	}
	return ok, nil
}

// The epoch is past whatever happens to the clock.
const resignLease = `
UPDATE leases SET expires_at = to_timestamp(0)
WHERE name = $1 AND holder = $2 AND term = $3 AND expires_at > clock_timestamp()`

// Resign implements [leader.Lease].
func (l *Leases) Resign(ctx context.Context, name, holder string, term int64) error {
	err := l.call(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, resignLease, name, holder, term)
		if err == nil && tag.RowsAffected() != 1 {
			return leader.ErrLeaseLost
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("postgres: resign lease %s: %w", name, err)
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
// the connection, except for a refusal to resign.
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
	case errors.Is(err, leader.ErrLeaseLost):
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
