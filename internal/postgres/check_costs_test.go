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

// TestEarlyCheckpoints tells early checkpoints from requested ones, and from a few.
func TestEarlyCheckpoints(t *testing.T) {
	t.Parallel()
	const gb = 1 << 30
	for name, c := range map[string]struct {
		timed, requested int64
		bytes            float64
		want             bool
	}{
		"each after half of max_wal_size": {2, 20, 20 * gb / 2, true},
		"with quiet hours":                {50, 20, 20 * gb, true},
		"some a day":                      {280, 20, 20 * gb, false},
		"a few":                           {0, 9, 9 * gb, false},
		"databases were dropped":          {0, 20, 2 * gb, false},
	} {
		if got := tooEarly(c.timed, c.requested, c.bytes, 1024); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// expectEarlyCheckpoints writes to the log of a server until the doctor reports early checkpoints, and then does what the doctor says.
func expectEarlyCheckpoints(t *testing.T, db *DB) {
	t.Helper()
	early := func() (found []Finding) {
		findings, err := db.Check(t.Context())
		testwait.Must(t, err)
		return slices.DeleteFunc(findings, func(f Finding) bool {
			return !strings.Contains(f.Message, "checkpoints began because the log had reached it")
		})
	}
	exec(t, db, `ALTER SYSTEM SET max_wal_size = '32MB'`)
	exec(t, db, `SELECT pg_reload_conf()`)
	exec(t, db, `CHECKPOINT`)
	if found := early(); len(found) > 0 {
		t.Errorf("before there was a load: %+v", found)
	}
	var found []Finding
	testwait.Eventually(t, 3*patience, "early checkpoints", func() bool {
		exec(t, db, `SELECT pg_logical_emit_message(true, 'test', repeat('x', 8 << 20))`)
		found = early()
		return len(found) > 0
	})
	f := found[0]
	if f.Check != "costs" || f.Fatal || !strings.HasPrefix(f.Message, "max_wal_size is 32 MB: since ") {
		t.Errorf("%+v", f)
	}
	remedy, _, _ := strings.Cut(f.Remedy, "; the last two")
	for sql := range strings.SplitSeq(remedy, "; ") {
		exec(t, db, sql)
	}
	testwait.Eventually(t, patience, "the new size", func() bool {
		return ask[string](t, db, `SELECT current_setting('max_wal_size')`) == "64MB"
	})
	if found := early(); len(found) > 0 {
		t.Errorf("after the remedy: %+v", found)
	}
}
