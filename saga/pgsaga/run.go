package pgsaga

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

// Run executes fn in one READ COMMITTED transaction and commits. It may call fn more than once, each time after everything
// the earlier calls did was undone or, where the answer to COMMIT was lost, perhaps not: what runs here recognises its own
// earlier effect. It runs fn again after unique violations. name is for metrics.
type Run func(ctx context.Context, name string, fn func(context.Context, pgx.Tx) error) error

// Read calls fn, which only reads, again where that may help.
type Read func(ctx context.Context, fn func(context.Context) error) error

// Limits of the package's own runs of transactions.
const (
	runFor         = 15 * time.Second // how long a transaction is run again
	runTimeout     = 60 * time.Second // of one run
	cleanupTimeout = 5 * time.Second
)

// runner runs transactions on a pool.
type runner struct{ pgkit.Runner }

// newRunner returns a runner whose transactions wait for a lock no longer than lockTimeout; 0 leaves that to the session. A
// transaction that has not got its lock in time is not run again here, because transactions in different databases may wait
// for each other.
func newRunner(pool *pgxpool.Pool, lockTimeout time.Duration) *runner {
	begin := "begin isolation level read committed"
	if lockTimeout > 0 {
		begin += fmt.Sprintf("; set local lock_timeout = %d", max(1, lockTimeout.Milliseconds()))
	}
	return &runner{pgkit.Runner{Pool: pool, Begin: begin, Nested: true, For: runFor, Final: []string{pgkit.LockTimeout, pgkit.QueryCanceled}}}
}

func (r *runner) run(ctx context.Context, name string, fn func(context.Context, pgx.Tx) error) error {
	_, err := r.Run(ctx, name, fn)
	return err
}

// query reads rows outside of a transaction.
func query[T any](ctx context.Context, read Read, pool *pgxpool.Pool, scan pgx.RowToFunc[T], sql string, args ...any) (out []T, err error) {
	err = read(ctx, func(ctx context.Context) error {
		rows, err := pool.Query(ctx, sql, args...)
		if err == nil {
			out, err = pgx.CollectRows(rows, scan)
		}
		return err
	})
	return out, err
}

func read(ctx context.Context, fn func(context.Context) error) error {
	_, err := pgkit.Read(ctx, nil, runTimeout, fn)
	return err
}
