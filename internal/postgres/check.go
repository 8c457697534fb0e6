package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

// Finding is something about the database that an operator should know.
type Finding struct {
	Check   string `json:"check"`
	Fatal   bool   `json:"fatal"` // a guarantee would be a lie on this database
	Message string `json:"message"`
	Remedy  string `json:"remedy"` // what to do about it
}

// Locked reports whether something can't be read because another session keeps a table locked.
func Locked(err error) bool {
	_, blocked := errors.AsType[*command.BlockedError](err)
	return blocked || isLockTimeout(err)
}

// Unread is the finding of a check that could not look, because another session keeps a table locked. [DB.Blocked] names that session.
func Unread(check, what string) Finding {
	return Finding{
		Check: check, Fatal: true, Message: what + ": another session keeps a table locked that it takes",
		Remedy: `end that session, which fairlead doctor --database-url names under "blocked" once it has lasted for 5 s`,
	}
}

// Checks are what [DB.Check] looks at.
var Checks = []string{ //nolint:gochecknoglobals // A constant, but for the type.
	"version", "encoding", "fsync", "full_page_writes", "synchronous_commit", "replication", "standby", "pooler", "engine", "costs", "partitions",
}

// Check looks at the settings that the guarantees rest on. An empty result is a clean bill.
func (db *DB) Check(ctx context.Context) ([]Finding, error) {
	var findings []Finding
	add := func(check string, fatal bool, remedy, format string, args ...any) {
		findings = append(findings, Finding{Check: check, Fatal: fatal, Message: fmt.Sprintf(format, args...), Remedy: remedy})
	}
	set := func(setting string) string { return "ALTER SYSTEM SET " + setting + "; SELECT pg_reload_conf()" }
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("postgres: check: %w", readError(err))
	}
	defer conn.Release()
	var (
		encoding, fsync, fullPages, synchronous, named string
		standby, seesOthers                            bool
		version, standbys, confirming                  int
	)
	err = conn.QueryRow(ctx, `SELECT current_setting('server_encoding'), current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
		pg_is_in_recovery(), current_setting('server_version_num')::integer, current_setting('synchronous_standby_names'),
		pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'), count(*), count(*) FILTER (WHERE sync_state IN ('sync', 'quorum'))
		FROM pg_stat_replication`).
		Scan(&encoding, &fsync, &fullPages, &synchronous, &standby, &version, &named, &seesOthers, &standbys, &confirming)
	if err != nil {
		return nil, fmt.Errorf("postgres: check: %w", readError(err))
	}
	const oldest = 140000
	if version < oldest {
		add("version", true, "move the data to PostgreSQL 14 or newer, with pg_upgrade or pg_dump", "PostgreSQL %d is older than 14", version/10000)
	}
	if encoding != "UTF8" {
		add("encoding", !inUTF8(db.url), remakeInUTF8, "the database's encoding is %s: it can't keep every text that a command may have", encoding)
	}
	if fsync == "off" {
		add("fsync", true, set("fsync = on"), "fsync is off: a power failure would lose acknowledged commands")
	}
	if fullPages == "off" {
		add("full_page_writes", true, set("full_page_writes = on"), "full_page_writes is off: a power failure could corrupt the database")
	}
	if synchronous == "off" {
		add("synchronous_commit", false, set("synchronous_commit = on")+"; look for one set on the role or database, too", "synchronous_commit is off: a crash may lose acknowledged commands")
	}
	if synchronous == "local" && named != "" {
		add("synchronous_commit", false, set("synchronous_commit = on")+"; look for one set on the role or database, too", "synchronous_commit is local: a failover may lose acknowledged commands")
	}
	switch {
	case named != "" && !seesOthers:
		add("replication", false, "GRANT pg_read_all_stats TO the role of the database URL",
			"this role can't see whether the standbys of synchronous_standby_names are connected")
	// No promise is broken then: commits wait, unless they wait for nobody.
	case named != "" && confirming == 0 && synchronous != "off" && synchronous != "local":
		add("replication", false, "connect such a standby, or change synchronous_standby_names",
			"synchronous_standby_names is %q, and no such standby is connected: commits wait for it for ever", named)
	case named == "" && standbys > 0:
		add("replication", false, "name the standbys in synchronous_standby_names, or accept that: docs/operations/servers.md",
			"replication is asynchronous: a failover may lose acknowledged commands")
	}
	if standby {
		add("standby", false, "give the primary's URL, or promote this one", "this is a standby: commands will fail until it is promoted")
	}
	if db.pooler != "" { // Others than those for sessions are refused by Open.
		add("pooler", false, "better give PostgreSQL's own address; else let the pooler give each server as many connections as that may open "+
			"(docs/operations/runbook.md, Connections), and keep server_reset_query = DISCARD ALL",
			"there is a connection pooler with pool_mode = session")
	}
	for _, l := range db.engine.Lacks() {
		if l.Capability == pgkit.ReadCommitted {
			add("engine", true, "see docs/operations/engines.md", "transactions are not READ COMMITTED (%s): what they read behind a lock may be older than the lock", l.Why)
			continue
		}
		add("engine", false, "see docs/operations/engines.md", "there is no %s (%s); instead, %s", l.What, l.Why, l.Instead)
	}
	const checkedByRow = `SELECT EXISTS (SELECT FROM pg_constraint WHERE conname = 'auction_standing_unique_amount' AND NOT condeferrable)`
	var byRow bool
	if err := conn.QueryRow(ctx, checkedByRow).Scan(&byRow); err != nil {
		return nil, fmt.Errorf("postgres: check: %w", readError(err))
	}
	if byRow {
		add("engine", false, "see docs/operations/engines.md", "there were no deferrable unique constraints when the schema was made; instead, unique amounts are checked row by row")
	}
	slow, err := costs(ctx, conn.Conn())
	if err != nil {
		return nil, fmt.Errorf("postgres: check: %w", readError(err))
	}
	for _, cost := range slow {
		add("costs", false, cost.remedy, "%s", cost.what)
	}
	if !seesOthers && db.engine.Has(pgkit.RowVersions) {
		add("costs", false, "GRANT pg_read_all_stats TO the role of the database URL: docs/operations/snapshots.md",
			"this role can't see for how long sessions of other roles have held a snapshot: beside a long one, as that of a dump, commands on the same accounts get slower and slower, and no alert tells")
	}
	var history []finding
	if db.engine.Has(pgkit.Partitions) {
		history, err = checkPartitions(ctx, conn.Conn())
		switch {
		case isLockTimeout(err):
			findings = append(findings, Unread("partitions", "the tables of the history were not looked at"))
		case err != nil:
			return nil, fmt.Errorf("postgres: check: %w", readError(err))
		}
	}
	for _, f := range history {
		add("partitions", false, f.remedy, "%s", f.what)
	}
	return findings, nil
}

