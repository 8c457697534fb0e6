package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// An old snapshot keeps every row version since then: hot rows, such as accounts and auctions, then have a chain of versions that
// each statement walks. See docs/operations/snapshots.md. The alert FairleadSnapshotOld is later than the doctor.
const (
	oldSnapshot             = time.Minute
	oldSnapshotTransactions = 1_000_000
	maxOldSnapshots         = 10 // that the doctor names
	// A snapshot that is older than either has accounts begin chapters. PostgreSQL tells the age of slots and standbys in transactions alone; the snapshot of a standby
	// with hot_standby_feedback is normally some seconds old.
	chaptersFrom             = 5 * time.Second
	chaptersFromTransactions = 20_000
)

// selectSnapshotHolders finds what PostgreSQL keeps dead row versions of this database for. VACUUM's own snapshots hold nothing
// back. Slots and standbys have no time, only a transaction.
const selectSnapshotHolders = `SELECT kind, pid, name, state, query, seconds, transactions FROM (
	SELECT 'session' AS kind, pid, coalesce(application_name, '') AS name, coalesce(state, '') AS state, left(coalesce(query, ''), 200) AS query,
		coalesce(extract(epoch FROM clock_timestamp() - xact_start), 0)::double precision AS seconds,
		greatest(age(backend_xmin), age(backend_xid))::bigint AS transactions
	FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
		AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
	UNION ALL SELECT 'prepared', 0, gid, 'prepared', '', extract(epoch FROM clock_timestamp() - prepared)::double precision, age(transaction)
	FROM pg_prepared_xacts WHERE database = current_database()
	UNION ALL SELECT 'slot', coalesce(active_pid, 0), slot_name, CASE WHEN active THEN 'active' ELSE 'inactive' END, '', 0, age(xmin)
	FROM pg_replication_slots WHERE xmin IS NOT NULL
	UNION ALL SELECT 'standby', pid, coalesce(application_name, ''), coalesce(state, ''), '', 0, age(backend_xmin)
	FROM pg_stat_replication WHERE backend_xmin IS NOT NULL
) AS holders ORDER BY seconds DESC, transactions DESC`

// SnapshotHolder is a session, a prepared transaction, a replication slot or a standby whose snapshot or open transaction PostgreSQL
// keeps row versions for.
type SnapshotHolder struct {
	Kind               string // session, prepared, slot or standby
	PID                int32
	Name, State, Query string
	Seconds            float64 // 0 where PostgreSQL does not know
	Transactions       int64   // that have begun since
}

// SnapshotHolders lists them, oldest first. Of other roles' sessions only a role with pg_read_all_stats sees the age.
func (db *DB) SnapshotHolders(ctx context.Context) ([]SnapshotHolder, error) {
	holders, err := query(ctx, db, pgx.RowToStructByPos[SnapshotHolder], selectSnapshotHolders)
	if err != nil {
		return nil, fmt.Errorf("postgres: look for old snapshots: %w", err)
	}
	return holders, nil
}

// SampleSnapshots is [DB.SnapshotHolders], and has accounts that change begin chapters while a snapshot is held, from the first call on that finds it to the
// first that does not. Without a snapshot PostgreSQL removes dead versions soon, and a chapter would only cost an entry in the index.
func (db *DB) SampleSnapshots(ctx context.Context) ([]SnapshotHolder, error) {
	holders, err := db.SnapshotHolders(ctx)
	if err == nil {
		db.chapters.Store(slices.ContainsFunc(holders, func(h SnapshotHolder) bool {
			return h.Seconds >= chaptersFrom.Seconds() || h.Transactions >= chaptersFromTransactions
		}))
	}
	return holders, err
}

// OldSnapshots names the oldest of those that are old enough to slow commands down. They keep no server from starting.
func (db *DB) OldSnapshots(ctx context.Context) (findings []Finding, err error) {
	holders, err := db.SnapshotHolders(ctx)
	if err != nil {
		return nil, err
	}
	for i := range holders {
		if finding, old := holders[i].finding(); old && len(findings) < maxOldSnapshots {
			findings = append(findings, finding)
		}
	}
	return findings, nil
}

// finding is what the doctor says of a holder that is old.
func (h *SnapshotHolder) finding() (Finding, bool) {
	if h.Seconds < oldSnapshot.Seconds() && h.Transactions < oldSnapshotTransactions {
		return Finding{}, false
	}
	f := Finding{Check: "snapshots"}
	switch h.Kind {
	case "prepared":
		f.Message = fmt.Sprintf("the prepared transaction %s has been open for %.0f s", h.Name, h.Seconds)
		f.Remedy = "have its coordinator settle it (fairlead sagas in-doubt), or run ROLLBACK PREPARED if nobody knows it"
	case "slot":
		f.Message = fmt.Sprintf("the replication slot %s (%s) holds a snapshot that is %d transactions old", h.Name, h.State, h.Transactions)
		f.Remedy = fmt.Sprintf("end the long query on its standby, turn hot_standby_feedback off there, or run SELECT pg_drop_replication_slot('%s') if nobody needs it", h.Name)
	case "standby":
		f.Message = fmt.Sprintf("the standby %s (%s) holds a snapshot that is %d transactions old", h.Name, h.State, h.Transactions)
		f.Remedy = "end the long query on that standby, or turn hot_standby_feedback off there"
	default:
		f.Message = fmt.Sprintf("session %d (%s, %s) has held a transaction for %.0f s; its statement: %s", h.PID, h.Name, h.State, h.Seconds, h.Query)
		f.Remedy = fmt.Sprintf("let it end, or run SELECT pg_terminate_backend(%d)", h.PID)
	}
	f.Message += ": hot rows keep every version since then, and commands get slower"
	f.Remedy += "; docs/operations/snapshots.md"
	return f, true
}
