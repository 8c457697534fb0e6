package telemetry_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// sample is one value of one metric; of a histogram it is the count, and sum is the sum.
type sample struct{ value, sum float64 }

// gather reads a registry into samples by name and labels, as in name{label="value"}.
func gather(t *testing.T, r prometheus.Gatherer) map[string]sample {
	t.Helper()
	families, err := r.Gather()
	testwait.Must(t, err)
	name := regexp.MustCompile(`^fairlead_[a-z_]+$`)
	samples := map[string]sample{}
	for _, f := range families {
		if !name.MatchString(f.GetName()) || f.GetHelp() == "" {
			t.Errorf("metric %q with help %q", f.GetName(), f.GetHelp())
		}
		if counter := f.GetType().String() == "COUNTER"; counter != strings.HasSuffix(f.GetName(), "_total") {
			t.Errorf("%s is a %s", f.GetName(), f.GetType())
		}
		// Gauges may be times too.
		timed := f.GetType().String() == "HISTOGRAM" && f.GetName() != "fairlead_lane_batch_size" && f.GetName() != "fairlead_checkpoint_state_bytes"
		if inSeconds := strings.HasSuffix(f.GetName(), "_seconds"); timed && !inSeconds || inSeconds && f.GetType().String() == "COUNTER" {
			t.Errorf("%s is a %s", f.GetName(), f.GetType())
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+`="`+l.GetValue()+`"`)
			}
			key := f.GetName()
			if len(labels) > 0 {
				key += "{" + strings.Join(labels, ",") + "}"
			}
			switch {
			case m.GetCounter() != nil:
				samples[key] = sample{value: m.GetCounter().GetValue()}
			case m.GetGauge() != nil:
				samples[key] = sample{value: m.GetGauge().GetValue()}
			case m.GetHistogram() != nil:
				samples[key] = sample{value: float64(m.GetHistogram().GetSampleCount()), sum: m.GetHistogram().GetSampleSum()}
			}
		}
	}
	return samples
}

