package conform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/postgres"
)

const (
	// schemaPrefix begins the names of the schemas.
	schemaPrefix = "fairlead_conformance_"
	// perProcess is how many connections the pool of one process has that a check pretends to be.
	perProcess = 4
	// sagaConnections is how many the processes of one check of sagas share.
	sagaConnections = 12
	// dropFor is how long the schema's removal waits for sessions that are still ending, until it looks again for what they have prepared.
	dropFor = 5 * time.Second
)

// database is PostgreSQL, or what passes for it.
type database struct {
	Target

	url      string
	schema   string
	schemas  []string // that were made, the last first
	prepared string   // begins the names of transactions that are prepared
}

// openPostgres looks whether suites can run on the database, and makes the schema.
func openPostgres(ctx context.Context, o Options, id string) (server, error) {
	config, err := pgx.ParseConfig(o.DatabaseURL)
	if err != nil {
		return nil, err
	}
	db, err := postgres.Open(ctx, postgres.Options{URL: o.DatabaseURL, MaxConns: 2})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	d := &database{url: o.DatabaseURL, schema: schemaPrefix + id, prepared: "fairlead-conformance:" + id + ":", Target: Target{
		Kind: PostgreSQL, Address: net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))) + "/" + config.Database,
	}}
	findings, err := db.Check(ctx)
	if err != nil {
		return nil, err
	}
	for _, f := range findings {
		if f.Check == "standby" {
			return nil, fmt.Errorf("%w: %s", ErrReadOnly, f.Remedy)
		}
		d.Notes = append(d.Notes, f.Message)
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var readOnly, mayCreate bool
	var user, name string
	err = conn.QueryRow(ctx, `SELECT version(), current_setting('transaction_read_only')::boolean, has_database_privilege(current_database(), 'CREATE'),
		current_user, current_database()`).Scan(&d.Version, &readOnly, &mayCreate, &user, &name)
	switch {
	case err != nil:
		return nil, err
	case readOnly:
		return nil, fmt.Errorf("%w: give the primary's URL, or turn default_transaction_read_only off", ErrReadOnly)
	case !mayCreate:
		return nil, fmt.Errorf("the role %s may not make a schema in this database: GRANT CREATE ON DATABASE %s TO %s", user,
			pgx.Identifier{name}.Sanitize(), pgx.Identifier{user}.Sanitize())
	}
	if err := d.make(ctx, conn, d.schema); err != nil {
		return d, err
	}
	d.Place = "schema " + d.schema
	return d, nil
}

// ErrReadOnly is returned for a database that takes no writes.
var ErrReadOnly = errors.New("the database is read-only")

// make makes a schema, and says in the database whose it is.
func (d *database) make(ctx context.Context, conn *pgx.Conn, schema string) error {
	name := pgx.Identifier{schema}.Sanitize()
	d.schemas = append([]string{schema}, d.schemas...)
	d.Remove = ""
	for _, s := range d.schemas {
		d.Remove += "DROP SCHEMA IF EXISTS " + pgx.Identifier{s}.Sanitize() + " CASCADE; "
	}
	d.Remove = d.Remove[:len(d.Remove)-1]
	if _, err := conn.Exec(ctx, `CREATE SCHEMA `+name); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, commentOn(schema))
	return err
}

func (d *database) target() *Target { return &d.Target }

// write implements server on a connection of its own. What is measured is more than one write, and little more.
func (d *database) write(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, d.url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, commentOn(d.schema))
	return errors.Join(err, conn.Close(ctx))
}

func commentOn(schema string) string {
	return `COMMENT ON SCHEMA ` + pgx.Identifier{schema}.Sanitize() + ` IS 'made by fairlead conformance, and of no use when that has ended'`
}

// remove drops the schemas. Sessions of checks that were left behind may be in the way for a while.
func (d *database) remove(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, d.url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, `SELECT set_config('lock_timeout', $1, false)`, strconv.FormatInt(dropFor.Milliseconds(), 10)); err != nil {
		return err
	}
	for {
		err := d.drop(ctx, conn)
		if code := pgkit.Code(err); code != pgkit.LockTimeout && code != deadlock || ctx.Err() != nil {
			return err
		}
	}
}

// SQLSTATEs: of a transaction that others kept from ending, and of a prepared one that has ended.
const (
	deadlock    = "40P01"
	endedBefore = "42704"
)

// drop removes what was made, unless it is in use.
func (d *database) drop(ctx context.Context, conn *pgx.Conn) error {
	if err := d.rollBackPrepared(ctx, conn); err != nil {
		return err
	}
	for _, s := range d.schemas {
		if _, err := conn.Exec(ctx, `DROP SCHEMA IF EXISTS `+pgx.Identifier{s}.Sanitize()+` CASCADE`); err != nil {
			return err
		}
	}
	return nil
}

// rollBackPrepared ends the transactions that the checks of sagas have left prepared: they are in no schema, and lock tables of this one.
func (d *database) rollBackPrepared(ctx context.Context, conn *pgx.Conn) error {
	var can bool // What only speaks PostgreSQL's protocol may have no such view.
	if err := conn.QueryRow(ctx, `SELECT to_regclass('pg_catalog.pg_prepared_xacts') IS NOT NULL`).Scan(&can); err != nil || !can {
		return err
	}
	rows, err := conn.Query(ctx, `SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND starts_with(gid, $1)`, d.prepared)
	if err != nil {
		return err
	}
	gids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, gid := range gids { // Package pgsaga gives them names that need no quoting.
		if _, err := conn.Exec(ctx, `ROLLBACK PREPARED '`+gid+`'`, pgx.QueryExecModeSimpleProtocol); err != nil && pgkit.Code(err) != endedBefore {
			return err
		}
	}
	return nil
}
