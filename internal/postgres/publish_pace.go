package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// pauseExpired pauses the targets of attempts that were refused for their authorization.
func pauseExpired(ctx context.Context, tx pgx.Tx, batch []publish.Conclusion, results []publish.AttemptResult) error {
	var (
		ids      [][16]byte
		versions []int64
	)
	for i := range batch {
		if batch[i].Pause && results[i] == publish.ResultFailed {
			ids, versions = append(ids, batch[i].ID), append(versions, batch[i].Version)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, pauseTargets, ids, versions)
	return err
}

// repaceTargets writes the new pace of the targets that have said something about it.
func repaceTargets(ctx context.Context, tx pgx.Tx, batch []publish.Conclusion, results []publish.AttemptResult,
	repace func(*publish.Conclusion, publish.Pace, time.Time) publish.Pace,
) error {
	telling := func(i int) bool {
		c := &batch[i]
		return results[i] != "" && (c.Throttled || c.Slowed && c.Class == publish.Delivered)
	}
	var ids [][16]byte
	for i := range batch {
		if telling(i) && !slices.Contains(ids, [16]byte(batch[i].Target)) {
			ids = append(ids, batch[i].Target)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	var (
		b     pgx.Batch
		found []publish.Target
		now   time.Time
	)
	b.Queue(lockTargets, ids).Query(collect(&found, scanTarget))
	b.Queue(selectNow).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	if err := pgkit.Send(ctx, tx, &b); err != nil {
		return err
	}
	n := len(found)
	intervals, refusals, last := make([]int64, n), make([]int, n), make([]*uuid.UUID, n)
	next, open := make([]*time.Time, n), make([]*time.Time, n)
	ids = ids[:0]
	for k := range found {
		t := &found[k]
		for i := range batch {
			if batch[i].Target == t.ID && telling(i) {
				t.Pace = repace(&batch[i], t.Pace, now)
			}
		}
		ids = append(ids, t.ID)
		intervals[k], refusals[k], last[k] = t.Pace.Interval.Microseconds(), t.Pace.Refusals, t.Pace.Last
		next[k], open[k] = t.Pace.NextAt, t.Pace.OpenUntil
	}
	b = pgx.Batch{}
	expectRows(b.Queue(updateTargets, ids, intervals, refusals, last, next, open), n, errLostRow)
	return pgkit.Send(ctx, tx, &b)
}
