package pgsaga

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

// Ended implements [saga.Store].
func (l *Log) Ended(ctx context.Context, age time.Duration, spare []uuid.UUID, limit int) ([]uuid.UUID, error) {
	return rowsOf(ctx, l.upkeep, "saga.ended", pgx.RowTo[uuid.UUID], l.schema.in(endedSagas), age.Microseconds(), pgkit.Texts(spare), limit)
}

// Delete implements [saga.Store].
func (l *Log) Delete(ctx context.Context, ids []uuid.UUID) (deleted int, err error) {
	err = l.upkeep(ctx, "saga.delete", func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, l.schema.in(removeSagas), pgkit.Texts(ids))
		deleted = int(tag.RowsAffected())
		return err
	})
	return deleted, err
}

// Forget implements [saga.Participant]. It does nothing with [Options.Committed]: whoever keeps marks of their own deletes them.
func (d *Database) Forget(ctx context.Context, ids []uuid.UUID) error {
	if d.foreign {
		return nil
	}
	return d.run.run(ctx, "saga.forget", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, d.schema.in(`DELETE FROM @saga_marks WHERE saga = ANY ($1::text[]::uuid[])`), pgkit.Texts(ids))
		return err
	})
}
