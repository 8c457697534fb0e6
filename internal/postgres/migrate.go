package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/fairlead-dev/fairlead/lock/pglock"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migration is one step of the schema.
type Migration struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	AppliedAt *time.Time `json:"applied_at"` // nil while pending
}

// firstVersion is the step that makes the whole schema. The twenty steps that led to it are those of no release.
const firstVersion = 20

// newestVersion is the step that this binary needs. The files are in order.
func newestVersion() (version int64, err error) {
	files, err := migrations.ReadDir("migrations")
	if err == nil {
		version, err = goose.NumericComponent(files[len(files)-1].Name())
	}
	return version, err
}

// ErrTooOld is returned for a database whose schema is older than the first step.
var ErrTooOld = errors.New("the schema was made by a version before the first release, and has to be brought up to date with its last one")

// Migrate brings the schema of the database at url up to date and returns the steps that it applied. Any number of
// processes may call it at once: a lock in the database lets one of them work. The packages of locks and sagas install their own tables.
func Migrate(ctx context.Context, url string) ([]Migration, error) {
	var applied []Migration
	err := withProvider(url, func(p *goose.Provider) error {
		if version, err := p.GetDBVersion(ctx); err != nil {
			return err
		} else if version > 0 && version < firstVersion {
			return fmt.Errorf("%w: it is at step %d, and %d is the first", ErrTooOld, version, firstVersion)
		}
		if err := installPackages(ctx, url); err != nil {
			return err
		}
		results, err := p.Up(ctx)
		for _, r := range results {
			now := time.Now().UTC()
			applied = append(applied, Migration{Version: r.Source.Version, Name: r.Source.Path, AppliedAt: &now})
		}
		return err
	})
	if err != nil {
		return applied, fmt.Errorf("postgres: migrate: %w", err)
	}
	return applied, nil
}

// installPackages installs the tables that packages define themselves: locks and sagas beside those of the services, and the locks
// of elections in a schema of their own.
func installPackages(ctx context.Context, url string) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	return errors.Join(pglock.Schema("").Install(ctx, conn), electionSchema.Install(ctx, conn), pgsaga.Schema("").Install(ctx, conn))
}

// MigrationStatus lists all steps, applied or pending, in order.
func MigrationStatus(ctx context.Context, url string) ([]Migration, error) {
	var all []Migration
	err := withProvider(url, func(p *goose.Provider) error {
		status, err := p.Status(ctx)
		for _, s := range status {
			m := Migration{Version: s.Source.Version, Name: s.Source.Path}
			if s.State == goose.StateApplied {
				m.AppliedAt = &s.AppliedAt
			}
			all = append(all, m)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: migration status: %w", err)
	}
	return all, nil
}

func withProvider(url string, use func(*goose.Provider) error) (err error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return err
	}
	db := stdlib.OpenDB(*cfg)
	defer func() { err = errors.Join(err, db.Close()) }()
	provider, err := newProvider(db)
	if err != nil {
		return err
	}
	return use(provider)
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60)) // seconds between tries, tries
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker))
}
