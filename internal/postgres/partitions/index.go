package partitions

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// byID is the index by which the newest entries are found. It has the least and the greatest id of each megabyte of a table (a BRIN index), in a
// few kilobytes, so that commands write it only now and then.
const (
	byID          = Entries + "_by_id"
	selectByID    = `SELECT to_regclass('` + byID + `') IS NOT NULL`
	makeByID      = `CREATE INDEX IF NOT EXISTS ` + byID + ` ON ONLY ` + Entries + ` USING brin (id)`
	selectWithout = `SELECT c.oid::regclass::text FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
		WHERE i.inhparent = '` + Entries + `'::regclass AND NOT i.inhdetachpending AND NOT EXISTS (
			SELECT FROM pg_index AS x JOIN pg_inherits AS xi ON xi.inhrelid = x.indexrelid WHERE x.indrelid = c.oid AND xi.inhparent = to_regclass('` + byID + `'))
		ORDER BY 1`
)

// Unindexed returns the partitions of the entries that lack the index of their ids. Those that are made later have it.
func Unindexed(ctx context.Context, q Querier) ([]string, error) {
	return rows(ctx, q, pgx.RowTo[string], selectWithout)
}

// Index makes that index where it is missing. Commands go on meanwhile: each partition is read once, which takes a second for some millions of rows. It
// waits for the transactions that have used the partition to end. Any number of processes may do this at once, and one that was interrupted is done again.
//
// Errors: those of [Convert].
func Index(ctx context.Context, conn *pgx.Conn) error {
	for tries := 1; ; tries++ {
		err := indexAll(ctx, conn)
		switch pgkit.Code(err) {
		case duplicateTable, duplicateObject, undefinedTable, undefinedObject, pgkit.UniqueViolation, notReady, deadlock, updated, attached: // Another process makes it, too.
		default:
			return err
		}
		if tries == indexTries || !wait.For(ctx, lockPause) {
			return err
		}
	}
}

const (
	// indexTries bound for how long an index is waited for that another process makes.
	indexTries     = 50
	notReady       = "55000"
	deadlock       = "40P01"
	updated        = "XX000" // "tuple concurrently updated"
	attached       = "2BP01" // It was left half made a moment ago, and belongs to the table now.
	undefinedTable = "42P01"
	// selectState tells whether the index of a partition is there, whether it works, and whether somebody is making it.
	selectState = `SELECT indisvalid, EXISTS (SELECT FROM pg_stat_progress_create_index AS p WHERE p.index_relid = indexrelid) FROM pg_index WHERE indexrelid = to_regclass($1)`
)

func indexAll(ctx context.Context, conn *pgx.Conn) error {
	there, err := rows(ctx, conn, pgx.RowTo[bool], selectByID)
	if err != nil {
		return err
	}
	if !there[0] {
		if err := inTx(ctx, conn, LockTimeout, makeByID); err != nil {
			return fmt.Errorf("make %s: %w", byID, err)
		}
	}
	without, err := Unindexed(ctx, conn)
	for _, name := range without {
		if err := indexIDs(ctx, conn, name); err != nil {
			return fmt.Errorf("make the index of ids of %s: %w", name, err)
		}
	}
	return err
}

// indexIDs makes the index of a partition. One that a process has left half made is made anew; what another one is making is not touched.
func indexIDs(ctx context.Context, conn *pgx.Conn, name string) error {
	of := name + "_by_id"
	found, err := rows(ctx, conn, pgx.RowToStructByPos[struct{ Valid, Making bool }], selectState, of)
	if err != nil {
		return err
	}
	statements := []string{fmt.Sprintf(`CREATE INDEX CONCURRENTLY %s ON %s USING brin (id)`, of, name)}
	switch {
	case len(found) > 0 && found[0].Valid:
		statements = nil
	case len(found) > 0 && !found[0].Making:
		statements = append([]string{`DROP INDEX CONCURRENTLY IF EXISTS ` + of}, statements...)
	}
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return inTx(ctx, conn, LockTimeout, fmt.Sprintf(`ALTER INDEX %s ATTACH PARTITION %s`, byID, of))
}
