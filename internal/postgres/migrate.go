package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
	"github.com/fairlead-dev/fairlead/internal/wait"
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

var (
	// ErrTooOld is returned for a database whose schema is older than the first step.
	ErrTooOld = errors.New("the schema was made by a version before the first release, and has to be brought up to date with its last one")
	// ErrTooNew is returned for a database whose schema lacks what this binary needs, because a newer version has removed it.
	ErrTooNew = errors.New("the schema is too new for this version of Fairlead")
	// ErrOldServers is returned when a step would remove what servers at work still need.
	ErrOldServers = errors.New("servers of older versions are at work")
	// ErrEncoding is returned for a database that does not speak UTF-8.
	ErrEncoding = errors.New("the database's encoding is not UTF8")
	// ErrOtherSchema is returned for a database whose tables are in another schema than new ones would be made in.
	ErrOtherSchema = errors.New("the tables are in another schema than new ones would be made in")
)

const (
	// migrateFor bounds the time in which a step is tried again that met a locked table, stepPause is the pause in between. A step
	// waits for a lock no longer than [stepLockTimeout], since every command on the table queues behind it.
	migrateFor = time.Minute
	stepPause  = 250 * time.Millisecond
	// partitionFor bounds the time in which the history is put into partitions, again and again.
	partitionFor = 5 * time.Second
	// stepLockTimeout is at the beginning of each step that changes a table in use. The test of the steps looks for it.
	stepLockTimeout = `SET LOCAL lock_timeout = '150ms'`

	// migrationLease is how long after its last sign of life a process that migrates is waited for.
	migrationLease = 5 * time.Second
	// unlockTries are the tries to give the lease back, which is another's, perhaps. Else it ends by itself.
	unlockTries = 4

	// A process that is stopped for longer than the lease wakes up in the middle of a step that another one has begun, too. Each step is in a transaction
	// with its row, or can be repeated, so it is enough that a step has one row: whoever comes second is undone.
	selectOnce  = `SELECT to_regclass('goose_db_version_once') IS NOT NULL`
	lockSteps   = `LOCK TABLE goose_db_version IN SHARE ROW EXCLUSIVE MODE`
	deleteTwice = `DELETE FROM goose_db_version AS v WHERE is_applied AND EXISTS (SELECT FROM goose_db_version WHERE version_id = v.version_id AND is_applied AND id < v.id)`
	makeOnce    = `CREATE UNIQUE INDEX IF NOT EXISTS goose_db_version_once ON goose_db_version (version_id) WHERE is_applied`

	// selectSupport is the oldest step whose binaries can work with the schema. Schemas of before step 23 have no such table, and
	// no binary that asks is older.
	selectSupport = `SELECT oldest FROM schema_support`
	// removing is in the UPDATE of a step that takes away what servers need whose newest step is an older one than the number behind it. It must not be
	// taken while such servers are at work.
	removing = `schema_support SET oldest = `
	// selectUsers tells which transactions have used which tables for more than a second.
	selectUsers = `SELECT coalesce(string_agg(tables || ' (by ' || who || ')', ', ' ORDER BY tables), '') FROM (
		SELECT string_agg(DISTINCT c.relname, ', ') AS tables, CASE WHEN l.pid IS NULL THEN 'a prepared transaction'
			ELSE coalesce(nullif(a.backend_type, 'client backend'), 'process') || ' ' || l.pid || coalesce(', ' || nullif(a.application_name, ''), '') || coalesce(', ' || a.state, '')
				|| coalesce(', for ' || extract(epoch FROM clock_timestamp() - a.xact_start)::bigint || ' s', '') END AS who
		FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation JOIN pg_namespace AS n ON n.oid = c.relnamespace LEFT JOIN pg_stat_activity AS a USING (pid)
		WHERE l.locktype = 'relation' AND l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
			AND l.pid IS DISTINCT FROM pg_backend_pid() AND c.relkind IN ('r', 'p') AND n.nspname = current_schema()
			AND (a.xact_start IS NULL OR clock_timestamp() - a.xact_start > interval '1 second')
		GROUP BY l.virtualtransaction, l.pid, a.backend_type, a.application_name, a.state, a.xact_start) AS u`
	selectServers = `SELECT name || ' (' || version || ', step ' || step || ')' FROM servers WHERE step < $1 AND at > clock_timestamp() - $2::interval ORDER BY name`
)

