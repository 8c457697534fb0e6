package demo

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/localpg"
)

// branchLedger is what the server calls the second ledger, whose database has that name, too.
const branchLedger = "branch"

// duplicateDatabase is the SQLSTATE for one that is there already.
const duplicateDatabase = "42P04"

// databases are what the story is written to.
type databases struct {
	local *localpg.Instance // nil with a database of the user's
	url   string            // of the server's database
	// branch is the URL of the second ledger's database. It is empty with a database of the user's: the servers that work on
	// that would try to go on with transfers to a ledger that they don't know.
	branch string
	writes string // the table of the guarded writes
}

// openDatabases starts a private PostgreSQL unless a database is given, and makes the database of the branch there.
func (d *Demo) openDatabases(ctx context.Context) (err error) {
	b := &d.databases
	if b.url = d.DatabaseURL; b.url == "" {
		if b.local, err = localpg.Start(ctx, localpg.Options{Dir: d.Data, Logger: d.logger()}); err != nil {
			return err
		}
		b.url = b.local.URL()
	}
	conn, err := pgx.Connect(ctx, b.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	writes := "fairlead_demo_writes" + strings.ReplaceAll(d.tag, "-", "_")
	if _, err := conn.Exec(ctx, "CREATE TABLE "+writes+" (token bigint NOT NULL)"); err != nil {
		return err
	}
	if b.writes = writes; b.local == nil {
		return nil
	}
	u, err := url.Parse(b.url)
	if err != nil {
		return err
	}
	u.Path = "/" + branchLedger
	b.branch = u.String()
	_, err = conn.Exec(ctx, "CREATE DATABASE "+branchLedger)
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == duplicateDatabase {
		return nil // An earlier demo made it.
	}
	return err
}

// lost is closed when a private PostgreSQL has ended for good.
func (b *databases) lost() <-chan struct{} {
	if b.local == nil {
		return nil
	}
	return b.local.Done()
}

// close drops what nobody needs any more, and stops a private PostgreSQL.
func (b *databases) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	var failures []error
	if b.writes != "" {
		failures = append(failures, b.drop(ctx))
	}
	if b.local != nil {
		failures = append(failures, b.local.Stop(ctx))
	}
	return errors.Join(failures...)
}

func (b *databases) drop(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, b.url)
	if err != nil {
		return fmt.Errorf("the demo's table %s is left: %w", b.writes, err)
	}
	_, err = conn.Exec(ctx, "DROP TABLE "+b.writes)
	return errors.Join(err, conn.Close(ctx))
}
