package pglock

import (
	"context"
	_ "embed" // The schema is a file, so that other migrations can contain it.
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/lock"
)

//go:embed schema.sql
var tablesSQL string

//go:embed columns.sql
var columnsSQL string

//go:embed functions.sql
var functionsSQL string

// SchemaSQL is the definition of the tables and functions, in the schema that is first in the search path. An engine without PL/pgSQL
// takes it up to its first function, and needs no more.
func SchemaSQL() string { return tablesSQL + "\n" + columnsSQL + "\n" + functionsSQL }

// Schema names the database schema that has the tables. The empty one is the first of the search path.
type Schema string

// Beginner is a connection, a pool, or a transaction.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Install creates the schema and its tables, or brings those of an older version up to date, beside which programs of that
// version go on. Any number of processes may do so at once.
func (s Schema) Install(ctx context.Context, conn Beginner) error {
	err := pgkit.Install(ctx, conn, installLock, string(s),
		pgkit.Part{Has: `to_regclass('lock_fences') IS NOT NULL`, SQL: tablesSQL},
		pgkit.Part{Has: `4 = (SELECT count(*) FROM pg_attribute WHERE NOT attisdropped AND (attrelid, attname) IN (
			(to_regclass('lock_waiters'), 'process'), (to_regclass('lock_arbiter'), 'token_floor'),
			(to_regclass('lock_keys'), 'chapter'), (to_regclass('lock_keys'), 'queue_from')))`, SQL: columnsSQL},
		pgkit.Part{
			Has: `3 = (SELECT count(*) FROM pg_proc WHERE 'plan_cache_mode=force_generic_plan' = ANY (proconfig)
			AND (oid IN (to_regproc('lock_share'), to_regproc('lock_free')) OR oid = to_regproc('lock_release') AND prosrc LIKE '%queue_from%'))`,
			SQL: functionsSQL, Needs: pgkit.Functions,
		})
	if err != nil {
		return fmt.Errorf("pglock: install: %w", err)
	}
	return nil
}

// installLock is the advisory lock that installers take turns by, a number of our own.
const installLock = 0x2b9a5d1c

// in puts the schema into an SQL text, in which table names begin with @.
func (s Schema) in(sql string) string { return pgkit.In(string(s), sql) }

const fence = `INSERT INTO @lock_fences AS f (resource, token) VALUES ($1, $2)
	ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE f.token <= excluded.token`

// Fence guards what the transaction writes to a resource: it notes the token, and returns [lock.ErrStaleToken] when a
// newer one has been noted, after which the transaction must be rolled back. Call it before the first write. Until the
// transaction ends, others that guard the same resource wait. The same token may come any number of times: that is one
// tenure of the lock.
//
// The resource is whatever the lock's key protects; usually it is named like the key. Tokens of different keys must not
// be mixed on one resource.
func (s Schema) Fence(ctx context.Context, tx pgx.Tx, resource string, token int64) error {
	if token < 1 {
		return fmt.Errorf("pglock: fence %q: %w: tokens are 1 or more", resource, lock.ErrInvalid)
	}
	tag, err := tx.Exec(ctx, s.in(fence), resource, token)
	if err != nil {
		return fmt.Errorf("pglock: fence %q: %w", resource, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("pglock: fence %q at token %d: %w", resource, token, lock.ErrStaleToken)
	}
	return nil
}

// Fence is [Schema.Fence] with the tables in the search path.
func Fence(ctx context.Context, tx pgx.Tx, resource string, token int64) error {
	return Schema("").Fence(ctx, tx, resource, token)
}
