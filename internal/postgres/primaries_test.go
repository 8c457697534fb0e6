package postgres

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestOldPrimary has a standby promoted while the old primary goes on, without a standby that confirms its commits. Once a connection
// has led to the new one, there are none to the old one: those that there were are closed, and new ones go to the next host. When it
// can commit again, it is the primary again.
func TestOldPrimary(t *testing.T) {
	t.Parallel()
	old := pgtest.Server(t)
	testwait.Must(t, migrated(t.Context(), old.URL()))
	log := &testwait.Buffer{}
	seen := &recorder{}
	db := open(t, Options{URL: old.URL(), Logger: slog.New(slog.NewTextHandler(log, nil)), Observer: seen})
	held, err := db.pool.Acquire(t.Context())
	testwait.Must(t, err)
	defer held.Release()

	leadsTo := func(servers ...*localpg.Instance) *pgx.ConnConfig {
		config := db.pool.Config().ConnConfig
		config.Fallbacks = nil
		for i, s := range servers {
			of, err := pgx.ParseConfig(s.URL())
			testwait.Must(t, err)
			if i == 0 {
				config.Host, config.Port = of.Host, of.Port
			}
			config.Fallbacks = append(config.Fallbacks, &pgconn.FallbackConfig{Host: of.Host, Port: of.Port})
		}
		config.Fallbacks = config.Fallbacks[1:]
		return config
	}
	connects := func(to ...*localpg.Instance) *pgx.Conn {
		t.Helper()
		conn, err := pgx.ConnectConfig(t.Context(), leadsTo(to...))
		testwait.Must(t, err)
		t.Cleanup(func() { _ = conn.Close(t.Context()) })
		return conn
	}
	promoted := pgtest.PromotedCopyOf(t, old)
	connects(old)
	testwait.Must(t, held.Ping(t.Context()))
	for _, sql := range []string{`ALTER SYSTEM SET synchronous_standby_names = 'promoted'`, `SELECT pg_reload_conf()`} {
		exec(t, db, sql)
	}
	connects(promoted)
	if err := held.Ping(t.Context()); err == nil || pgkit.Code(err) != "" {
		t.Errorf("a connection to the old primary was not closed: %v", err)
	}
	if conn, err := pgx.ConnectConfig(t.Context(), leadsTo(old)); err == nil || !strings.Contains(err.Error(), "an old primary: its timeline is 1, and there is one with 2") {
		t.Errorf("connected to the old primary: %v, %v", conn, err)
	}
	if !onTimeline(t, connects(old, promoted), "00000002") {
		t.Error("not connected to the new primary")
	}
	if _, err := query(t.Context(), db, pgx.RowTo[string], `SELECT id FROM accounts LIMIT 1`); !errors.Is(err, command.ErrUnavailable) {
		t.Errorf("read from the old primary: %v", err)
	}
	if said := log.String(); strings.Count(said, "old primary are refused") != 1 {
		t.Errorf("the log says %s", said)
	}
	admin := pgtest.Connect(t, old.URL())
	for _, sql := range []string{`ALTER SYSTEM RESET synchronous_standby_names`, `SELECT pg_reload_conf()`} {
		_, err := admin.Exec(t.Context(), sql)
		testwait.Must(t, err)
	}
	testwait.Eventually(t, patience, "the old primary commits", func() bool { return db.pool.Ping(t.Context()) == nil })
	if said := log.String(); !strings.Contains(said, "is on an older timeline than the last one, and commits") {
		t.Errorf("the log says %s", said)
	}
	// Another cluster is none of these.
	connects(pgtest.Server(t))
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if seen.fell["old primary, refused: true"] < 2 || seen.fell["old primary, refused: false"] == 0 {
		t.Errorf("counted: %v", seen.fell)
	}
}

func onTimeline(t *testing.T, conn *pgx.Conn, timeline string) bool {
	t.Helper()
	var on string
	testwait.Must(t, conn.QueryRow(t.Context(), `SELECT substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)`).Scan(&on))
	return on == timeline
}

// TestAdmit decides in one step, so that a connection which was asked before a promotion can't undo it when it comes late.
func TestAdmit(t *testing.T) {
	t.Parallel()
	p := &primaries{conns: map[*trackedConn]struct{}{}}
	connection := func() *trackedConn {
		one, other := net.Pipe()
		c := &trackedConn{Conn: one, of: p}
		p.conns[c] = struct{}{}
		t.Cleanup(func() { _ = c.Close(); _ = other.Close() })
		return c
	}
	closed := func(c *trackedConn) bool { return errors.Is(c.SetDeadline(time.Time{}), io.ErrClosedPipe) }
	first, late, second, third := connection(), connection(), connection(), connection()
	for _, step := range []struct {
		conn                     *trackedConn
		timeline, proved, newest uint64
	}{
		{first, 16, 0, 0},
		{second, 17, 0, 0},
		{late, 16, 0, 17},
		{third, 18, 0, 0},
		{late, 16, 17, 18}, // What was proved was in spite of another.
		{late, 16, 18, 0},
	} {
		if newest := p.admit(step.conn, "", "cluster", step.timeline, step.proved); newest != step.newest {
			t.Fatalf("%+v: %d", step, newest)
		}
	}
	if !closed(first) || !closed(second) || !closed(third) || closed(late) {
		t.Errorf("closed: %t, %t, %t, %t", closed(first), closed(second), closed(third), closed(late))
	}
}
