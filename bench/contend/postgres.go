package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/lock/pglock"
)

// poolOf opens a pool, with its connections opened beforehand.
func poolOf(ctx context.Context, o *options, size int) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(o.store)
	if err != nil {
		return nil, err
	}
	size = cmp.Or(o.pool, size)
	c.MaxConns, c.MinConns = int32(size), int32(size) //nolint:gosec // A small number.
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	return pool, pool.Ping(ctx)
}

func fairleadPostgres(ctx context.Context, o *options) (*side, error) {
	pool, err := poolOf(ctx, o, 4)
	if err != nil {
		return nil, err
	}
	m := newMetrics()
	b := pglock.New(pool, pglock.Options{Observer: m})
	return fairlead(b, m, func() {
		b.Close()
		pool.Close()
	}), nil
}

// leaseRow is what is written where no library is at hand: a row a key with an owner and the end of its lease, taken by an
// UPDATE that changes a row or doesn't, and tried again a millisecond later. A row that is taken isn't locked by trying.
func leaseRow(ctx context.Context, o *options) (*side, error) {
	const (
		makeRow = `INSERT INTO bench_leases (key) VALUES ($1) ON CONFLICT DO NOTHING`
		take    = `UPDATE bench_leases SET owner = $2, expires_at = clock_timestamp() + $3::bigint * interval '1 microsecond'
			WHERE key = $1 AND (owner IS NULL OR expires_at < clock_timestamp())`
		free = `UPDATE bench_leases SET owner = NULL WHERE key = $1 AND owner = $2`
	)
	pool, err := poolOf(ctx, o, 4)
	if err != nil {
		return nil, err
	}
	worker := func(ctx context.Context, key string) (acquire, error) {
		if _, err := pool.Exec(ctx, makeRow, key); err != nil {
			return nil, err
		}
		return func(ctx context.Context) (func(context.Context) error, error) {
			owner := uuid.New()
			for {
				tag, err := pool.Exec(ctx, take, key, owner, ttl.Microseconds())
				if err != nil {
					return nil, err
				}
				if tag.RowsAffected() == 1 {
					return func(ctx context.Context) error {
						tag, err := pool.Exec(ctx, free, key, owner)
						if err == nil && tag.RowsAffected() != 1 {
							err = errors.New("the lease was lost")
						}
						return err
					}, nil
				}
				if pause(ctx, time.Millisecond); ctx.Err() != nil {
					return nil, ctx.Err()
				}
			}
		}, nil
	}
	return &side{worker: worker, close: pool.Close}, nil
}

// advisory is pg_advisory_xact_lock: a transaction that holds the lock until it ends, and a connection as long as one
// waits or holds, so that each worker needs one.
func advisory(ctx context.Context, o *options) (*side, error) {
	pool, err := poolOf(ctx, o, o.workers)
	if err != nil {
		return nil, err
	}
	worker := func(_ context.Context, key string) (acquire, error) {
		return func(ctx context.Context) (func(context.Context) error, error) {
			tx, err := pool.Begin(ctx)
			if err != nil {
				return nil, err
			}
			if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, key); err != nil {
				return nil, errors.Join(err, rollback(ctx, tx))
			}
			return tx.Commit, nil
		}, nil
	}
	return &side{worker: worker, close: pool.Close}, nil
}

// rollback ends a transaction that may have been ended by its connection.
func rollback(ctx context.Context, tx pgx.Tx) error {
	err := tx.Rollback(context.WithoutCancel(ctx))
	if errors.Is(err, pgx.ErrTxClosed) {
		return nil
	}
	return err
}
