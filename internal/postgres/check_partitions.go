package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
)

// settledWithin is for how long a turn of the table of holds may be under way before that is worth a word.
const settledWithin = 24 * time.Hour

// turnedFor is how long ago the last turn of the table of holds may be. There is one each month.
const turnedFor = 40 * 24 * time.Hour

// checkPartitions looks whether the history has partitions for what is written now, whether the table of holds is turned, and whether an archive was
// begun that has not ended. Nothing tells one that is under way from one that was left: its process has no session of its own.
func checkPartitions(ctx context.Context, conn *pgx.Conn) ([]finding, error) {
	var migrated bool
	if err := conn.QueryRow(ctx, `SELECT to_regclass('archives') IS NOT NULL`).Scan(&migrated); err != nil || !migrated {
		return nil, err
	}
	all, err := partitions.List(ctx, conn, partitions.Tables()...)
	if err != nil {
		return nil, err
	}
	var found []finding
	ends := map[string]time.Time{}
	for _, p := range all {
		if !p.Rest {
			ends[p.Table] = partitions.Time(p.To)
		}
	}
	now := time.Now()
	for _, table := range partitions.Tables() {
		if end, there := ends[table]; !there {
			found = append(found, finding{fmt.Sprintf("the table %s is in one piece", table), "end whoever keeps it locked, such as a prepared transaction, and run fairlead migrate up"})
		} else if end.Before(now) {
			found = append(found, finding{
				fmt.Sprintf("the last partition of %s ended at %s: rows go to %[1]s_rest, and can't be archived", table, end.Format(time.RFC3339)),
				"servers make partitions each hour: look for \"history partitions\" in their logs, and end what keeps the table locked",
			})
		}
	}
	without, err := partitions.Unindexed(ctx, conn)
	if err != nil {
		return nil, err
	}
	if len(without) > 0 {
		found = append(found, finding{
			fmt.Sprintf("without the index of their ids are %s: each check of the books reads them as a whole", strings.Join(without, ", ")),
			"run fairlead migrate up, as the role that owns the tables",
		})
	}
	const unfinished = `SELECT number, began_at, host, directory FROM archives WHERE dropped_at IS NULL`
	var number int
	var began time.Time
	var host, directory string
	rows, err := conn.Query(ctx, unfinished)
	if err != nil {
		return nil, err
	}
	_, err = pgx.ForEachRow(rows, []any{&number, &began, &host, &directory}, func() error {
		found = append(found, finding{
			fmt.Sprintf("archive %d was begun at %s and has not ended: it is under way, or was left unfinished", number, began.UTC().Format(time.RFC3339)),
			fmt.Sprintf("unless fairlead archive runs on %s, run it there again with --to %s: it goes on where it was", host, directory),
		})
		return nil
	})
	if err != nil || len(all) == 0 {
		return found, err
	}
	turned, err := checkTurns(ctx, conn)
	return append(found, turned...), err
}

// checkTurns looks whether the table of holds was turned, and the turn settled.
func checkTurns(ctx context.Context, conn *pgx.Conn) (found []finding, err error) {
	var migrated bool
	if err := conn.QueryRow(ctx, `SELECT to_regclass('hold_turns') IS NOT NULL`).Scan(&migrated); err != nil || !migrated {
		return nil, err
	}
	const selectLate = `SELECT number, turned_at, settled_at IS NOT NULL FROM hold_turns WHERE number = (SELECT max(number) FROM hold_turns)
		AND CASE WHEN settled_at IS NULL THEN turned_at < clock_timestamp() - $1::interval ELSE settled_at < clock_timestamp() - $2::interval END`
	rows, err := conn.Query(ctx, selectLate, settledWithin, turnedFor)
	if err != nil {
		return nil, err
	}
	var number int
	var at time.Time
	var settled bool
	_, err = pgx.ForEachRow(rows, []any{&number, &at, &settled}, func() error {
		what := fmt.Sprintf("turn %d of the table of holds was begun at %s and is not settled", number, at.UTC().Format(time.RFC3339))
		if settled {
			what = fmt.Sprintf("the table of holds was last turned at %s: what was closed since can't be archived", at.UTC().Format(time.RFC3339))
		}
		found = append(found, finding{what, "servers do it each hour: look for \"history partitions\" in their logs, and end what keeps the table, a hold or its account locked"})
		return nil
	})
	return found, err
}
