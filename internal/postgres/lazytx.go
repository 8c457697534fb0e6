package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// lazyTx is a transaction whose BEGIN travels with its first statements, which saves a round trip of the four that a
// batch of commands would take. Only what the stores use is there: the embedded interface is nil.
type lazyTx struct {
	pgx.Tx

	conn       *pgxpool.Conn
	accounts   *accountCache
	locked     []string        // accounts, as the cache was told
	book       *ledger.Book    // what is to be remembered of them; may be nil
	through    context.Context //nolint:containedctx // What COMMIT is sent under: it ends when the database is away.
	begun      bool
	ended      bool
	committing bool // COMMIT may have been sent
}

// lock tells the rest of the process that this transaction locks accounts, each of them once.
func (t *lazyTx) lock(ids []string) {
	t.accounts.lock(ids)
	t.locked = append(t.locked, ids...)
}

// unlock ends what lock began. The transaction has ended.
func (t *lazyTx) unlock(committed bool) {
	if !committed {
		t.book = nil
	}
	t.accounts.unlock(t.locked, t.book)
}

// sendAndCommit runs the queued statements and COMMIT in one round trip. The statements must fail by themselves where
// the transaction must not commit, since nobody looks at their results in between: see guarded.
func (t *lazyTx) sendAndCommit(_ context.Context, b *pgx.Batch) error {
	b.Queue("commit").Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != "COMMIT" {
			return pgx.ErrTxCommitRollback
		}
		return nil
	})
	// The caller's context no longer counts: giving up would only make the outcome unknown.
	ctx, cancel := context.WithTimeout(t.through, retryFor)
	defer cancel()
	t.committing = true
	err := t.SendBatch(ctx, b).Close() //nolint:contextcheck // It has the caller's values.
	t.ended = err == nil
	return err
}

// SendBatch implements [pgx.Tx].
func (t *lazyTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if !t.begun {
		t.begun = true
		b.QueuedQueries = slices.Insert(b.QueuedQueries, 0, &pgx.QueuedQuery{SQL: "begin"})
	}
	return t.conn.SendBatch(ctx, b)
}

// Query implements [pgx.Tx].
func (t *lazyTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	return t.conn.Query(ctx, sql, args...)
}

// QueryRow implements [pgx.Tx].
func (t *lazyTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.begin(ctx); err != nil {
		return failedRow{err}
	}
	return t.conn.QueryRow(ctx, sql, args...)
}

// Exec implements [pgx.Tx].
func (t *lazyTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.begin(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.conn.Exec(ctx, sql, args...)
}

// Conn implements [pgx.Tx].
func (t *lazyTx) Conn() *pgx.Conn { return t.conn.Conn() }

func (t *lazyTx) begin(ctx context.Context) error {
	if t.begun {
		return nil
	}
	t.begun = true
	_, err := t.conn.Exec(ctx, "begin")
	return err
}

// Commit implements [pgx.Tx]. It returns [pgx.ErrTxCommitRollback] when the server rolled back instead. Any other error
// that is not the server's own word leaves the outcome unknown.
func (t *lazyTx) Commit(ctx context.Context) error {
	if !t.begun || t.ended {
		return nil
	}
	t.ended, t.committing = true, true
	tag, err := t.conn.Exec(ctx, "commit")
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	return err
}

// Rollback implements [pgx.Tx]. After Commit it does nothing. A connection on which it fails is closed by the pool, and
// that rolls back too.
func (t *lazyTx) Rollback(ctx context.Context) error {
	if !t.begun || t.ended {
		return nil
	}
	t.ended = true
	_, err := t.conn.Exec(ctx, "rollback")
	return err
}

// failedRow is the row of a query that could not be sent.
type failedRow struct{ err error }

// Scan implements [pgx.Row].
func (r failedRow) Scan(...any) error { return r.err }
