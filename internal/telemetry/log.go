package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Log observes the keeper of the public log.
type Log struct {
	metrics              metrics
	leaves, bytes        prometheus.Counter
	late, took           prometheus.Histogram
	size, witnesses      prometheus.Gauge
	published, closed    prometheus.Histogram
	accounts, unbalanced prometheus.Gauge
	failures             map[string]prometheus.Counter
}

// logWork is what can fail.
var logWork = []string{"look", "append", "publish", "close"} //nolint:gochecknoglobals // A constant.

// NewLog registers the metrics of the public log.
func NewLog(r prometheus.Registerer) *Log {
	m := metricsOf(r, "fairlead_log_")
	l := &Log{
		metrics: m, failures: map[string]prometheus.Counter{},
		leaves:     m.counter("leaves_total", "Leaves that this process has appended to the public log."),
		bytes:      m.counter("leaf_bytes_total", "Bytes of these leaves."),
		late:       m.histogram("late_seconds", "How old the oldest fact of a batch was when it became a leaf.", []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}),
		took:       m.histogram("append_duration_seconds", "Time of a batch's transaction.", seconds()),
		published:  m.histogram("publish_duration_seconds", "Time to sign a checkpoint, to have it witnessed and to publish it.", seconds()),
		closed:     m.histogram("close_duration_seconds", "Time to read the books for a closing.", append(seconds(), 30, 60, 300)),
		size:       m.gauge("checkpoint_leaves", "Leaves under the newest checkpoint that this process has published."),
		witnesses:  m.gauge("checkpoint_witnesses", "Witnesses that have cosigned that checkpoint."),
		accounts:   m.gauge("closing_accounts", "Accounts of the last closing of the books by this process."),
		unbalanced: m.gauge("closing_unbalanced", "1 where the books of that closing did not add up."),
	}
	failed := m.counters("failures_total", "What the keeper of the public log could not do, and tries again: look for facts, append leaves, publish a checkpoint, close the books.", "work")
	for _, work := range logWork {
		l.failures[work] = failed.WithLabelValues(work)
	}
	return l
}

// Appended implements the observer of the keeper.
func (l *Log) Appended(leaves, bytes int, late, took time.Duration) {
	l.leaves.Add(float64(leaves))
	l.bytes.Add(float64(bytes))
	l.late.Observe(late.Seconds())
	l.took.Observe(took.Seconds())
}

// Published implements the observer of the keeper.
func (l *Log) Published(size int64, witnesses int, took time.Duration) {
	l.size.Set(float64(size))
	l.witnesses.Set(float64(witnesses))
	l.published.Observe(took.Seconds())
}

// Closed implements the observer of the keeper.
func (l *Log) Closed(accounts int64, balanced bool, took time.Duration) {
	l.accounts.Set(float64(accounts))
	l.unbalanced.Set(1)
	if balanced {
		l.unbalanced.Set(0)
	}
	l.closed.Observe(took.Seconds())
}

// Failed implements the observer of the keeper.
func (l *Log) Failed(work string) { l.failures[work].Inc() }

// LogState is what the process that keeps the log knows; all is 0 in others.
type LogState struct {
	Leading, Refused bool
	MissingWitnesses int
}

// Observe registers the gauges of what the keeper knows.
func (l *Log) Observe(state func() LogState) {
	truth := func(is bool) float64 {
		if is {
			return 1
		}
		return 0
	}
	gauge := func(name, help string, value func(LogState) float64) {
		l.metrics.gaugeFunc(name, help, func() float64 { return value(state()) })
	}
	gauge("leading", "1 in the process that keeps the public log.", func(s LogState) float64 { return truth(s.Leading) })
	gauge("refused", "1 in the process that keeps the public log and signs nothing: the log is an older copy than what was signed, or another one's.",
		func(s LogState) float64 { return truth(s.Refused) })
	gauge("missing_witnesses", "Witnesses that are asked and have not cosigned the last checkpoint; 0 in processes that do not keep the public log.",
		func(s LogState) float64 { return float64(s.MissingWitnesses) })
}
