package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

// expectRows makes the queued statement fail with err unless it affects exactly n rows.
func expectRows(q *pgx.QueuedQuery, n int, err error) {
	q.Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(n) {
			return fmt.Errorf("%w: %d of %d rows", err, tag.RowsAffected(), n)
		}
		return nil
	})
}

// writes says how a statement whose count of rows matters is checked.
type writes int

const (
	countedWrites writes = iota // by its count, before COMMIT is sent
	guardedWrites               // by itself, because COMMIT is sent along
)

// queue queues a statement that must write exactly n rows, in one of its two forms; surprise is what another count means
// where it is counted. The guarded form takes n as its last parameter, and divides by zero unless the statement inside it
// returns as many rows: a transaction that is committed in the same round trip is checked by that.
func (how writes) queue(b *pgx.Batch, counted, guarded string, n int, surprise error, args ...any) {
	if how == guardedWrites {
		b.Queue(guarded, append(args, n)...)
		return
	}
	expectRows(b.Queue(counted, args...), n, surprise)
}

// isGuard reports whether a guarded statement refused, or a row was there that was not expected.
func isGuard(err error) bool {
	code := pgkit.Code(err)
	return code == pgkit.DivisionByZero || code == pgkit.UniqueViolation
}

// isKeyKnown reports whether an idempotency key was stored that has a record already: a client has sent a request again.
func isKeyKnown(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == pgkit.UniqueViolation && pgErr.TableName == "idempotency_keys"
}

// send runs the queued statements in one round trip and gives each its callback; the first error ends it.
func send(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, b).Close()
}
