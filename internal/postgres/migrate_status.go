package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"
)

// newerStep names a step that this binary does not know.
const newerStep = "of a newer version"

// MigrationStatus lists all steps, applied or pending, in order, those that a newer version has applied included.
func MigrationStatus(ctx context.Context, url string) ([]Migration, error) {
	var all []Migration
	// The provider's own Status takes the lock first: it would wait for a migration, and for a read-only database to be writable.
	err := withProvider(url, migrations, func(p *goose.Provider, db *sql.DB) error {
		applied, err := appliedAt(ctx, db)
		for _, s := range p.ListSources() {
			m := Migration{Version: s.Version, Name: s.Path}
			if at, is := applied[s.Version]; is {
				m.AppliedAt = &at
			}
			delete(applied, s.Version)
			all = append(all, m)
		}
		for version, at := range applied {
			if version > firstVersion {
				all = append(all, Migration{Version: version, Name: newerStep, AppliedAt: &at})
			}
		}
		slices.SortFunc(all, func(a, b Migration) int { return cmp.Compare(a.Version, b.Version) })
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: migration status: %w", err)
	}
	return all, nil
}

// appliedAt reads when each migration was applied.
func appliedAt(ctx context.Context, db *sql.DB) (map[int64]time.Time, error) {
	var there bool
	if err := db.QueryRowContext(ctx, `SELECT to_regclass('goose_db_version') IS NOT NULL`).Scan(&there); err != nil || !there {
		return nil, err
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, `SELECT set_config('lock_timeout', $1, true)`, lockTimeout); err != nil {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, `SELECT version_id, tstamp FROM goose_db_version WHERE is_applied`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	at := map[int64]time.Time{}
	for rows.Next() {
		var version int64
		var when time.Time
		if err := rows.Scan(&version, &when); err != nil {
			return nil, err
		}
		at[version] = when
	}
	return at, rows.Err()
}

// SchemaRange is what a schema and this binary know of each other.
type SchemaRange struct {
	Schema int64 `json:"schema"` // the step that the schema is at
	Oldest int64 `json:"oldest"` // the oldest step whose binaries can work with it
	Newest int64 `json:"newest"` // the newest step that this binary knows, and needs
}

// Supported returns [ErrTooNew] for a schema that this binary can't work with.
func (r SchemaRange) Supported() error {
	return checkSupport(r.Newest, r.Schema, func() (int64, error) { return r.Oldest, nil })
}

// SchemaRange reads where the schema stands. It must be there.
func (db *DB) SchemaRange(ctx context.Context) (r SchemaRange, err error) {
	r, err = queryOne(ctx, db, errEmpty, pgx.RowToStructByPos[SchemaRange],
		`SELECT max(version_id), (`+selectSupport+`), $1::bigint FROM goose_db_version WHERE is_applied`, db.ready.newest)
	if err != nil {
		err = fmt.Errorf("postgres: read where the schema stands: %w", err)
	}
	return r, err
}
