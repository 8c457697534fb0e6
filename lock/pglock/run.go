package pglock

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

// Limits of the backend's own runs of transactions.
const (
	runFor       = 15 * time.Second // how long a transaction is run again
	runTimeout   = 10 * time.Second // of one run
	firstBackoff = 5 * time.Millisecond
	maxBackoff   = 500 * time.Millisecond
)

// runHere is the [Run] of those who bring none. A transaction whose COMMIT was not answered is run again: it recognises
// what it did by the request's id.
func (b *Backend) runHere(ctx context.Context, _ string, fn func(context.Context, pgx.Tx) error) error {
	deadline := time.Now().Add(runFor)
	pause := firstBackoff
	for {
		err := b.runOnce(ctx, fn)
		if err == nil || ctx.Err() != nil || !passing(err) || time.Now().After(deadline) {
			return err
		}
		if !pgkit.Sleep(ctx, pause/2+rand.N(pause)) { //nolint:gosec // Jitter needs no secrecy.
			return err
		}
		pause = min(2*pause, maxBackoff)
	}
}

func (b *Backend) runOnce(ctx context.Context, fn func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	// The pool destroys a connection that comes back within a transaction.
	defer conn.Release()
	tx := &lazyTx{conn: conn}
	if err := fn(ctx, tx); err != nil {
		if tx.begun {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
			defer cancel()
			_, _ = conn.Exec(undo, "rollback") // A connection on which it fails is closed, and that rolls back, too.
		}
		return err
	}
	if !tx.begun || tx.ended {
		return nil
	}
	tag, err := conn.Exec(ctx, "commit")
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	return err
}

// lazyTx is a transaction whose BEGIN travels with its first statements. It has only what is used here: the embedded
// interface is nil.
type lazyTx struct {
	pgx.Tx

	conn  *pgxpool.Conn
	begun bool
	ended bool // its COMMIT has travelled with its last statements
}

const begin = "begin isolation level read committed"

// SendBatch implements [pgx.Tx].
func (t *lazyTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if !t.begun {
		t.begun = true
		b.QueuedQueries = slices.Insert(b.QueuedQueries, 0, &pgx.QueuedQuery{SQL: begin})
	}
	return t.conn.SendBatch(ctx, b)
}

// last sends the last statements of a transaction, and with them its COMMIT where it is ours to send. None of them may
// need a look at what it did before that is committed; one that finds its row gone fails all of them, which is errMoved.
func last(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
	t, ours := tx.(*lazyTx)
	if ours {
		b.Queue("commit").Exec(func(tag tag) error {
			if tag.String() == "ROLLBACK" {
				return pgx.ErrTxCommitRollback
			}
			return nil
		})
	}
	err := tx.SendBatch(ctx, b).Close()
	if pgkit.Code(err) == pgkit.DivisionByZero { // How a statement says that a row was not there.
		return errMoved
	}
	if ours && err == nil {
		t.ended = true
	}
	return err
}

func (t *lazyTx) start(ctx context.Context) error {
	if t.begun {
		return nil
	}
	t.begun = true
	_, err := t.conn.Exec(ctx, begin)
	return err
}

// QueryRow implements [pgx.Tx].
func (t *lazyTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.start(ctx); err != nil {
		return failedRow{err}
	}
	return t.conn.QueryRow(ctx, sql, args...)
}

// Query implements [pgx.Tx].
func (t *lazyTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.start(ctx); err != nil {
		return nil, err
	}
	return t.conn.Query(ctx, sql, args...)
}

// Exec implements [pgx.Tx].
func (t *lazyTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.start(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.conn.Exec(ctx, sql, args...)
}

// failedRow is the row of a query that could not be sent.
type failedRow struct{ err error }

// Scan implements [pgx.Row].
func (r failedRow) Scan(...any) error { return r.err }

// passing reports failures that a later run may not meet: other transactions in the way, and connections that ended.
func passing(err error) bool {
	verdict, _ := pgkit.Classify(err, pgkit.QueryCanceled)
	return verdict != pgkit.Final
}
