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

// ExtendHistory makes the next partitions of the history's tables when the last ones end soon, and turns the table of holds. It returns how many parts of
// tables it has made.
func (db *DB) ExtendHistory(ctx context.Context) (made int, err error) {
	if !db.engine.Has(pgkit.Partitions) {
		return 0, nil
	}
	var now time.Time
	if err = db.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err == nil {
		made, err = partitions.Extend(ctx, db.pool, now)
		turned, failed := partitions.TurnHolds(ctx, db.pool, now)
		made, err = made+turned, errors.Join(err, failed)
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
