package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/multidraw"
)

// Multidraws observes the multi-draws.
type Multidraws struct {
	draws   prometheus.Counter
	saved   prometheus.Histogram
	running prometheus.Gauge
	ended   map[multidraw.Status]prometheus.Counter
}

var _ multidraw.Observer = (*Multidraws)(nil)

// NewMultidraws registers the multi-draws' metrics. All of them, and every end of an operation, are there from the start.
func NewMultidraws(r prometheus.Registerer) *Multidraws {
	metrics := metricsOf(r, "fairlead_multidraw_")
	ended := metrics.counters("ended_total", "Runs completed or interrupted, and operations rolled back, by what they came to; interrupted ones may be resumed.", "status")
	m := &Multidraws{
		draws: metrics.counter("draws_total", "Draws made and saved."),
		saved: metrics.histogram("checkpoint_duration_seconds", "Time that the transaction of a checkpoint took.",
			[]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5}),
		running: metrics.gauge("running", "Operations that this process runs."),
		ended:   map[multidraw.Status]prometheus.Counter{},
	}
	for _, status := range []multidraw.Status{multidraw.StatusCompleted, multidraw.StatusInterrupted, multidraw.StatusRolledBack} {
		m.ended[status] = ended.WithLabelValues(string(status))
	}
	return m
}

// Saved implements [multidraw.Observer].
func (m *Multidraws) Saved(draws int, took time.Duration) {
	m.draws.Add(float64(draws))
	if took > 0 {
		m.saved.Observe(took.Seconds())
	}
}

// Running implements [multidraw.Observer].
func (m *Multidraws) Running(n int) { m.running.Set(float64(n)) }

// Ended implements [multidraw.Observer].
func (m *Multidraws) Ended(status multidraw.Status) {
	if c := m.ended[status]; c != nil {
		c.Inc()
	}
}
