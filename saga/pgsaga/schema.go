package pgsaga

import (
	"context"
	_ "embed" // The schema is a file, so that other migrations can contain it.
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed schema.sql
var schemaSQL string

//go:embed marks.sql
var marksSQL string

//go:embed fence.sql
var fenceSQL string

// SchemaSQL is the definition of the tables, in the schema that is first in the search path.
func SchemaSQL() string { return schemaSQL + "\n" + marksSQL + "\n" + fenceSQL }

// Schema names the database schema that has the tables. The empty one is the first of the search path.
type Schema string

// Beginner is a connection, a pool, or a transaction.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Install creates the schema and its tables unless they are there. Any number of processes may do so at once.
func (s Schema) Install(ctx context.Context, conn Beginner) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("pgsaga: install: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := s.install(ctx, tx); err != nil {
		return fmt.Errorf("pgsaga: install: %w", err)
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("pgsaga: install: %w", err)
	}
	return nil
}

// installLock is the advisory lock that installers take turns by, a number of our own.
const installLock = 0x5a6a10c4

func (s Schema) install(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, installLock); err != nil {
		return err
	}
	if s != "" {
		name := pgx.Identifier{string(s)}.Sanitize()
		if _, err := tx.Exec(ctx, `CREATE SCHEMA IF NOT EXISTS `+name); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `SET LOCAL search_path TO `+name); err != nil {
			return err
		}
	}
	// What an earlier version has installed lacks the later parts.
	for _, part := range []struct{ last, sql string }{{"sagas", schemaSQL}, {"saga_marks", marksSQL}, {"saga_fences", fenceSQL}} {
		var there bool
		if err := tx.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, part.last).Scan(&there); err != nil {
			return err
		}
		if there {
			continue
		}
		// Several statements in one text need the simple protocol.
		if _, err := tx.Exec(ctx, part.sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return nil
}

// in puts the schema into an SQL text, in which table names begin with @.
func (s Schema) in(sql string) string {
	prefix := ""
	if s != "" {
		prefix = pgx.Identifier{string(s)}.Sanitize() + "."
	}
	return strings.ReplaceAll(sql, "@", prefix)
}
