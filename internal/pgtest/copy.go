package pgtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/pgcopy"
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
	return ServerOn(tb, func(dir string) error {
		ctx, cancel := context.WithTimeout(tb.Context(), startLimit)
		defer cancel()
		return pgcopy.Standby(ctx, of.URL(), dir, name)
	})
}

func copying(tb testing.TB, of *localpg.Instance) func(dir string) error {
	tb.Helper()
	return func(dir string) error {
		ctx, cancel := context.WithTimeout(tb.Context(), startLimit)
		defer cancel()
		return pgcopy.Copy(ctx, of.URL(), dir)
	}
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
