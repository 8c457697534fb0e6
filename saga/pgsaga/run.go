package pgsaga

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
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
	firstBackoff   = 5 * time.Millisecond
	maxBackoff     = 500 * time.Millisecond
	maxReads       = 3
)

// runner runs transactions on a pool.
type runner struct {
	pool  *pgxpool.Pool
	begin string
}

func newRunner(pool *pgxpool.Pool, lockTimeout time.Duration) runner {
	begin := "begin isolation level read committed"
	if lockTimeout > 0 {
		begin += fmt.Sprintf("; set local lock_timeout = %d", max(1, lockTimeout.Milliseconds()))
	}
	return runner{pool: pool, begin: begin}
}

func (r runner) run(ctx context.Context, _ string, fn func(context.Context, pgx.Tx) error) error {
	deadline, pause := time.Now().Add(runFor), firstBackoff
	for {
		err := r.once(ctx, fn)
		if err == nil || ctx.Err() != nil || !passing(err) || time.Now().After(deadline) || !sleep(ctx, pause) {
			return err
		}
		pause = min(2*pause, maxBackoff)
	}
}

func (r runner) once(ctx context.Context, fn func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	tx, err := r.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: r.begin})
	if err != nil {
		return err
	}
	defer func() {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		_ = tx.Rollback(undo) // A connection on which it fails is closed, and that rolls back, too.
	}()
	if err := fn(ctx, tx); err != nil {
		return err
	}
	// What was sent is seen through: giving up in the middle would only make its outcome unknown.
	return tx.Commit(context.WithoutCancel(ctx))
}

func (r runner) read(ctx context.Context, fn func(context.Context) error) error {
	for try := 1; ; try++ {
		err := fn(ctx)
		if err == nil || try == maxReads || !passing(err) || !sleep(ctx, firstBackoff) {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d/2 + rand.N(d)) //nolint:gosec // Jitter needs no secrecy.
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// passing reports failures that a later run may not meet: other transactions in the way, and connections that ended.
func passing(err error) bool {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pgErr.Code {
		case "40001", "40P01", "23505", "25P03", "53300", "25006":
			return true
		}
		return strings.HasPrefix(pgErr.Code, "57P") || strings.HasPrefix(pgErr.Code, "08")
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	var netErr net.Error
	return errors.As(err, &netErr) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		strings.Contains(err.Error(), "conn closed")
}
