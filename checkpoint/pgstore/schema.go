package pgstore

import (
	"context"
	_ "embed" // The schema is a file, so that other migrations can contain it.
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed schema.sql
var schemaSQL string

// SchemaSQL is the definition of the table, in the schema that is first in the search path.
func SchemaSQL() string { return schemaSQL }

// Beginner is a connection, a pool, or a transaction.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// installLock is the advisory lock that installers take turns by, a number of our own.
const installLock = 0x2b9a5d1e

// Install creates the schema ("": that which is first in the search path) and its table unless they are there. Any number of
// processes may do so at once.
func Install(ctx context.Context, conn Beginner, schema string) error {
	if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return install(ctx, tx, schema) }); err != nil {
		return fmt.Errorf("pgstore: install: %w", err)
	}
	return nil
}

func install(ctx context.Context, tx pgx.Tx, schema string) error {
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, installLock); err != nil {
		return err
	}
	if schema != "" {
		name := pgx.Identifier{schema}.Sanitize()
		if _, err := tx.Exec(ctx, `CREATE SCHEMA IF NOT EXISTS `+name); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `SET LOCAL search_path TO `+name); err != nil {
			return err
		}
	}
	var there bool
	if err := tx.QueryRow(ctx, `SELECT to_regclass('checkpoint_states') IS NOT NULL`).Scan(&there); err != nil || there {
		return err
	}
	// Several statements in one text need the simple protocol.
	_, err := tx.Exec(ctx, schemaSQL, pgx.QueryExecModeSimpleProtocol)
	return err
}

// in puts the schema into an SQL text, in which the table's name begins with @.
func in(schema, sql string) string {
	prefix := ""
	if schema != "" {
		prefix = pgx.Identifier{schema}.Sanitize() + "."
	}
	return strings.ReplaceAll(sql, "@", prefix)
}
