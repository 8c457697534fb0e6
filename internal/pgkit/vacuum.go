package pgkit

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// selectVacuumed lists the tables of a schema, or of the first of the search path, that somebody vacuums or analyzes, and deadlock_timeout.
	selectVacuumed = `SELECT DISTINCT c.oid::regclass::text, (SELECT setting::bigint FROM pg_settings WHERE name = 'deadlock_timeout')
		FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE l.locktype = 'relation' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
			AND l.mode = 'ShareUpdateExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid()
			AND c.relkind = 'r' AND n.nspname = coalesce(nullif($1, ''), current_schema()) ORDER BY 1`
	// vacuumNotice is how much longer than deadlock_timeout is waited, for the autovacuum to end.
	vacuumNotice = 500 * time.Millisecond
)

// AskVacuum has autovacuum leave the tables of a schema, or of the first of the search path. It keeps them from a change that waits for their
// locks only briefly, which on a large table may take hours. PostgreSQL ends an autovacuum when a session has waited for it as long as deadlock_timeout,
// and begins it again a minute later or so; one that prevents the wraparound of transaction numbers stays (PostgreSQL's documentation, "Automatic
// Vacuuming"). So this waits for a lock that only such work has to wait for, and gives it back at once. Commands read and write meanwhile.
//
// It helps where it can: the caller tries to have its lock in any case. A VACUUM by hand stays as well.
func AskVacuum(ctx context.Context, db Beginner, schema string) {
	type vacuumed struct {
		Table    string
		Deadlock int64 // ms
	}
	var tables []vacuumed
	_ = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) (err error) {
		tables, err = Rows(ctx, tx, pgx.RowToStructByPos[vacuumed], selectVacuumed, schema)
		return err
	})
	for _, t := range tables {
		_ = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			patience := time.Duration(t.Deadlock)*time.Millisecond + vacuumNotice
			_, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = %d`, patience.Milliseconds()))
			if err == nil {
				_, err = tx.Exec(ctx, `LOCK TABLE ONLY `+t.Table+` IN SHARE UPDATE EXCLUSIVE MODE`)
			}
			return err
		})
	}
}