// selectUnconfirmed finds the connected standbys that commits wait for and that have not confirmed the log up to here.
const selectUnconfirmed = `SELECT application_name, state, extract(epoch FROM clock_timestamp() - reply_time)::bigint,
	pg_wal_lsn_diff(pg_current_wal_flush_lsn(), flush_lsn)::bigint
	FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum') AND flush_lsn < pg_current_wal_flush_lsn() ORDER BY 1`

// Unconfirmed names the connected standbys that a commit may wait for. It is for a primary where one has waited for too long: shortly
// after any other write, they have not confirmed it either.
func (db *DB) Unconfirmed(ctx context.Context) ([]Finding, error) {
	standbys, err := query(ctx, db, pgx.RowToStructByPos[unconfirmed], selectUnconfirmed)
	if err != nil {
		return nil, fmt.Errorf("postgres: look for standbys that do not confirm: %w", err)
	}
	findings := make([]Finding, len(standbys))
	for i, s := range standbys {
		findings[i] = Finding{
			Check: "replication", Fatal: true, Message: fmt.Sprintf("the synchronous standby %s is connected (%s), but its last reply is %d s old and it has not "+
				"confirmed the last %d bytes of the log: commits wait for it", s.Name, s.State, s.Seconds, s.Bytes),
			Remedy: "wake or restart that standby; or take it out of synchronous_standby_names, and from then on a failover may lose acknowledged commands",
		}
	}
	return findings, nil
}

// unconfirmed is a standby that lacks the end of the log.
type unconfirmed struct {
	Name, State    string
	Seconds, Bytes int64
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
