package pgstore

import (
	"context"
	_ "embed" // The schema is a file, so that your migrations can contain it.
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
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
	part := pgkit.Part{Has: `to_regclass('idempotent_requests') IS NOT NULL`, SQL: schemaSQL}
	if err := pgkit.Install(ctx, db, installLock, schema, part); err != nil {
		return fmt.Errorf("pgstore: install: %w", err)
	}
	return nil
}
