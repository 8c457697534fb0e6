package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Finding is something about the database that an operator should know.
type Finding struct {
	Check   string `json:"check"`
	Fatal   bool   `json:"fatal"` // a guarantee would be a lie on this database
	Message string `json:"message"`
}

// Checks are what [DB.Check] looks at.
var Checks = []string{ //nolint:gochecknoglobals // A constant, but for the type.
	"version", "fsync", "full_page_writes", "synchronous_commit", "replication", "standby", "pooler",
}

// Check looks at the settings that the guarantees rest on. An empty result is a clean bill.
func (db *DB) Check(ctx context.Context) ([]Finding, error) {
	var findings []Finding
	add := func(check string, fatal bool, format string, args ...any) {
		findings = append(findings, Finding{Check: check, Fatal: fatal, Message: fmt.Sprintf(format, args...)})
	}
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("postgres: check: %w", readError(err))
	}
	defer conn.Release()
	var (
		fsync, fullPages, synchronous, named   string
		standby, seesStandbys                  bool
		version, backend, standbys, confirming int
	)
	err = conn.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
		pg_is_in_recovery(), current_setting('server_version_num')::integer, pg_backend_pid(), current_setting('synchronous_standby_names'),
		pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'), count(*), count(*) FILTER (WHERE sync_state IN ('sync', 'quorum'))
		FROM pg_stat_replication`).
		Scan(&fsync, &fullPages, &synchronous, &standby, &version, &backend, &named, &seesStandbys, &standbys, &confirming)
	if err != nil {
		return nil, fmt.Errorf("postgres: check: %w", readError(err))
	}
	const oldest = 140000
	if version < oldest {
		add("version", true, "PostgreSQL %d is older than 14", version/10000)
	}
	if fsync == "off" {
		add("fsync", true, "fsync is off: a power failure would lose acknowledged commands")
	}
	if fullPages == "off" {
		add("full_page_writes", true, "full_page_writes is off: a power failure could corrupt the database")
	}
	if synchronous == "off" {
		add("synchronous_commit", false, "synchronous_commit is off: a crash may lose acknowledged commands")
	}
	if synchronous == "local" && named != "" {
		add("synchronous_commit", false, "synchronous_commit is local: a failover may lose acknowledged commands")
	}
	switch {
	case named != "" && !seesStandbys:
		add("replication", false, "this role can't see whether the standbys of synchronous_standby_names are connected: grant it pg_read_all_stats")
	case named != "" && confirming == 0:
		add("replication", true, "synchronous_standby_names is %q, and no such standby is connected: commits wait for it for ever", named)
	case named == "" && standbys > 0:
		add("replication", false, "replication is asynchronous: a failover may lose acknowledged commands")
	}
	if standby {
		add("standby", false, "this is a standby: commands will fail until it is promoted")
	}
	// A pooler gives its clients another process id than the server's. In transaction mode nothing here needs the session, but the
	// session's timeouts and planner settings that we ask for at connect may not be in force.
	if int(conn.Conn().PgConn().PID()) != backend {
		add("pooler", false, "a connection pooler is in between: set statement_timeout, lock_timeout, idle_in_transaction_session_timeout and enable_seqscan, "+
			"enable_bitmapscan, enable_hashjoin, enable_mergejoin and jit (all of them off) on the database role")
	}
	return findings, nil
}

// Setting is a server setting that the doctor shows.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Settings lists the settings that matter for durability and concurrency.
func (db *DB) Settings(ctx context.Context) ([]Setting, error) {
	return query(ctx, db, pgx.RowToStructByPos[Setting], `SELECT name, current_setting(name) FROM unnest(ARRAY[
		'server_version', 'fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names', 'wal_sync_method',
		'max_connections', 'max_prepared_transactions', 'default_transaction_isolation']) AS s (name)`)
}
