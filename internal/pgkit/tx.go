package pgkit

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Tx is a transaction whose BEGIN travels with its first statements, which saves a round trip of the four that a batch of
// commands would take. Unless [Runner.Nested] says otherwise, it has only the methods below, Commit and Rollback being the
// runner's: the embedded interface is nil.
type Tx struct {
	pgx.Tx

	// Ended is called when the transaction has ended; nil: nobody is.
	Ended func(committed bool)
	// Unsure says that the answer to COMMIT of an earlier run was lost.
	Unsure bool

	conn       *pgxpool.Conn
	through    context.Context //nolint:containedctx // COMMIT is sent under it: it ends when the database is away.
	opening    []string        // BEGIN, and what goes along with it
	patience   time.Duration   // bounds the wait for the answer to COMMIT
	begun      bool
	ended      bool
	committing bool // COMMIT may have been sent
}

// SendAndCommit runs the queued statements and COMMIT in one round trip. The statements must fail by themselves where the
// transaction must not commit, since nobody looks at their results in between.
func (t *Tx) SendAndCommit(_ context.Context, b *pgx.Batch) error {
	b.Queue("commit").Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != "COMMIT" {
			return pgx.ErrTxCommitRollback
		}
		return nil
	})
	// The caller's context no longer counts: giving up would only make the outcome unknown.
	ctx, cancel := context.WithTimeout(t.through, t.patience)
	defer cancel()
	t.committing = true
	err := t.SendBatch(ctx, b).Close() //nolint:contextcheck // It has the caller's values.
	t.ended = err == nil
	return err
}

// SendBatch implements [pgx.Tx].
func (t *Tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if !t.begun {
		t.begun = true
		for i, sql := range t.opening {
			b.QueuedQueries = slices.Insert(b.QueuedQueries, i, &pgx.QueuedQuery{SQL: sql})
		}
	}
	return t.conn.SendBatch(ctx, b)
}

// Query implements [pgx.Tx].
func (t *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	return t.conn.Query(ctx, sql, args...)
}

// QueryRow implements [pgx.Tx].
func (t *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.begin(ctx); err != nil {
		return failedRow{err}
	}
	return t.conn.QueryRow(ctx, sql, args...)
}

// Exec implements [pgx.Tx].
func (t *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.begin(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.conn.Exec(ctx, sql, args...)
}

// Conn implements [pgx.Tx].
func (t *Tx) Conn() *pgx.Conn { return t.conn.Conn() }

// Open adds a statement to those that BEGIN takes along. It is called before any other method.
func (t *Tx) Open(sql string) { t.opening = append(t.opening, sql) }

func (t *Tx) begin(ctx context.Context) error {
	if t.begun {
		return nil
	}
	return t.SendBatch(ctx, &pgx.Batch{}).Close()
}

// commit returns [pgx.ErrTxCommitRollback] when the server rolled back instead. Any other error that is not the server's own
// word leaves the outcome unknown.
func (t *Tx) commit(ctx context.Context, statement string) error {
	if !t.begun || t.ended {
		return nil
	}
	t.ended, t.committing = true, true
	tag, err := t.conn.Exec(ctx, statement)
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	return err
}

// rollback does nothing after a commit. A connection on which it fails is closed by the pool, which rolls back too.
func (t *Tx) rollback(ctx context.Context) {
	if !t.begun || t.ended {
		return
	}
	t.ended = true
	_, _ = t.conn.Exec(ctx, "rollback")
}

// failedRow is the row of a query that could not be sent.
type failedRow struct{ err error }

// Scan implements [pgx.Row].
func (r failedRow) Scan(...any) error { return r.err }

// Send runs the queued statements in one round trip and gives each its callback; the first error ends it.
func Send(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, b).Close()
}

// Texts are ids as a parameter of type text[], to be cast to uuid[]: pgx has to know a parameter's SQL type to encode a []uuid.UUID,
// and does not in mode exec.
func Texts(ids []uuid.UUID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.String()
	}
	return out
}

// Rows reads rows in a transaction.
func Rows[T any](ctx context.Context, tx pgx.Tx, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}
