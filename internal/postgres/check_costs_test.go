package postgres

import "testing"

// TestCostlyValues tells PostgreSQL's own values from costly ones.
func TestCostlyValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, fine, costly string }{
		{"autovacuum", "on", "off"},
		{"checkpoint_completion_target", "0.9", "0.5"},
		{"checkpoint_timeout", "300", "30"},
		{"max_wal_size", "1024", "64"},
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
