// Package pgcopy copies private PostgreSQL servers while they run, for tests and benchmarks: it needs access to their files, and not to
// the programs that come with a server. What it makes is started by localpg.
package pgcopy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Standby is [Copy] of a server that the copy then streams from, under the name that synchronous_standby_names would have.
func Standby(ctx context.Context, url, dir, name string) error {
	primary, err := pgx.ParseConfig(url)
	if err != nil {
		return err
	}
	if err := admitReplication(ctx, url); err != nil {
		return err
	}
	if err := Copy(ctx, url, dir); err != nil {
		return err
	}
	follow := fmt.Sprintf("primary_conninfo = 'host=%s port=%d user=%s application_name=%s'\n", primary.Host, primary.Port, primary.User, name)
	return errors.Join(os.WriteFile(filepath.Join(dir, "postgres", "standby.signal"), nil, 0o600),
		os.WriteFile(filepath.Join(dir, "postgres", "postgresql.auto.conf"), []byte(follow), 0o600))
}

// Copy makes a base backup of the server behind a URL, for [localpg.Start] in dir. It follows the manual's chapter on low-level base
// backups: first the files, last the log that makes them agree.
func Copy(ctx context.Context, url, dir string) (err error) {
	to := filepath.Join(dir, "postgres")
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	begin, end := `pg_backup_start('fairlead', true)`, `pg_backup_stop(false)`
	if strings.HasPrefix(conn.PgConn().ParameterStatus("server_version"), "14.") { // They were renamed in 15.
		begin, end = `pg_start_backup('fairlead', true, false)`, `pg_stop_backup(false)`
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
		content, err := os.ReadFile(path) //nolint:gosec // The server's own directory.
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), content, 0o600) //nolint:gosec // As above.
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
