package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/internal/archive"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
)

// ExtendHistory makes the next partitions of the history's tables when the last ones end soon, and turns the table of holds. Tables that were in use for long
// when the schema was brought up to date are put into partitions now. It returns how many parts of tables it has made.
func (db *DB) ExtendHistory(ctx context.Context) (made int, err error) {
	if !db.engine.Has(pgkit.Partitions) {
		return 0, nil
	}
	var now time.Time
	if err = db.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err == nil {
		converted := partitions.Convert(ctx, db.pool, now)
		if converted != nil && db.observer != nil {
			db.observer.Fallback("history", "in_one_piece")
		}
		extended, failed := partitions.Extend(ctx, db.pool, now)
		turned, unturned := partitions.TurnHolds(ctx, db.pool, now)
		made, err = extended+turned, errors.Join(converted, failed, unturned)
	}
	if err != nil {
		err = fmt.Errorf("postgres: extend the history: %w", readError(err))
	}
	return made, err
}

// Archive is [archive.Run] on this database.
func (db *DB) Archive(ctx context.Context, o archive.Options) (archive.Result, error) {
	return archive.Run(ctx, db.pool, o)
}

// CheckArchives is [archive.Check] on this database.
func (db *DB) CheckArchives(ctx context.Context, directory string, progress func(archive.Progress)) (archive.Checked, error) {
	return archive.Check(ctx, db.pool, directory, progress)
}
