package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/saga"
)

// Sagas observes the sagas and two-phase transactions.
type Sagas struct {
	ended, retried, resumed, resolved *prometheus.CounterVec
	took                              *prometheus.HistogramVec
	running                           prometheus.Gauge
	doubts, oldest, away              *prometheus.GaugeVec

	mu   sync.Mutex
	seen map[string]age // what was in doubt in a ledger when it could last be asked
}

// age is how old something was, and when that was.
type age struct {
	age time.Duration
	at  time.Time
}

var _ saga.Observer = (*Sagas)(nil)

// NewSagas registers the sagas' metrics. All of them are there from the start.
func NewSagas(r prometheus.Registerer) *Sagas {
	metrics := metricsOf(r, "fairlead_saga_")
	m := &Sagas{
		ended: metrics.counters("ended_total", "Sagas that have ended, by protocol and how.", "protocol", "status"),
		took: metrics.histograms("duration_seconds", "Time from a saga's intent to its end.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}, "protocol"),
		retried:  metrics.counters("retries_total", "Runs that failed to get on, and are tried again.", "protocol"),
		resumed:  metrics.counters("resumed_total", "Sagas taken over from a run that had ended early.", "protocol"),
		resolved: metrics.counters("resolved_total", "Prepared transactions that were left behind and settled.", "decision"),
		running:  metrics.gauge("running", "Sagas that this process runs."),
		doubts:   metrics.gauges("in_doubt", "Prepared transactions, undecided or not yet settled, of all processes, at the last sample.", "ledger"),
		oldest:   metrics.gauges("in_doubt_oldest_seconds", "How long the oldest of them had been prepared at the last sample; 0 where there is none.", "ledger"),
		away:     metrics.gauges("ledger_unreachable", "Whether the ledger's database could not be asked for them at the last sample, 1 or 0; then they are those of the last answer.", "ledger"),
		seen:     map[string]age{},
	}
	for _, p := range []saga.Protocol{saga.Compensated, saga.TwoPhase} {
		for _, s := range []saga.Status{saga.Completed, saga.Failed, saga.WasCompensated} {
			m.ended.WithLabelValues(string(p), string(s))
		}
		m.took.WithLabelValues(string(p))
		m.retried.WithLabelValues(string(p))
		m.resumed.WithLabelValues(string(p))
	}
	for _, committed := range []bool{true, false} {
		m.resolved.WithLabelValues(decision(committed))
	}
	return m
}

func decision(committed bool) string {
	if committed {
		return "commit"
	}
	return "rollback"
}

// Ended implements [saga.Observer].
func (m *Sagas) Ended(p saga.Protocol, s saga.Status, took time.Duration) {
	m.ended.WithLabelValues(string(p), string(s)).Inc()
	m.took.WithLabelValues(string(p)).Observe(max(0, took.Seconds()))
}

// Retried implements [saga.Observer].
func (m *Sagas) Retried(p saga.Protocol) { m.retried.WithLabelValues(string(p)).Inc() }

// Resumed implements [saga.Observer].
func (m *Sagas) Resumed(p saga.Protocol) { m.resumed.WithLabelValues(string(p)).Inc() }

// Resolved implements [saga.Observer].
func (m *Sagas) Resolved(committed bool) { m.resolved.WithLabelValues(decision(committed)).Inc() }

// Running implements [saga.Observer].
func (m *Sagas) Running(n int) { m.running.Set(float64(n)) }

// Sample sets what is in doubt in each of the ledgers, as [saga.Service.InDoubt] has found it at a time. Of a ledger that
// could not be asked, what was in doubt is taken to be so still, and grows older.
func (m *Sagas) Sample(ledgers []string, found []saga.Doubt, failures map[string]error, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	count, oldest := map[string]int{}, map[string]time.Duration{}
	for i := range found {
		d := &found[i]
		count[d.Participant]++
		oldest[d.Participant] = max(oldest[d.Participant], d.Age)
	}
	for _, ledger := range ledgers {
		if failures[ledger] != nil {
			m.away.WithLabelValues(ledger).Set(1)
			if last, ok := m.seen[ledger]; ok {
				m.oldest.WithLabelValues(ledger).Set((last.age + now.Sub(last.at)).Seconds())
			}
			continue
		}
		m.away.WithLabelValues(ledger).Set(0)
		m.doubts.WithLabelValues(ledger).Set(float64(count[ledger]))
		m.oldest.WithLabelValues(ledger).Set(oldest[ledger].Seconds())
		delete(m.seen, ledger)
		if count[ledger] > 0 {
			m.seen[ledger] = age{age: oldest[ledger], at: now}
		}
	}
}
