package pgsaga_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// copyOf makes a base backup of a server while it runs, and starts a second server on it: a physical copy, with the same system
// identifier, timeline and contents. It is stopped and removed at the test's end.
func copyOf(t *testing.T, of *localpg.Instance) *localpg.Instance {
	t.Helper()
	return pgtest.ServerOn(t, func(dir string) error {
		return baseBackup(testwait.Context(t, patience), of.URL(), filepath.Join(dir, "postgres"))
	})
}

// baseBackup follows the manual's chapter on low-level base backups: first the files, last the log that makes them agree.
func baseBackup(ctx context.Context, url, to string) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	var from, label string
	if err := conn.QueryRow(ctx, `SELECT current_setting('data_directory') FROM pg_backup_start('pgtest', true)`).Scan(&from); err != nil {
		return err
	}
	isLog := func(path string) bool { return strings.HasPrefix(path, "pg_wal/") }
	if err := copyFiles(from, to, func(path string) bool { return !isLog(path) && path != "postmaster.pid" && path != "postmaster.opts" }); err != nil {
		return err
	}
	if err := conn.QueryRow(ctx, `SELECT labelfile FROM pg_backup_stop(false)`).Scan(&label); err != nil {
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
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), content, 0o600)
	})
}
