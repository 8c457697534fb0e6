package postgres

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestCostlyValues tells PostgreSQL's own values from costly ones.
func TestCostlyValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, fine, costly string }{
		{"autovacuum", "on", "off"},
		{"checkpoint_completion_target", "0.9", "0.5"},
		{"checkpoint_timeout", "300", "30"},
		{"max_wal_size", "1024", "64"},
		{"wal_compression", "off", "on"},
		{"wal_compression", "lz4", "pglz"},
	} {
		found := false
		for _, setting := range costly {
			if setting.name == c.name {
				found = true
				if setting.is(c.fine) || !setting.is(c.costly) {
					t.Errorf("%s: %s must be fine, and %s costly", c.name, c.fine, c.costly)
				}
			}
		}
		if !found {
			t.Errorf("the doctor does not look at %s", c.name)
		}
	}
}

// TestOutgrownLog tells checkpoints that come because the log has grown from those that somebody asks for, and from a few.
func TestOutgrownLog(t *testing.T) {
	t.Parallel()
	const gb = 1 << 30
	for name, c := range map[string]struct {
		timed, forced int64
		bytes         float64
		want          bool
	}{
		"each half of max_wal_size":   {2, 20, 20 * gb / 2, true},
		"among quiet hours":           {50, 20, 20 * gb, true},
		"some a day":                  {280, 20, 20 * gb, false},
		"a few":                       {0, 9, 9 * gb, false},
		"somebody makes and drops DB": {0, 20, 2 * gb, false},
	} {
		if got := outgrown(c.timed, c.forced, c.bytes, 1024); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// expectLogOutgrown writes to the log of a server until checkpoints have come too often, and then does what the doctor says.
func expectLogOutgrown(t *testing.T, db *DB) {
	t.Helper()
	costs := func() (found []Finding) {
		findings, err := db.Check(t.Context())
		testwait.Must(t, err)
		return slices.DeleteFunc(findings, func(f Finding) bool {
			return f.Check != "costs" || !strings.HasPrefix(f.Message, "max_wal_size is 32 MB")
		})
	}
	set := func(sql string) {
		exec(t, db, sql)
		exec(t, db, `SELECT pg_reload_conf()`)
	}
	set(`ALTER SYSTEM SET max_wal_size = '32MB'`)
	exec(t, db, `CHECKPOINT`)
	if found := costs(); len(found) > 0 {
		t.Errorf("before there was a load: %+v", found)
	}
	var found []Finding
	testwait.Eventually(t, 3*patience, "checkpoints come too often", func() bool {
		exec(t, db, `SELECT pg_logical_emit_message(true, 'test', repeat('x', 8 << 20))`)
		found = costs()
		return len(found) > 0
	})
	if f := found[0]; f.Fatal || !strings.Contains(f.Message, "checkpoints began because the log had grown to it") ||
		!strings.HasPrefix(f.Remedy, "ALTER SYSTEM SET max_wal_size = '64MB'; SELECT pg_reload_conf(), ") {
		t.Errorf("%+v", f)
	}
	for _, sql := range strings.SplitN(strings.Split(found[0].Remedy, ", so that")[0], "; ", 2) {
		exec(t, db, sql)
	}
	testwait.Eventually(t, patience, "the new size", func() bool {
		return ask[string](t, db, `SELECT current_setting('max_wal_size')`) == "64MB"
	})
	if found, err := logOutgrowsNow(t, db); err != nil || found != nil {
		t.Errorf("after what the doctor says was done: %+v, %v", found, err)
	}
}

func logOutgrowsNow(t *testing.T, db *DB) ([]cost, error) {
	t.Helper()
	conn, err := db.pool.Acquire(t.Context())
	testwait.Must(t, err)
	defer conn.Release()
	return logOutgrows(t.Context(), conn.Conn())
}
