package telemetry_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/telemetry"
)

// TestLog holds the names to those that alerts are written with.
func TestLog(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	l := telemetry.NewLog(r)
	state := telemetry.LogState{}
	l.Observe(func() telemetry.LogState { return state })
	l.Appended(3, 900, 2*time.Second, 500*time.Millisecond)
	l.Published(1003, 2, time.Second)
	l.Closed(40, false, 3*time.Second)
	l.Failed("publish")
	want := map[string]sample{
		"fairlead_log_leaves_total":                   {value: 3},
		"fairlead_log_leaf_bytes_total":               {value: 900},
		"fairlead_log_late_seconds":                   {1, 2},
		"fairlead_log_append_duration_seconds":        {1, .5},
		"fairlead_log_publish_duration_seconds":       {1, 1},
		"fairlead_log_close_duration_seconds":         {1, 3},
		"fairlead_log_checkpoint_leaves":              {value: 1003},
		"fairlead_log_checkpoint_witnesses":           {value: 2},
		"fairlead_log_closing_accounts":               {value: 40},
		"fairlead_log_closing_unbalanced":             {value: 1},
		`fairlead_log_failures_total{work="look"}`:    {},
		`fairlead_log_failures_total{work="append"}`:  {},
		`fairlead_log_failures_total{work="publish"}`: {value: 1},
		`fairlead_log_failures_total{work="close"}`:   {},
		"fairlead_log_leading":                        {},
		"fairlead_log_refused":                        {},
		"fairlead_log_missing_witnesses":              {},
	}
	expect(t, r, want)
	state = telemetry.LogState{Leading: true, Refused: true, MissingWitnesses: 2}
	l.Closed(40, true, 0)
	want["fairlead_log_leading"], want["fairlead_log_refused"], want["fairlead_log_missing_witnesses"] = sample{value: 1}, sample{value: 1}, sample{value: 2}
	want["fairlead_log_closing_unbalanced"], want["fairlead_log_close_duration_seconds"] = sample{}, sample{2, 3}
	expect(t, r, want)
}
