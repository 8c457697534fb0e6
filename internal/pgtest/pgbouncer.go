package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// bouncerVariable names a PgBouncer other than the installed one: scripts/pgbouncer.sh runs the tests on the newest.
const bouncerVariable = "FAIRLEAD_PGBOUNCER"

// Bouncer is a PgBouncer that a test started.
type Bouncer struct {
	// Prepares says that sessions may have prepared statements even in transaction mode. PgBouncer before 1.21 has none.
	Prepares bool

	port int
}

// PgBouncer starts a PgBouncer in front of the server of a database, with further lines for its section [pgbouncer] such as
// "pool_mode = transaction". It ends with the test.
func PgBouncer(tb testing.TB, database string, lines ...string) *Bouncer {
	tb.Helper()
	if os.Getenv(optionsVariable) != "" {
		tb.Skip("PgBouncer refuses the settings that " + optionsVariable + " has")
	}
	binary := os.Getenv(bouncerVariable)
	if binary == "" {
		binary = "/usr/sbin/pgbouncer" // not on everybody's path
		if _, err := os.Stat(binary); err != nil {
			binary = Program(tb, "pgbouncer")
		}
	}
	version, err := exec.CommandContext(tb.Context(), binary, "--version").Output() //nolint:gosec // Whoever runs the tests names it.
	testwait.Must(tb, err)
	var major, minor int
	_, err = fmt.Sscanf(string(version), "PgBouncer %d.%d", &major, &minor)
	testwait.Must(tb, err)
	tb.Log(strings.SplitN(string(version), "\n", 2)[0])
	server, err := pgx.ParseConfig(database)
	testwait.Must(tb, err)
	b := &Bouncer{Prepares: major > 1 || minor >= 21, port: Port(tb)}
	if b.Prepares {
		lines = append(lines, "max_prepared_statements = 200") // It is not the default of each.
	}
	directory, err := os.MkdirTemp("", "fairlead-pgbouncer-") //nolint:usetesting // Another user must be able to get to it.
	testwait.Must(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(directory) })
	write := func(name, text string) string {
		tb.Helper()
		path := filepath.Join(directory, name)
		testwait.Must(tb, os.WriteFile(path, []byte(text), 0o600))
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
max_client_conn = 2000
server_login_retry = 1
log_connections = 0
log_disconnections = 0
%s
`, server.Host, server.Port, b.port, users, strings.Join(lines, "\n")))
	cmd := exec.CommandContext(context.Background(), binary, "-q", config) //nolint:gosec // Likewise.
	cmd.Stderr = os.Stderr
	unprivileged(tb, cmd, directory)
	testwait.Must(tb, cmd.Start())
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // Killed is no success.
	})
	testwait.Eventually(tb, startLimit, "PgBouncer answers", func() bool {
		conn, err := pgx.Connect(tb.Context(), b.Through(tb, database))
		if err == nil {
			err = conn.Close(tb.Context())
		}
		return err == nil
	})
	return b
}

// Through returns the address of a database through the PgBouncer.
func (b *Bouncer) Through(tb testing.TB, database string) string {
	tb.Helper()
	u, err := url.Parse(database)
	testwait.Must(tb, err)
	u.Host = fmt.Sprintf("127.0.0.1:%d", b.port)
	q := u.Query()
	q.Del("host")
	q.Del("port")
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	return u.String()
}
