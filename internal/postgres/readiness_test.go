package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// becomes waits until a look at readiness has the given outcome; "" is ready.
func becomes(t *testing.T, db *DB, want operator.Unreadiness) {
	t.Helper()
	var last error
	testwait.Eventually(t, patience, "readiness: "+string(want), func() bool {
		db.ready.mu.Lock()
		db.ready.asked = time.Time{} // A test does not wait until an outcome is no longer believed.
		db.ready.mu.Unlock()
		last = db.Ready(t.Context())
		why, unready := errors.AsType[*operator.UnreadyError](last)
		return want == "" && last == nil || unready && why.Reason == want
	})
	if t.Failed() {
		t.Logf("the last look: %v", last)
	}
}

// TestReadinessIgnoresALockedSchemaTable: a session that locks the table of the steps, which no command needs, takes no server out of a balancer.
func TestReadinessIgnoresALockedSchemaTable(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	becomes(t, db, "")
	stranger(t, db, `LOCK TABLE goose_db_version`)
	for range 3 {
		db.ready.asked = time.Time{}
		if err := db.Ready(t.Context()); err != nil {
			t.Errorf("while the table of the schema's steps is locked: %v", err)
		}
	}
}

// TestReadinessSaysWhy stages each state in which a server commits nothing.
func TestReadinessSaysWhy(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	testwait.Must(t, testwait.Err(Migrate(t.Context(), server.URL())))
	db := open(t, Options{URL: server.URL(), MaxConns: 2})
	becomes(t, db, "")

	// A look does not take the end of its own connection for an absent database.
	execAll(t, db, fmt.Sprintf(`SELECT pg_terminate_backend(%d, 50000)`, db.ready.conn.PgConn().PID()))
	db.ready.asked = time.Time{}
	if err := db.Ready(t.Context()); err != nil {
		t.Errorf("after the end of its connection: %v", err)
	}

	execAll(t, db, `ALTER SYSTEM SET synchronous_standby_names = 'missing'`, `SELECT pg_reload_conf()`)
	becomes(t, db, operator.UnreadyCommit)
	execAll(t, db, `ALTER SYSTEM RESET synchronous_standby_names`, `SELECT pg_reload_conf()`)
	becomes(t, db, "")

	execAll(t, db, `ALTER SYSTEM SET default_transaction_read_only = on`, `SELECT pg_reload_conf()`)
	becomes(t, db, operator.UnreadyReadOnly)
	execAll(t, db, `ALTER SYSTEM RESET default_transaction_read_only`, `SELECT pg_reload_conf()`)
	becomes(t, db, "")

	execAll(t, db, `UPDATE goose_db_version SET is_applied = false WHERE version_id = (SELECT max(version_id) FROM goose_db_version)`)
	becomes(t, db, operator.UnreadySchema)
	execAll(t, db, `UPDATE goose_db_version SET is_applied = true`)
	becomes(t, db, "")

	var held []func()
	for range 2 {
		conn, err := db.pool.Acquire(t.Context())
		testwait.Must(t, err)
		held = append(held, conn.Release)
	}
	becomes(t, db, operator.UnreadyPool)
	for _, release := range held {
		release()
	}
	becomes(t, db, "")

	execAll(t, db, `REVOKE TEMPORARY ON DATABASE `+ask[string](t, db, `SELECT quote_ident(current_database())`)+` FROM PUBLIC`,
		`CREATE ROLE plain LOGIN`, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO plain`)
	config, err := pgx.ParseConfig(server.URL())
	testwait.Must(t, err)
	config.User = "plain"
	plain := open(t, Options{URL: server.URL(), MaxConns: 2})
	plain.ready.config = config
	becomes(t, plain, "")
	if !plain.ready.noScratch {
		t.Error("it makes temporary tables without the right")
	}

	testwait.Must(t, server.Stop(t.Context()))
	becomes(t, db, operator.UnreadyDatabase)
}

// TestSessionsOfAReadOnlyTimeEnd fills each pool while the database is read-only by its own setting, which a session keeps, and writes later.
func TestSessionsOfAReadOnlyTimeEnd(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, migrated)
	db := open(t, Options{URL: url, MaxConns: 8})
	admin := pgtest.Connect(t, url)
	set := func(what string) {
		var alter string
		testwait.Must(t, admin.QueryRow(t.Context(), `SELECT format('ALTER DATABASE %I ' || $1, current_database())`, what).Scan(&alter))
		testwait.Must(t, testwait.Err(admin.Exec(t.Context(), alter)))
	}
	set("SET default_transaction_read_only = on")
	db.pool.Reset()
	var held []*pgxpool.Conn
	for range db.pool.Config().MaxConns {
		conn, err := db.pool.Acquire(t.Context())
		testwait.Must(t, err)
		held = append(held, conn)
	}
	for _, conn := range held {
		conn.Release()
	}
	write := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE accounts SET version = version WHERE false`)
		return err
	}
	set("RESET default_transaction_read_only")
	if outcome, err := db.runner.Run(t.Context(), "write", write); outcome != pgkit.Committed {
		t.Errorf("the database takes writes again, and a write is answered: %v, %v", outcome, err)
	}
}

