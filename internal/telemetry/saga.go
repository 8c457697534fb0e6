package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/saga"
)

// Sagas observes the sagas and two-phase transactions.
type Sagas struct {
	ended    *prometheus.CounterVec
	took     *prometheus.HistogramVec
	retried  *prometheus.CounterVec
	resumed  *prometheus.CounterVec
	resolved *prometheus.CounterVec
	running  prometheus.Gauge
}

var _ saga.Observer = (*Sagas)(nil)

// NewSagas registers the sagas' metrics. All of them are there from the start.
func NewSagas(r prometheus.Registerer) *Sagas {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Sagas{
		ended: counter("fairlead_saga_ended_total", "Sagas that have ended, by protocol and how.", "protocol", "status"),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fairlead_saga_duration_seconds", Help: "Time from a saga's intent to its end.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"protocol"}),
		retried:  counter("fairlead_saga_retries_total", "Runs that failed to get on, and are tried again.", "protocol"),
		resumed:  counter("fairlead_saga_resumed_total", "Sagas taken over from a run that had ended early.", "protocol"),
		resolved: counter("fairlead_saga_resolved_total", "Prepared transactions that were left behind and settled.", "decision"),
		running:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_saga_running", Help: "Sagas that this process runs."}),
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
	r.MustRegister(m.ended, m.took, m.retried, m.resumed, m.resolved, m.running)
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
