package pgsaga

import (
	"context"
	_ "embed" // The schema is a file, so that other migrations can contain it.
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
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
	err := pgkit.Install(ctx, conn, installLock, string(s),
		pgkit.Part{Has: `to_regclass('sagas') IS NOT NULL`, SQL: schemaSQL},
		pgkit.Part{Has: `to_regclass('saga_marks') IS NOT NULL`, SQL: marksSQL},
		pgkit.Part{Has: `to_regclass('saga_fences') IS NOT NULL`, SQL: fenceSQL})
	if err != nil {
		return fmt.Errorf("pgsaga: install: %w", err)
	}
	return nil
}

// installLock is the advisory lock that installers take turns by, a number of our own.
const installLock = 0x5a6a10c4

// in puts the schema into an SQL text, in which table names begin with @.
func (s Schema) in(sql string) string { return pgkit.In(string(s), sql) }
