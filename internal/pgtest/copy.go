package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// CopyOf makes a base backup of a server while it runs, and starts a second server on it: a physical copy, with the same system
// identifier, timeline and contents. It is stopped and removed at the test's end.
func CopyOf(tb testing.TB, of *localpg.Instance) *localpg.Instance {
	tb.Helper()
	return ServerOn(tb, copying(tb, of))
}

// PromotedCopyOf is CopyOf on the next timeline, as a standby that was promoted.
func PromotedCopyOf(tb testing.TB, of *localpg.Instance) *localpg.Instance {
	tb.Helper()
	return ServerOn(tb, func(dir string) error {
		if err := copying(tb, of)(dir); err != nil {
			return err
		}
		// Recovery ends with the log that was copied. Nobody can connect before: who starts it takes its first answer for the end.
		settings := "restore_command = 'false'\nhot_standby = off\n"
		return errors.Join(os.WriteFile(filepath.Join(dir, "postgres", "recovery.signal"), nil, 0o600),
			os.WriteFile(filepath.Join(dir, "postgres", "postgresql.auto.conf"), []byte(settings), 0o600))
	})
}

// StandbyOf makes a standby of a server, which streams from it under the name that synchronous_standby_names would have. It is stopped
// and removed at the test's end.
func StandbyOf(tb testing.TB, of *localpg.Instance, name string) *localpg.Instance {
	tb.Helper()
	primary, err := pgx.ParseConfig(of.URL())
	testwait.Must(tb, err)
	return ServerOn(tb, func(dir string) error {
		if err := admitReplication(tb.Context(), of.URL()); err != nil {
			return err
		}
		if err := copying(tb, of)(dir); err != nil {
			return err
		}
		follow := fmt.Sprintf("primary_conninfo = 'host=%s port=%d user=%s application_name=%s'\n", primary.Host, primary.Port, primary.User, name)
		return errors.Join(os.WriteFile(filepath.Join(dir, "postgres", "standby.signal"), nil, 0o600),
			os.WriteFile(filepath.Join(dir, "postgres", "postgresql.auto.conf"), []byte(follow), 0o600))
	})
}

// admitReplication lets standbys connect to a private server.
func admitReplication(ctx context.Context, url string) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	var path string
	if err := conn.QueryRow(ctx, `SELECT current_setting('hba_file')`).Scan(&path); err != nil {
		return err
	}
	rules, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = rules.WriteString("local replication all trust\n")
	if err = errors.Join(err, rules.Close()); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `SELECT pg_reload_conf()`)
	return err
}

func copying(tb testing.TB, of *localpg.Instance) func(dir string) error {
	tb.Helper()
	return func(dir string) error {
		ctx, cancel := context.WithTimeout(tb.Context(), startLimit)
		defer cancel()
		return baseBackup(ctx, of.URL(), filepath.Join(dir, "postgres"))
	}
}

// baseBackup follows the manual's chapter on low-level base backups: first the files, last the log that makes them agree.
func baseBackup(ctx context.Context, url, to string) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	begin, end := `pg_backup_start('pgtest', true)`, `pg_backup_stop(false)`
	if strings.HasPrefix(conn.PgConn().ParameterStatus("server_version"), "14.") { // They were renamed in 15.
		begin, end = `pg_start_backup('pgtest', true, false)`, `pg_stop_backup(false)`
	}
	var from, label string
	if err := conn.QueryRow(ctx, `SELECT current_setting('data_directory') FROM `+begin).Scan(&from); err != nil {
		return err
	}
	isLog := func(path string) bool { return strings.HasPrefix(path, "pg_wal/") }
	if err := copyFiles(from, to, func(path string) bool { return !isLog(path) && path != "postmaster.pid" && path != "postmaster.opts" }); err != nil {
		return err
	}
	if err := conn.QueryRow(ctx, `SELECT labelfile FROM `+end).Scan(&label); err != nil {
		return err
	}
	if err := copyFiles(from, to, isLog); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, "backup_label"), []byte(label), 0o600)
}

// copyFiles copies those files of a directory that are wanted, and all directories. A file may go away meanwhile.
func copyFiles(from, to string, wanted func(path string) bool) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		if !d.Type().IsRegular() || !wanted(filepath.ToSlash(rel)) {
			return nil
		}
		content, err := os.ReadFile(path) //nolint:gosec // A test's own directory.
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), content, 0o600) //nolint:gosec // As above.
	})
}

// Restart kills a server, and waits until it has been started again by itself.
func Restart(tb testing.TB, i *localpg.Instance) {
	tb.Helper()
	restarts := i.Restarts()
	process, err := os.FindProcess(i.PID())
	testwait.Must(tb, err)
	testwait.Must(tb, process.Kill())
	testwait.Eventually(tb, startLimit, "the restart", func() bool {
		if i.Restarts() == restarts {
			return false
		}
		conn, err := pgx.Connect(tb.Context(), i.URL())
		if err == nil {
			_ = conn.Close(tb.Context())
		}
		return err == nil
	})
}
