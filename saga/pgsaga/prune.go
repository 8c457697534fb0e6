package pgsaga

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

// Ended implements [saga.Store].
func (l *Log) Ended(ctx context.Context, age time.Duration, spare []uuid.UUID, limit int) (ids []uuid.UUID, err error) {
	err = l.upkeep(ctx, "saga.ended", func(ctx context.Context, tx pgx.Tx) error {
		ids, err = pgkit.Rows(ctx, tx, pgx.RowTo[uuid.UUID], l.sql.ended, age.Microseconds(), spare, limit)
		return err
	})
	return ids, err
}

// Delete implements [saga.Store].
func (l *Log) Delete(ctx context.Context, ids []uuid.UUID) (deleted int, err error) {
	err = l.upkeep(ctx, "saga.delete", func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, l.sql.remove, ids)
		deleted = int(tag.RowsAffected())
		return err
	})
	return deleted, err
}

// Forget implements [saga.Participant]. Where the marks are kept by somebody else, see [Options.Committed], it does nothing:
// they are theirs to delete.
func (d *Database) Forget(ctx context.Context, ids []uuid.UUID) error {
	if d.foreign {
		return nil
	}
	return d.run.run(ctx, "saga.forget", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, d.schema.in(`DELETE FROM @saga_marks WHERE saga = ANY ($1)`), ids)
		return err
	})
}