// Migrate brings the schema of the database at url up to date and returns the steps that it applied. Any number of
// processes may call it at once: a lock in the database lets one of them work. The packages of locks and sagas install their own tables.
//
// Commands go on meanwhile. A step that meets a table which somebody has locked gives up soon and is tried again, for a minute; an autovacuum is
// asked to leave it. The error names who else uses tables then.
// Errors: [ErrTooOld], [ErrTooNew], [ErrOldServers], [ErrEncoding], [ErrOtherSchema], or the database's.
func Migrate(ctx context.Context, url string) ([]Migration, error) {
	return MigrateReporting(ctx, url, nil)
}

// MigrateReporting is [Migrate] that calls report every few seconds while a step takes long, with how long it has taken and what it waits for.
func MigrateReporting(ctx context.Context, url string, report func(string)) ([]Migration, error) {
	return migrateWith(ctx, url, electionSchema, migrations, report)
}

// Migrate is the function [MigrateReporting] on the database of db, whose leaders are elected where its [Options] say.
func (db *DB) Migrate(ctx context.Context, report func(string)) ([]Migration, error) {
	return migrateWith(ctx, db.url, db.elections, migrations, report)
}

// inOneSchema returns an [ErrOtherSchema] where the tables that the search path finds are in another schema than new ones would be made in, as after CREATE
// SCHEMA of a schema that comes before theirs in the path. New ones would hide them, also from the servers that are at work.
func inOneSchema(ctx context.Context, db *sql.DB) error {
	var there, first, path string
	err := db.QueryRowContext(ctx, `SELECT n.nspname, coalesce(current_schema(), ''), current_setting('search_path') FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE c.oid = to_regclass('auction_standing') AND n.oid = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('hold_rows'))`).Scan(&there, &first, &path)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err == nil && there != first:
		return fmt.Errorf("%w: they are in %q, and the first schema of the search path (%s) is %q: remove that schema if it is not needed, or give the server a path that begins with theirs, "+
			"as by ALTER ROLE … SET search_path = %s", ErrOtherSchema, there, path, first, there)
	}
	return err
}

// migrateWith is Migrate with the steps in a directory "migrations" of files.
func migrateWith(ctx context.Context, url string, elections pglock.Schema, files fs.FS, report func(string)) ([]Migration, error) {
	var applied []Migration
	err := withProvider(url, portable(ctx, url, files), func(p *goose.Provider, db *sql.DB) error {
		if err := inOneSchema(ctx, db); err != nil {
			return err
		}
		version, newest, err := p.GetVersions(ctx)
		switch {
		case err != nil:
			return err
		case version > 0 && version < firstVersion:
			return fmt.Errorf("%w: it is at step %d, and %d is the first", ErrTooOld, version, firstVersion)
		case version > newest:
			return checkSupport(newest, version, func() (oldest int64, err error) {
				return oldest, db.QueryRowContext(ctx, selectSupport).Scan(&oldest)
			})
		}
		if err := installPackages(ctx, url, elections); err != nil {
			return err
		}
		for start := time.Now(); ; {
			results, err := step(ctx, p, db, files, func(name string) (done func()) { return reportSlow(ctx, url, name, report) })
			for _, r := range results {
				now := time.Now().UTC()
				applied = append(applied, Migration{Version: r.Source.Version, Name: r.Source.Path, AppliedAt: &now})
			}
			if err == nil {
				defer reportSlow(ctx, url, "partitions of the history", report)()
				return partition(ctx, url)
			}
			// A step that somebody has cancelled, or whose rows are in its way, would end so again.
			verdict, _ := pgkit.Classify(err, pgkit.QueryCanceled, pgkit.UniqueViolation)
			switch {
			case verdict != pgkit.Conflict:
				return err
			case time.Since(start) > migrateFor:
				return inTheWay(ctx, url, err)
			case isLockTimeout(err):
				askVacuum(ctx, url)
			}
			if !wait.For(ctx, stepPause) {
				return err
			}
		}
	})
	if err != nil {
		return applied, fmt.Errorf("postgres: migrate: %w", outOfRoom(err))
	}
	return applied, nil
}

