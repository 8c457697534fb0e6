package pgstore

import (
	"context"
	_ "embed" // The schema is a file, so that your migrations can contain it.
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
const installLock = 0x6b8d2f41

// Install creates the table, in the given schema, unless it is there. The empty schema is the first of the search path.
// Any number of processes may do so at once.
func Install(ctx context.Context, db Beginner, schema string) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
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
		if err := tx.QueryRow(ctx, `SELECT to_regclass('idempotent_requests') IS NOT NULL`).Scan(&there); err != nil || there {
			return err
		}
		// Several statements in one text need the simple protocol.
		_, err := tx.Exec(ctx, schemaSQL, pgx.QueryExecModeSimpleProtocol)
		return err
	})
	if err != nil {
		return fmt.Errorf("pgstore: install: %w", err)
	}
	return nil
}

// in puts the schema into an SQL text, in which the table's name begins with @.
func in(schema, sql string) string {
	prefix := ""
	if schema != "" {
		prefix = pgx.Identifier{schema}.Sanitize() + "."
	}
	return strings.ReplaceAll(sql, "@", prefix)
}
