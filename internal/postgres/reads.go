package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

const (
	// readTimeout bounds a read by keys, unless the database may be silent for longer, scanTimeout one that goes over whole tables. Callers in
	// a hurry bring a deadline.
	readTimeout = 10 * time.Second
	scanTimeout = 15 * time.Minute
)

// pooled is where a read gets its connection: a [DB] has those of commands, for what a command, the leader or the background
// waits for; its reads have those of everybody else.
type pooled interface {
	// read runs a read on one of the connections, or a transaction's worth of them. It may run more than once. what names what is read.
	read(ctx context.Context, what string, timeout time.Duration, read func(context.Context, *pgxpool.Pool) error) error
}

func (db *DB) read(ctx context.Context, _ string, timeout time.Duration, read func(context.Context, *pgxpool.Pool) error) error {
	return reading(ctx, db.presence, timeout, func(ctx context.Context) error { return read(ctx, db.pool) })
}

// reads are the connections of those who only look. However long they are kept, nothing else needs them.
type reads struct {
	pool     *pgxpool.Pool
	presence *pgkit.Presence
	locked   *lockedReads // nil: they have no limit of their own for the wait for a lock
	replica  *replica     // nil: there is none
}

func (r reads) read(ctx context.Context, what string, timeout time.Duration, read func(context.Context, *pgxpool.Pool) error) error {
	if r.replica.read(ctx, timeout, read) {
		return nil
	}
	return reading(ctx, r.presence, timeout, func(ctx context.Context) error {
		return r.locked.read(ctx, what, func(ctx context.Context) error { return read(ctx, r.pool) })
	})
}

// query reads rows outside of a transaction, each statement being its own snapshot. Failures of the connection are marked, so
// that a reader is answered "unavailable" and not "internal error".
func query[T any](ctx context.Context, from pooled, scan pgx.RowToFunc[T], sql string, args ...any) (out []T, err error) {
	err = from.read(ctx, sql, readTimeout, func(ctx context.Context, pool *pgxpool.Pool) error {
		rows, err := pool.Query(ctx, sql, args...)
		if err == nil {
			out, err = pgx.CollectRows(rows, scan)
		}
		return err
	})
	return out, err
}

// queryOne is query for one row; it returns absent where there is none.
func queryOne[T any](ctx context.Context, from pooled, absent error, scan pgx.RowToFunc[T], sql string, args ...any) (out T, err error) {
	found, err := query(ctx, from, scan, sql, args...)
	switch {
	case err != nil:
		return out, err
	case len(found) == 0:
		return out, absent
	}
	return found[0], nil
}

// snapshot runs reads that must agree with each other, in one read-only transaction. read may run more than once. what names what is read.
func (r reads) snapshot(ctx context.Context, what string, timeout time.Duration, read func(context.Context, pgx.Tx) error) error {
	o := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return r.read(ctx, what, timeout, func(ctx context.Context, pool *pgxpool.Pool) error {
		return pgx.BeginTxFunc(ctx, pool, o, func(tx pgx.Tx) error { return read(ctx, tx) })
	})
}

// reading is [pgkit.Read] that marks what it reports as unavailable.
func reading(ctx context.Context, presence *pgkit.Presence, timeout time.Duration, read func(context.Context) error) error {
	outcome, err := pgkit.Read(ctx, presence, timeout, read)
	if outcome == pgkit.Unavailable {
		return command.Unavailable(lockedOut(err, nil))
	}
	return err
}

// errEmpty is returned when a query that always has a row has none.
var errEmpty = errors.New("a query without its row")
