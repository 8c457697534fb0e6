package postgres

import (
	"context"
	"fmt"
	"strconv"

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

// costs lists the settings that make commands slower than they need be, with what they cost.
func costs(ctx context.Context, conn *pgx.Conn) (found []string, err error) {
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
			found = append(found, fmt.Sprintf("%s is %s: %s", c.name, value, c.cost))
		}
	}
	return found, nil
}
