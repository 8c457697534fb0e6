package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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

// send runs the queued statements in one round trip and gives each its callback; the first error ends it.
func send(ctx context.Context, tx pgx.Tx, b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, b).Close()
}
