package lockprom_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/lockprom"
)

// gather reads a registry by name and labels, as in name{label="value"}; of a histogram it reads the count.
func gather(t *testing.T, r prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	testwait.Must(t, err)
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+`="`+l.GetValue()+`"`)
			}
			key := f.GetName()
			if len(labels) > 0 {
				key += "{" + strings.Join(labels, ",") + "}"
			}
			values[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	l := lockprom.New(r, "api")
	if got := gather(t, r); got[`fairlead_lock_requests_total{class="api",outcome="deadlock"}`] != 0 || len(got) < 15 {
		t.Errorf("before anything: %v", got)
	}
	l.Asked("api", lock.OutcomeGranted, time.Second, true)
	l.Asked("api", lock.OutcomeDeadlock, time.Second, false)
	l.Ended("api", 2*time.Second, nil)
	l.Ended("jobs", 3*time.Second, errors.New("lost"))
	l.Expired(2)
	l.Victim()
	l.HandedOver()
	l.Fallback("blind")
	// By the database's clock, which is a day behind: how long is the same.
	at := time.Now().Add(-24 * time.Hour)
	l.Sample(lock.Snapshot{
		At:      at,
		Holders: []lock.Grant{{GrantedAt: at.Add(-time.Minute)}, {GrantedAt: at}},
		Waiters: []lock.Waiter{{Since: at.Add(-time.Second)}},
	})
	got := gather(t, r)
	for name, want := range map[string]float64{
		`fairlead_lock_requests_total{class="api",outcome="granted"}`:  1,
		`fairlead_lock_requests_total{class="api",outcome="deadlock"}`: 1,
		`fairlead_lock_contended_total{class="api"}`:                   1,
		`fairlead_lock_wait_seconds{class="api"}`:                      2,
		`fairlead_lock_hold_seconds{class="api"}`:                      1,
		`fairlead_lock_lost_total{class="api"}`:                        0,
		`fairlead_lock_lost_total{class="jobs"}`:                       1,
		`fairlead_lock_expired_total`:                                  2,
		`fairlead_lock_deadlock_victims_total`:                         1,
		`fairlead_lock_handovers_total`:                                1,
		`fairlead_lock_fallbacks_total{reason="blind"}`:                1,
		`fairlead_locks_held`:                                          2,
		`fairlead_locks_waiting`:                                       1,
		`fairlead_lock_oldest_hold_seconds`:                            60,
		`fairlead_lock_longest_wait_seconds`:                           1,
	} {
		if is, ok := got[name]; !ok || is != want {
			t.Errorf("%s is %v, want %v", name, is, want)
		}
	}
	l.Sample(lock.Snapshot{At: at})
	if got = gather(t, r); got[`fairlead_lock_oldest_hold_seconds`] != 0 || got[`fairlead_locks_held`] != 0 {
		t.Errorf("after all have gone: %v", got)
	}
}

// TestLockAlertsAreAboutMetricsThatExist reads the rules and the design page.
func TestLockAlertsAreAboutMetricsThatExist(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	lockprom.New(r, "api")
	families, err := r.Gather()
	testwait.Must(t, err)
	known := map[string]bool{}
	for _, f := range families {
		known[f.GetName()] = true
	}
	names := regexp.MustCompile(`fairlead_locks?_[a-z_]*[a-z]`)
	for _, page := range []string{"operations/alerts.yaml", "design/lock.md"} {
		text, err := os.ReadFile(filepath.Join("../../docs", page))
		testwait.Must(t, err)
		found := names.FindAllString(string(text), -1)
		for _, name := range found {
			if !known[strings.TrimSuffix(name, "_bucket")] {
				t.Errorf("%s: %s is no metric", page, name)
			}
		}
		if len(found) < 4 {
			t.Errorf("%s names %q", page, found)
		}
	}
}