// outOfRoom is the error of a step for which the disk had no room, without what the library that ran it says of it.
func outOfRoom(err error) error {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	if full := unready(operator.UnreadyDatabase, refused); unreadyFor(full, operator.UnreadyDisk) {
		return fmt.Errorf("%w: when there is room, the next try goes on from there", full)
	}
	return err
}

// partition puts the history into partitions, where the engine has them. Where somebody uses the tables for longer than partitionFor, as a prepared
// transaction does that nobody ends, they stay in one piece, in which everything but archives works. The doctor says so.
func partition(ctx context.Context, url string) (err error) {
	conn, err := connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	engine, err := pgkit.Probe(ctx, conn, pgkit.Partitions)
	if err != nil || !engine.Has(pgkit.Partitions) {
		return err
	}
	for start := time.Now(); ; {
		err := partitions.Convert(ctx, conn, time.Now())
		if err == nil {
			err = partitions.Index(ctx, conn)
		}
		switch {
		case !isLockTimeout(err):
			return err
		case time.Since(start) > partitionFor:
			return nil
		}
		pgkit.AskVacuum(ctx, conn, "")
		if !wait.For(ctx, stepPause) {
			return ctx.Err()
		}
	}
}

// indexHistory makes the index by which new entries are found, where it is missing.
func indexHistory(ctx context.Context, db *DB) (err error) {
	if without, err := partitions.Unindexed(ctx, db.pool); err != nil || len(without) == 0 {
		return err
	}
	conn, err := connect(ctx, db.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	return partitions.Index(ctx, conn)
}

// askVacuum has autovacuum leave the tables that a step wants to change.
func askVacuum(ctx context.Context, url string) {
	conn, err := connect(ctx, url)
	if err != nil { // As the next try of the step will tell.
		return
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	pgkit.AskVacuum(ctx, conn, "")
}

// inTheWay adds to the error of a step that has waited in vain who uses the tables for long.
func inTheWay(ctx context.Context, url string, err error) error {
	conn, failed := connect(ctx, url)
	if failed != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var users string
	if failed := conn.QueryRow(ctx, selectUsers).Scan(&users); failed != nil || users == "" {
		return err
	}
	return fmt.Errorf("%w: a step that changes tables has waited for %v in vain; in use are %s: end what uses them, or try again later", err, migrateFor, users)
}

// checkSupport decides whether a binary whose newest step is so can work with a schema that is at a later one.
func checkSupport(newest, version int64, ask func() (oldest int64, err error)) error {
	oldest, err := ask()
	if err == nil && oldest > newest {
		err = fmt.Errorf("%w: it is at step %d, which binaries from step %d on can work with, and this one knows steps up to %d: "+
			"install the newer version, or restore a backup of before", ErrTooNew, version, oldest, newest)
	}
	return err
}

// step applies what is pending, up to the first failure. begin is called before each step, and what it returns behind it.
func step(ctx context.Context, p *goose.Provider, db *sql.DB, files fs.FS, begin func(name string) (done func())) (applied []*goose.MigrationResult, err error) {
	for once := false; ; {
		pending, err := p.HasPending(ctx)
		if err != nil || !pending {
			return applied, err
		}
		if !once {
			if err := onlyOnce(ctx, db); err != nil {
				return applied, err
			}
			once = true
		}
		before, err := p.GetDBVersion(ctx)
		if err == nil {
			err = checkServers(ctx, p, db, files)
		}
		if err != nil {
			return applied, err
		}
		done := begin(stepBehind(p, before))
		result, err := p.UpByOne(ctx)
		done()
		if err == nil {
			applied = append(applied, result)
			continue
		}
		// Another process may have applied it: just before, or while this one was stopped, whose lease was over.
		if now, failed := p.GetDBVersion(ctx); !errors.Is(err, goose.ErrNoNextVersion) && (failed != nil || now == before) {
			return applied, err
		}
	}
}

// stepBehind is the file of the step that is taken next.
func stepBehind(p *goose.Provider, version int64) string {
	for _, s := range p.ListSources() {
		if s.Version > version {
			return filepath.Base(s.Path)
		}
	}
	return ""
}

// onlyOnce has the database take each step once, whoever believes that it is the only one to migrate.
func onlyOnce(ctx context.Context, db *sql.DB) error {
	var there bool
	if err := db.QueryRowContext(ctx, selectOnce).Scan(&there); err != nil || there {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	for _, statement := range []string{stepLockTimeout, lockSteps, deleteTwice, makeOnce} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
}

// checkServers refuses the next step when it removes what servers at work need.
func checkServers(ctx context.Context, p *goose.Provider, db *sql.DB, files fs.FS) error {
	version, err := p.GetDBVersion(ctx)
	if err != nil {
		return err
	}
	for _, source := range p.ListSources() {
		if source.Version <= version {
			continue
		}
		text, err := fs.ReadFile(files, "migrations/"+source.Path)
		if err != nil {
			return err
		}
		_, behind, removes := strings.Cut(string(text), removing)
		if !removes {
			return nil
		}
		number, _, _ := strings.Cut(behind, ";")
		oldest, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return fmt.Errorf("step %d: %w", source.Version, err)
		}
		rows, err := db.QueryContext(ctx, selectServers, oldest, serverAlive.String())
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		var names []string
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				return err
			}
			names = append(names, name)
		}
		if len(names) > 0 {
			return fmt.Errorf("%w, and step %d removes what they need: stop %s", ErrOldServers, source.Version, strings.Join(names, ", "))
		}
		return rows.Err()
	}
	return nil
}