func expect(t *testing.T, r prometheus.Gatherer, want map[string]sample) {
	t.Helper()
	got := gather(t, r)
	for name, s := range want {
		if g, ok := got[name]; !ok || g != s {
			t.Errorf("%s is %+v (there: %v), want %+v", name, g, ok, s)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("metrics that nobody asked for: %+v", got)
	}
}

func TestLanes(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	l := telemetry.NewLanes(r, "ledger")
	telemetry.NewLanes(r, "lottery").Refused()
	l.Taken(3, 9, 2*time.Second)
	l.Taken(5, 4, time.Second)
	l.Flushed(3, 500*time.Millisecond, nil)
	l.Flushed(5, time.Second, errors.New("no"))
	l.Bisected(5)
	l.Refused()
	l.Refused()
	l.Panicked(&groupcommit.PanicError{})
	l.Made(func() groupcommit.Load { return groupcommit.Load{All: 7, Most: 5} })
	want := map[string]sample{}
	for name, s := range map[string]sample{
		"batch_size": {2, 8}, "flush_duration_seconds": {2, 1.5}, "wait_duration_seconds": {2, 3}, "queue_depth": {value: 4},
		"bisections_total": {value: 1}, "refused_total": {value: 2}, "panics_total": {value: 1}, "failures_total": {value: 1},
		"commands_total": {value: 8}, "in_flight": {value: 7}, "in_flight_busiest": {value: 5},
	} {
		want["fairlead_lane_"+name+`{service="ledger"}`] = s
		want["fairlead_lane_"+name+`{service="lottery"}`] = sample{}
	}
	want[`fairlead_lane_refused_total{service="lottery"}`] = sample{value: 1}
	expect(t, r, want)
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	tx := telemetry.NewTransactions(r)
	tx.Retry("ledger", "40P01")
	tx.Retry("ledger", "40P01")
	tx.Retry("ledger", "commit_unknown")
	tx.Fallback("auction", "stale")
	tx.Blocked(2, 30)
	tx.BlockedTables(3)
	tx.MetOldPrimary(true)
	tx.Transaction("ledger", 3, 2*time.Second, "committed")
	tx.Transaction("lottery", 1, time.Second, "failed")
	expect(t, r, map[string]sample{
		`fairlead_transaction_retries_total{reason="40P01",transaction="ledger"}`:          {value: 2},
		`fairlead_transaction_retries_total{reason="commit_unknown",transaction="ledger"}`: {value: 1},
		`fairlead_transactions_total{outcome="committed",transaction="ledger"}`:            {value: 1},
		`fairlead_transaction_fallbacks_total{reason="stale",transaction="auction"}`:       {value: 1},
		`fairlead_blocked_rows`:                                       {value: 2},
		`fairlead_blocked_tables`:                                     {value: 3},
		`fairlead_blocked_commands`:                                   {value: 30},
		`fairlead_old_primary_connections_total{outcome="refused"}`:   {value: 1},
		`fairlead_old_primary_connections_total{outcome="committed"}`: {},
		// What nobody has seen yet is there with 0, so that its first time is an increase.
		`fairlead_transactions_total{outcome="failed",transaction="ledger"}`:     {},
		`fairlead_transactions_total{outcome="unknown",transaction="ledger"}`:    {},
		`fairlead_transactions_total{outcome="committed",transaction="lottery"}`: {},
		`fairlead_transactions_total{outcome="unknown",transaction="lottery"}`:   {},
		`fairlead_transactions_total{outcome="failed",transaction="lottery"}`:    {value: 1},
		`fairlead_transaction_duration_seconds{transaction="ledger"}`:            {1, 2},
		`fairlead_transaction_duration_seconds{transaction="lottery"}`:           {1, 1},
	})
}

// TestLottery holds the names to those that alerts and dashboards are written with.
func TestLottery(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	l := telemetry.NewLottery(r, []string{"deadlock"})
	names := map[string]sample{}
	for _, n := range []string{
		"commands_total", "draw_triggered_total", "draw_success_total", `draw_failure_total{error_type="deadlock"}`, "draw_retries_total",
		"state_machine_conflicts_total", "draw_duration_seconds", "advisory_lock_wait_seconds", "draws_stuck", "oversold_campaigns", "duplicate_draws",
		`beacon_attempts_total{result="ok"}`, "beacon_waiting", "beacon_overdue_seconds",
	} {
		names["fairlead_lottery_"+n] = sample{}
	}
	expect(t, r, names) // All of them are there from the start, so that an alert on absence makes sense.

	l.Attempted(7)
	l.DrawTriggered(false)
	l.DrawTriggered(true)
	l.DrawEnded(time.Hour, "deadlock") // A failure's time says nothing about how long draws take.
	l.DrawEnded(2*time.Second, "")
	l.Conflicts(1)
	l.LockWait(time.Second)
	l.Watched(3, 2, 5, 4, 90*time.Second)
	l.RoundTried("")
	l.RoundTried("timeout")
	for n, s := range map[string]sample{
		"commands_total": {value: 7}, "draw_triggered_total": {value: 2}, "draw_retries_total": {value: 1},
		"draw_success_total": {value: 1}, `draw_failure_total{error_type="deadlock"}`: {value: 1}, "draw_duration_seconds": {1, 2},
		"state_machine_conflicts_total": {value: 1}, "advisory_lock_wait_seconds": {1, 1}, "draws_stuck": {value: 3},
		"oversold_campaigns": {value: 2}, "duplicate_draws": {value: 5}, `beacon_attempts_total{result="ok"}`: {value: 1},
		`beacon_attempts_total{result="timeout"}`: {value: 1}, "beacon_waiting": {value: 4}, "beacon_overdue_seconds": {value: 90},
	} {
		names["fairlead_lottery_"+n] = s
	}
	expect(t, r, names)
	l.Watched(0, 0, 0, 0, 0)
	names["fairlead_lottery_draws_stuck"], names["fairlead_lottery_oversold_campaigns"] = sample{}, sample{}
	names["fairlead_lottery_duplicate_draws"] = sample{}
	names["fairlead_lottery_beacon_waiting"], names["fairlead_lottery_beacon_overdue_seconds"] = sample{}, sample{}
	expect(t, r, names)
}

func TestAllMetricsFitOneRegistry(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	telemetry.NewLanes(r, "ledger")
	telemetry.NewTransactions(r).Transaction("ledger", 1, time.Second, "committed")
	telemetry.NewLottery(r, []string{"deadlock"})
	telemetry.NewAuctions(r, auction.Outcomes())
	got := gather(t, r)
	services := slices.Collect(func(yield func(string) bool) {
		for name := range got {
			if !yield(strings.Join(strings.Split(name, "_")[:2], "_")) {
				return
			}
		}
	})
	for _, prefix := range []string{"fairlead_lane", "fairlead_transaction", "fairlead_lottery", "fairlead_auction"} {
		if !slices.Contains(services, prefix) {
			t.Errorf("no metric of %s", prefix)
		}
	}
}
