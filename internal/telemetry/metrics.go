package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics makes metrics whose names begin with prefix, and registers each.
type metrics struct {
	make   promauto.Factory
	prefix string
}

func metricsOf(r prometheus.Registerer, prefix string) metrics {
	return metrics{make: promauto.With(r), prefix: prefix}
}

func (m metrics) counter(name, help string) prometheus.Counter {
	return m.make.NewCounter(prometheus.CounterOpts{Name: m.prefix + name, Help: help})
}

func (m metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return m.make.NewCounterVec(prometheus.CounterOpts{Name: m.prefix + name, Help: help}, labels)
}

func (m metrics) gauge(name, help string) prometheus.Gauge {
	return m.make.NewGauge(prometheus.GaugeOpts{Name: m.prefix + name, Help: help})
}

func (m metrics) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return m.make.NewGaugeVec(prometheus.GaugeOpts{Name: m.prefix + name, Help: help}, labels)
}

// gaugeFunc and counterFunc make metrics whose values are read on each scrape.
func (m metrics) gaugeFunc(name, help string, value func() float64) {
	m.make.NewGaugeFunc(prometheus.GaugeOpts{Name: m.prefix + name, Help: help}, value)
}

func (m metrics) counterFunc(name, help string, value func() float64) {
	m.make.NewCounterFunc(prometheus.CounterOpts{Name: m.prefix + name, Help: help}, value)
}

func (m metrics) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return m.make.NewHistogram(prometheus.HistogramOpts{Name: m.prefix + name, Help: help, Buckets: buckets})
}

func (m metrics) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return m.make.NewHistogramVec(prometheus.HistogramOpts{Name: m.prefix + name, Help: help, Buckets: buckets}, labels)
}

// seconds are the buckets of durations from a tenth of a millisecond to ten seconds.
func seconds() []float64 {
	return []float64{.0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
}
