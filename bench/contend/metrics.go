package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/lock"
)

// metrics are what the product counts and measures of its locks, in the same way.
type metrics struct {
	requests, contended, lost    *prometheus.CounterVec
	wait, hold                   *prometheus.HistogramVec
	victims, expired, handedOver prometheus.Counter
}

func newMetrics() *metrics {
	r := prometheus.NewRegistry()
	counters := func(name string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "bench_" + name}, append([]string{"class"}, labels...))
	}
	counter := func(name string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "bench_" + name})
	}
	histograms := func(name string) *prometheus.HistogramVec {
		buckets := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600}
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "bench_" + name, Buckets: buckets}, []string{"class"})
	}
	m := &metrics{
		requests: counters("requests_total", "outcome"), contended: counters("contended_total"), lost: counters("lost_total"),
		wait: histograms("wait_seconds"), hold: histograms("hold_seconds"),
		victims: counter("victims_total"), expired: counter("expired_total"), handedOver: counter("handovers_total"),
	}
	r.MustRegister(m.requests, m.contended, m.lost, m.wait, m.hold, m.victims, m.expired, m.handedOver)
	return m
}

// Asked implements [lock.Observer].
func (m *metrics) Asked(class string, outcome lock.Outcome, waited time.Duration, contended bool) {
	m.requests.WithLabelValues(class, string(outcome)).Inc()
	m.wait.WithLabelValues(class).Observe(waited.Seconds())
	if contended {
		m.contended.WithLabelValues(class).Inc()
	}
}

// Ended implements [lock.Observer].
func (m *metrics) Ended(class string, held time.Duration, lost error) {
	m.hold.WithLabelValues(class).Observe(held.Seconds())
	if lost != nil {
		m.lost.WithLabelValues(class).Inc()
	}
}

// Expired implements the backends' observers.
func (m *metrics) Expired(n int) { m.expired.Add(float64(n)) }

// Victim implements the backends' observers.
func (m *metrics) Victim() { m.victims.Inc() }

// HandedOver implements the backends' observers.
func (m *metrics) HandedOver() { m.handedOver.Inc() }
