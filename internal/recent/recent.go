// Package recent keeps what one server has measured over the last hour, for the console's charts. Every [Every] it reads the
// metrics that are there anyway and keeps the differences, so that what is measured costs nothing more.
//
// The memory is bounded: [MaxSeries] series of [Samples] numbers are 184 KB.
package recent

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/fairlead-dev/fairlead/internal/top"
)

// Bounds of what is kept.
const (
	// Every is the time between two samples, and Samples how many are kept: those of an hour.
	Every   = 10 * time.Second
	Samples = 360
	// MaxSeries is how many series there may be. Refusals and targets beyond it are summed up under [Other].
	MaxSeries = 64
)

// Other is the code, or target, of those that have no series of their own.
const Other = "other"

// kinds are the metrics with a series for each value of a label, by the beginning of the series' name. results, where there is one,
// names a second label, whose value is put in front.
//
//nolint:gochecknoglobals // A table that nothing changes.
var kinds = []struct{ metric, label, prefix, result string }{
	{"fairlead_problems_total", "code", "refused ", ""},
	{"fairlead_publish_target_attempts_total", "target", "attempts ", "result"},
}

// Hour keeps the samples of an hour. It is safe for concurrent use.
type Hour struct {
	mu     sync.Mutex
	began  time.Time
	n      int // samples taken so far
	at     [Samples]time.Time
	series map[string]*[Samples]float64 // NaN where nothing was measured

	before   *top.Snapshot
	labelled map[string]float64
	took     time.Time
}

// New returns an hour that has no sample yet.
func New(began time.Time) *Hour { return &Hour{began: began, series: map[string]*[Samples]float64{}} }

// Sample keeps what was measured between the last call and this one. The first call keeps nothing: it is what the second is compared
// with.
func (h *Hour) Sample(families []*dto.MetricFamily, now time.Time) {
	after, counted := top.Read(slices.Values(families)), labelled(families)
	h.mu.Lock()
	defer h.mu.Unlock()
	seconds := now.Sub(h.took).Seconds()
	if h.before == nil || seconds <= 0 {
		h.before, h.labelled, h.took = after, counted, now
		return
	}
	place := h.n % Samples
	for _, values := range h.series {
		values[place] = math.NaN()
	}
	h.at[place] = now
	for name, value := range between(h.before, after, seconds) {
		h.of(name)[place] = value
	}
	// In order, so that the same names have series of their own in every sample.
	for _, name := range slices.Sorted(maps.Keys(counted)) {
		h.add(name, place, max(0, counted[name]-h.labelled[name])/seconds)
	}
	h.n++
	h.before, h.labelled, h.took = after, counted, now
}

// add adds a rate to a series of a labelled metric: to that of [Other] where there is no room for more.
func (h *Hour) add(name string, place int, rate float64) {
	if h.series[name] == nil {
		if rate == 0 {
			return // What never happened needs no series.
		}
		if len(h.series) >= MaxSeries-2*len(kinds) {
			name = name[:strings.LastIndexByte(name, ' ')+1] + Other
		}
	}
	values := h.of(name)
	if math.IsNaN(values[place]) {
		values[place] = 0
	}
	values[place] += rate
}

func (h *Hour) of(name string) *[Samples]float64 {
	values := h.series[name]
	if values == nil {
		values = new([Samples]float64)
		for i := range values {
			values[i] = math.NaN()
		}
		h.series[name] = values
	}
	return values
}

// Series is one line of a chart.
type Series struct {
	Name   string
	Values []*float64 // nil where nothing was measured
}

// Window is what is kept of an hour.
type Window struct {
	Began  time.Time // when the process began
	Last   int       // the number of the last sample, to ask for those after it
	At     []time.Time
	Series []Series // by name
}

// After returns the samples whose number, counted from 1 since the process began, is greater than n.
func (h *Hour) After(n int) Window {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := max(n, h.n-Samples, 0)
	w := Window{Began: h.began, Last: h.n}
	for i := first; i < h.n; i++ {
		w.At = append(w.At, h.at[i%Samples])
	}
	for _, name := range slices.Sorted(maps.Keys(h.series)) {
		s := Series{Name: name, Values: make([]*float64, 0, len(w.At))}
		for i := first; i < h.n; i++ {
			var p *float64
			if v := h.series[name][i%Samples]; !math.IsNaN(v) {
				p = &v
			}
			s.Values = append(s.Values, p)
		}
		w.Series = append(w.Series, s)
	}
	return w
}

// between is what happened from one snapshot to the next: rates a second, and quantiles in seconds, which are NaN where there was nothing to measure.
func between(before, after *top.Snapshot, seconds float64) map[string]float64 {
	out := map[string]float64{"locks waiting": after.Sum("fairlead_locks_waiting")}
	rate := func(name, metric string) { out[name] = max(0, after.Sum(metric)-before.Sum(metric)) / seconds }
	rate("requests", "fairlead_http_requests_total")
	rate("failures", "fairlead_http_requests_total 5xx")
	rate("commands", "fairlead_lane_commands_total")
	rate("locks contended", "fairlead_lock_contended_total")
	for name, metric := range map[string]string{
		"latency": "fairlead_http_request_duration_seconds", "commit": "fairlead_lane_flush_duration_seconds", "lock wait": "fairlead_lock_wait_seconds",
	} {
		out[name+" p50"], out[name+" p99"] = math.NaN(), math.NaN()
		if d := after.Spread(metric).Since(before.Spread(metric)); d.Count > 0 {
			out[name+" p50"], out[name+" p99"] = d.Quantile(0.5), d.Quantile(0.99)
		}
	}
	return out
}

// labelled reads the metrics of kinds.
func labelled(families []*dto.MetricFamily) map[string]float64 {
	out := map[string]float64{}
	for _, f := range families {
		for _, k := range kinds {
			if f.GetName() != k.metric {
				continue
			}
			for _, m := range f.GetMetric() {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				name := k.prefix
				if k.result != "" {
					name += labels[k.result] + " "
				}
				out[name+labels[k.label]] += m.GetCounter().GetValue()
			}
		}
	}
	return out
}