// remakeInUTF8 is what to do about a database of another encoding: that is chosen when it is made.
const remakeInUTF8 = "make it anew by createdb --encoding UTF8 --template template0"

// installPackages installs the tables that packages define themselves: locks and sagas beside those of the services, and the locks
// of elections in a schema of their own.
func installPackages(ctx context.Context, url string, elections pglock.Schema) (err error) {
	conn, err := connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	if encoding := conn.PgConn().ParameterStatus("server_encoding"); encoding != "UTF8" && !inUTF8(url) {
		return fmt.Errorf("%w: it is %s; %s", ErrEncoding, encoding, remakeInUTF8)
	}
	return errors.Join(pglock.Schema("").Install(ctx, conn), elections.Install(ctx, conn), pgsaga.Schema("").Install(ctx, conn))
}

// migrating is for a session that reads and writes text as others do, and does not wait for a database that is silent.
func migrating(url string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(url)
	if err == nil {
		cfg.ConnectTimeout = connectTimeout
		maps.Copy(cfg.RuntimeParams, textForm())
	}
	return cfg, err
}

func connect(ctx context.Context, url string) (*pgx.Conn, error) {
	cfg, err := migrating(url)
	if err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, cfg)
}

func withProvider(url string, files fs.FS, use func(*goose.Provider, *sql.DB) error) (err error) {
	cfg, err := migrating(url)
	if err != nil {
		return err
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // A pooler may run each statement in another session.
	db := stdlib.OpenDB(*cfg)
	defer func() { err = errors.Join(err, db.Close()) }()
	if files, err = fs.Sub(files, "migrations"); err != nil {
		return err
	}
	// A lease in a table works behind every pooler, which a session's advisory lock does not.
	locker, err := lock.NewPostgresTableLocker(
		lock.WithTableLeaseDuration(migrationLease), lock.WithTableHeartbeatInterval(migrationLease/5),
		lock.WithTableLockTimeout(stepPause, uint64(2*migrateFor/stepPause)), lock.WithTableUnlockTimeout(stepPause, unlockTries), lock.WithTableLogger(slog.New(slog.DiscardHandler)),
	)
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithLocker(locker))
	if err != nil {
		return err
	}
	return use(provider, db)
}
