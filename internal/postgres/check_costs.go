package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// costly are settings that make every command slower, each with the values that do and what they cost. Numbers are in the unit that
// pg_settings names.
var costly = []struct { //nolint:gochecknoglobals // A constant, but for the type.
	name string
	is   func(value string) bool
	cost string
}{
	{"autovacuum", equals("off"), "tables and indexes grow without end"},
	{"checkpoint_completion_target", belowPart(0.9), "checkpoints write in bursts, and commits wait for the disk meanwhile"},
	{"checkpoint_timeout", below(60), "checkpoints come so often that each commit writes whole pages to the log"}, // seconds
	{"commit_delay", above(0), "every commit waits for others, and commands are batched already"},                 // microseconds
	{"log_duration", equals("on"), "every statement is logged"},
	{"log_min_duration_statement", equals("0"), "every statement is logged"},
	{"log_statement", func(v string) bool { return v == "all" || v == "mod" }, "every write is logged"},
	{"max_wal_size", below(256), "checkpoints come so often that each commit writes whole pages to the log"}, // MB
	{"shared_buffers", below(4096), "little of the tables stays in memory"},                                  // pages of 8 kB
	// PostgreSQL 14 has only this method, and calls it on.
	{"wal_compression", func(v string) bool { return v == "pglz" || v == "on" }, "after a checkpoint, commands wait while their session compresses whole pages; lz4 is faster, and off fastest"},
	{"synchronous_commit", equals("remote_apply"), "each commit waits until standbys have applied it, which no promise needs; on is enough"},
	{"zero_damaged_pages", equals("on"), "damaged pages are emptied without a word"},
}

func equals(want string) func(string) bool { return func(value string) bool { return value == want } }

func below(least int64) func(string) bool {
	return func(value string) bool {
		n, err := strconv.ParseInt(value, 10, 64)
		return err == nil && n < least
	}
}

func belowPart(least float64) func(string) bool {
	return func(value string) bool {
		part, err := strconv.ParseFloat(value, 64)
		return err == nil && part < least
	}
}

func above(most int64) func(string) bool {
	return func(value string) bool {
		n, err := strconv.ParseInt(value, 10, 64)
		return err == nil && n > most
	}
}

// finding is what an operator should know, and what to do about it.
type finding struct{ what, remedy string }

const (
	resetIt  = "reset it with ALTER SYSTEM, or where the role or database has it: docs/operations/postgresql.md"
	enlarge  = "ALTER SYSTEM SET max_wal_size = '%dMB'; SELECT pg_reload_conf(), pg_stat_reset_shared('%s'), pg_stat_reset_shared('wal'); the last two reset the counters: docs/operations/postgresql.md"
	logFills = "max_wal_size is %d MB: since %s, %d of %d checkpoints began because the log had reached it before checkpoint_timeout (%s). " +
		"After a checkpoint, the first change of each page writes the whole page to the log"
)

// costs lists the settings that make commands slower than they need be.
func costs(ctx context.Context, conn *pgx.Conn) (found []finding, err error) {
	names := make([]string, len(costly))
	for i := range costly {
		names[i] = costly[i].name
	}
	rows, err := conn.Query(ctx, `SELECT name, setting FROM pg_settings WHERE name = ANY ($1)`, names)
	if err != nil {
		return nil, err
	}
	settings := map[string]string{}
	var name, value string
	if _, err := pgx.ForEachRow(rows, []any{&name, &value}, func() error { settings[name] = value; return nil }); err != nil {
		return nil, err
	}
	for _, c := range costly {
		if value, ok := settings[c.name]; ok && c.is(value) {
			found = append(found, finding{fmt.Sprintf("%s is %s: %s", c.name, value, c.cost), resetIt})
		}
	}
	early, err := earlyCheckpoints(ctx, conn)
	if err != nil {
		return nil, err
	}
	return append(found, early...), nil
}

const (
	// earlyAtLeast is the number of early checkpoints that the doctor reports.
	earlyAtLeast = 10
	// earlyShare: the doctor stays silent when more than this many checkpoints began by time for each early one. Most servers have quiet hours.
	earlyShare = 3
	// earlyBytes: an early checkpoint comes after at least max_wal_size / earlyBytes of log. PostgreSQL counts it together with those
	// that a command requested, such as CHECKPOINT or DROP DATABASE, and only the log's size tells them apart.
	earlyBytes = 3

	whichCheckpoints = `SELECT CASE WHEN to_regclass('pg_catalog.pg_stat_wal') IS NULL THEN ''
		WHEN to_regclass('pg_catalog.pg_stat_checkpointer') IS NOT NULL THEN 'checkpointer'
		WHEN to_regclass('pg_catalog.pg_stat_bgwriter') IS NOT NULL THEN 'bgwriter' ELSE '' END`
	// countCheckpoints lacks the columns and the view, which depend on PostgreSQL's version. So it can't be prepared without them.
	countCheckpoints = `(SELECT %s, coalesce(s.stats_reset, pg_postmaster_start_time()), w.wal_bytes::float8,
		(SELECT setting::bigint FROM pg_settings WHERE name = 'max_wal_size'), current_setting('checkpoint_timeout')
		FROM pg_catalog.pg_stat_%s AS s, pg_catalog.pg_stat_wal AS w)`
)

// earlyCheckpoints reports that the log often reaches max_wal_size before checkpoint_timeout has passed. An engine without the counters gets
// no report.
func earlyCheckpoints(ctx context.Context, conn *pgx.Conn) ([]finding, error) {
	var counter string
	if err := conn.QueryRow(ctx, whichCheckpoints).Scan(&counter); err != nil || counter == "" {
		return nil, err
	}
	columns := "s.checkpoints_timed, s.checkpoints_req"
	if counter == "checkpointer" { // Since PostgreSQL 17.
		columns = "s.num_timed, s.num_requested"
	}
	var (
		timed, requested, limit int64
		since                   time.Time
		bytes                   float64
		timeout                 string
	)
	err := conn.QueryRow(ctx, fmt.Sprintf(countCheckpoints, columns, counter)).Scan(&timed, &requested, &since, &bytes, &limit, &timeout)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil || !tooEarly(timed, requested, bytes, limit) {
		return nil, err
	}
	return []finding{{
		fmt.Sprintf(logFills, limit, since.UTC().Format(time.RFC3339), requested, timed+requested, timeout),
		fmt.Sprintf(enlarge, 2*limit, counter),
	}}, nil
}

func tooEarly(timed, requested int64, bytes float64, limitMB int64) bool {
	return requested >= earlyAtLeast && requested*earlyShare >= timed && bytes >= float64(requested)*float64(limitMB<<20)/earlyBytes
}
