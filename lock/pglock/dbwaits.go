package pglock

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// DatabaseWait is a session of PostgreSQL that waits for a lock of PostgreSQL's own: a row's, a table's, an advisory one.
// Those have nothing to do with the leases of this package, but for what they may hold up.
type DatabaseWait struct {
	PID         int32
	Application string
	// Kind is what is waited for, in PostgreSQL's words: "transactionid" for a row that another transaction has written,
	// "tuple", "relation", "advisory", …
	Kind     string
	Mode     string // such as "ShareLock" or "ExclusiveLock"
	Relation string // "" unless the lock is one on a relation of this database, or on a part of it
	// Since is when the wait began, by the database's clock.
	Since time.Time
	// Statement is the beginning of what waits. It is empty where the database's role may not see it.
	Statement string
	// Blockers are the sessions in the way, those that wait in front included.
	Blockers []DatabaseBlocker
}

// DatabaseBlocker is a session that others wait for.
type DatabaseBlocker struct {
	PID         int32 // 0: a prepared transaction, which has no session
	Application string
	State       string // such as "active" or "idle in transaction"
	// TransactionSince is when its transaction began, by the database's clock; zero where that can't be seen.
	TransactionSince time.Time
	Statement        string // the beginning of its last one; may have ended
}

const (
	// maxDatabaseWaits bounds the sessions listed, and statementLength what is shown of a statement, in characters.
	maxDatabaseWaits = 200
	statementLength  = 300
)

// readDatabaseWaits has one row for each pair of a session that waits and one that it waits for. The locks are listed once:
// asking pg_blocking_pids stops the lock manager for a moment, so that only the sessions that wait are asked about.
const readDatabaseWaits = `
WITH waiting AS (
	SELECT DISTINCT ON (l.pid) l.pid, l.locktype, l.mode, l.relation, l.waitstart
	FROM pg_locks l WHERE NOT l.granted AND l.pid IS NOT NULL AND l.pid <> pg_backend_pid()
	ORDER BY l.pid, l.waitstart
), chosen AS (
	SELECT w.*, a.application_name, a.query, a.datid, coalesce(w.waitstart, a.query_start, clock_timestamp()) AS since
	FROM waiting w JOIN pg_stat_activity a ON a.pid = w.pid
	WHERE a.datname = current_database() ORDER BY since, w.pid LIMIT $1
)
SELECT s.pid, coalesce(s.application_name, ''), s.locktype, s.mode, coalesce(s.relation::regclass::text, ''), s.since,
	left(coalesce(s.query, ''), $2), b.pid, coalesce(a.application_name, ''), coalesce(a.state, ''), a.xact_start, left(coalesce(a.query, ''), $2)
FROM chosen s LEFT JOIN LATERAL (SELECT DISTINCT u.pid FROM unnest(pg_blocking_pids(s.pid)) AS u (pid)) b ON true
LEFT JOIN pg_stat_activity a ON a.pid = b.pid
ORDER BY s.since, s.pid, b.pid`

// DatabaseWaits lists the sessions of the database that wait for PostgreSQL's own locks, longest first and 200 at most. It
// only reads. A wait that ends while it is read may come without blockers.
func DatabaseWaits(ctx context.Context, q Querier) ([]DatabaseWait, error) {
	rows, err := q.Query(ctx, readDatabaseWaits, maxDatabaseWaits, statementLength)
	if err != nil {
		return nil, fmt.Errorf("pglock: database waits: %w", err)
	}
	var out []DatabaseWait
	var (
		w     DatabaseWait
		b     DatabaseBlocker
		pid   *int32
		began *time.Time
	)
	into := []any{&w.PID, &w.Application, &w.Kind, &w.Mode, &w.Relation, &w.Since, &w.Statement, &pid, &b.Application, &b.State, &began, &b.Statement}
	_, err = pgx.ForEachRow(rows, into, func() error {
		if n := len(out); n == 0 || out[n-1].PID != w.PID {
			w.Since = w.Since.UTC()
			out = append(out, w)
		}
		if pid == nil {
			return nil
		}
		b.PID, b.TransactionSince = *pid, time.Time{}
		if began != nil {
			b.TransactionSince = began.UTC()
		}
		last := &out[len(out)-1]
		last.Blockers = append(last.Blockers, b)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("pglock: database waits: %w", err)
	}
	return out, nil
}
