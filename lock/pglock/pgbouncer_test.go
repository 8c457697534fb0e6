package pglock

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/locktest"
)

// bouncer starts a PgBouncer that assigns connections by transaction, few for many, and returns what makes a database's
// URL one through it.
func bouncer(t *testing.T, database string) func(database string) string {
	t.Helper()
	binary, err := exec.LookPath("pgbouncer")
	if err != nil {
		binary, err = exec.LookPath("/usr/sbin/pgbouncer")
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("PgBouncer is not installed, and CI=true: scripts/setup.sh test installs it")
		}
		t.Skip("PgBouncer is not installed: NOTHING IS TESTED behind a transaction pooler. scripts/setup.sh test installs it")
	}
	server, err := pgx.ParseConfig(database)
	testwait.Must(t, err)
	port := pgtest.Port(t)
	directory, err := os.MkdirTemp("", "fairlead-pgbouncer-") //nolint:usetesting // Another user must be able to get to it.
	testwait.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(directory, name)
		testwait.Must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	users := write("users", fmt.Sprintf("%q %q\n", server.User, server.Password))
	config := write("pgbouncer.ini", fmt.Sprintf(`[databases]
* = host=%s port=%d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = transaction
default_pool_size = 5
max_client_conn = 2000
query_wait_timeout = 60
server_login_retry = 1
ignore_startup_parameters = extra_float_digits
log_connections = 0
log_disconnections = 0
`, server.Host, server.Port, port, users))
	cmd := exec.CommandContext(context.Background(), binary, "-q", config)
	cmd.Stderr = os.Stderr
	unprivileged(t, cmd, directory)
	testwait.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // Killed is no success.
	})
	through := func(database string) string {
		u, err := url.Parse(database)
		testwait.Must(t, err)
		u.Host = fmt.Sprintf("127.0.0.1:%d", port)
		q := u.Query()
		q.Del("host")
		q.Del("port")
		q.Set("sslmode", "disable")
		q.Set("default_query_exec_mode", "exec") // PgBouncer before 1.21 knows no prepared statements.
		u.RawQuery = q.Encode()
		return u.String()
	}
	waitFor(t, "PgBouncer answers", func() bool {
		conn, err := pgx.Connect(t.Context(), through(database))
		if err == nil {
			err = conn.Close(t.Context())
		}
		return err == nil
	})
	return through
}

// TestConformanceThroughPgBouncer runs the whole suite behind a pooler in transaction mode, with fewer connections than
// those who ask.
func TestConformanceThroughPgBouncer(t *testing.T) {
	t.Parallel()
	through := bouncer(t, database(t))
	only := []string{ // In a short run: what rests on sessions, if anything does.
		"TokensGrow", "InOrderOfAsking", "DeadHolderIsReplaced", "DeadWaiterIsPassedOver", "LostRenewalsEndTheContextInTime",
		"DeadlockRings", "FenceRefusesOldTokens", "Histories",
	}
	if testwait.Torture() {
		only = nil
	}
	t.Run("suite", func(t *testing.T) {
		t.Parallel()
		locktest.Run(t, func(t *testing.T) locktest.Harness {
			t.Helper()
			return harness(t, through(database(t)))
		}, only...)
	})
}

// TestHandOverThroughPgBouncer: a waiter that hears no notifications knows so, and is quick nevertheless.
func TestHandOverThroughPgBouncer(t *testing.T) {
	t.Parallel()
	direct := database(t)
	url := bouncer(t, direct)(direct)
	a := open(t, url, Options{})
	b := open(t, url, Options{})
	l, other := lock.New(a, lock.LockerOptions{}), lock.New(b, lock.LockerOptions{})
	for range 5 {
		h := acquire(t, l, "k", lock.Options{Wait: time.Minute})
		got := make(chan *lock.Held, 1)
		go func() {
			h, err := other.Acquire(t.Context(), []string{"k"}, lock.Options{Wait: time.Minute})
			testwait.Check(t, err)
			got <- h
		}()
		oneWaits(t, a)
		testwait.Must(t, h.Release(t.Context()))
		next := <-got
		if next == nil {
			t.FailNow()
		}
		if next.Token("k") <= h.Token("k") {
			t.Errorf("token %d after %d", next.Token("k"), h.Token("k"))
		}
		testwait.Check(t, next.Release(t.Context()))
	}
	if b.hearing.Load() {
		t.Error("notifications are said to arrive")
	}
}