// TestASessionFindsNoRoom: a full disk is also one on which a new session can't write what it keeps of the catalogs.
// TestReadinessEndsAnOutage: in the last tenth of an outage's bound the server fails commands at once. A look that finds the database ready ends that.
func TestReadinessEndsAnOutage(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t), UnavailableAfter: 100 * time.Hour})
	money := newLedgerService(t, db)
	fund(t, money, 10, "ann", "ben")
	db.presence.Missed(time.Now().Add(-95 * time.Hour))
	if err := transferOf(t, money, "ann", "ben"); !db.presence.Hopeless() || err == nil {
		t.Fatalf("the outage has not lasted for long: %v", err)
	}
	testwait.Must(t, db.Ready(t.Context()))
	testwait.Must(t, transferOf(t, money, "ann", "ben"))
}

func TestASessionFindsNoRoom(t *testing.T) {
	t.Parallel()
	refused := func(code, message string) error {
		return unready(operator.UnreadyDatabase, fmt.Errorf("connect: %w", &pgconn.PgError{Severity: "FATAL", Code: code, Message: message}))
	}
	if err := refused("XX000", "could not write init file"); !unreadyFor(err, operator.UnreadyDisk) {
		t.Error(err)
	}
	if err := refused("XX000", "cache lookup failed for relation 1259"); !unreadyFor(err, operator.UnreadyDatabase) {
		t.Error(err)
	}
}

// TestReadinessNoticesAFullDisk has temporary tables on a small disk, and fills that.
func TestReadinessNoticesAFullDisk(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if out, err := osexec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=1m,mode=777", "tmpfs", disk).CombinedOutput(); err != nil {
		t.Skipf("NOT TESTED: a small disk can't be mounted here: %v, %s", err, out)
	}
	t.Cleanup(func() { _ = osexec.CommandContext(context.Background(), "umount", "-l", disk).Run() })
	server := pgtest.Server(t)
	testwait.Must(t, testwait.Err(Migrate(t.Context(), server.URL())))
	db := open(t, Options{URL: server.URL(), MaxConns: 2})
	place := filepath.Join(disk, "tables")
	testwait.Must(t, os.Mkdir(place, 0o700))
	if owner, ok := ownerOf(t, ask[string](t, db, `SELECT current_setting('data_directory')`)); ok {
		testwait.Must(t, os.Chown(place, owner, owner))
	}
	execAll(t, db, `CREATE TABLESPACE small LOCATION '`+place+`'`, `ALTER ROLE CURRENT_USER SET temp_tablespaces = 'small'`)
	becomes(t, db, "")
	if err := os.WriteFile(filepath.Join(disk, "filling"), make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk takes 2 MiB: %v", err)
	}
	becomes(t, db, operator.UnreadyDisk)
	testwait.Must(t, os.Remove(filepath.Join(disk, "filling")))
	becomes(t, db, "")
}

// ownerOf is the numeric owner of a directory.
func ownerOf(t *testing.T, dir string) (uid int, ok bool) {
	t.Helper()
	info, err := os.Stat(dir)
	testwait.Must(t, err)
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}

func execAll(t *testing.T, db *DB, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		exec(t, db, sql)
	}
}
