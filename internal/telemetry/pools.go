package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Pool is what is known of a pool of connections.
type Pool struct {
	Name         string
	Max, InUse   int
	Taken, Waits int64
	Waited       time.Duration
}

// ObservePools registers the metrics of the pools of connections, which are read on each scrape. P is the [Pool] of whoever has
// the pools.
func ObservePools[P ~struct {
	Name         string
	Max, InUse   int
	Taken, Waits int64
	Waited       time.Duration
}](r prometheus.Registerer, pools func() []P) {
	r.MustRegister(poolMetrics(func() []Pool {
		var all []Pool
		for _, p := range pools() {
			all = append(all, Pool(p))
		}
		return all
	}))
}

// poolMetrics collects from the pools.
type poolMetrics func() []Pool

// poolMetric is a metric of a pool.
type poolMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(Pool) float64
}

func poolMetricOf(name, help string, kind prometheus.ValueType, value func(Pool) float64) poolMetric {
	return poolMetric{prometheus.NewDesc("fairlead_database_connections_"+name, help, []string{"pool"}, nil), kind, value}
}

//nolint:gochecknoglobals // Descriptions: written here, changed nowhere.
var poolMetricsOf = []poolMetric{
	poolMetricOf("max", "Most connections of a pool: of commands with the background work, or of reads.", prometheus.GaugeValue, func(p Pool) float64 { return float64(p.Max) }),
	poolMetricOf("in_use", "Connections that are in use.", prometheus.GaugeValue, func(p Pool) float64 { return float64(p.InUse) }),
	poolMetricOf("taken_total", "Connections that were taken from a pool.", prometheus.CounterValue, func(p Pool) float64 { return float64(p.Taken) }),
	poolMetricOf("waits_total", "Times that all connections were in use, so that somebody had to wait.", prometheus.CounterValue, func(p Pool) float64 { return float64(p.Waits) }),
	poolMetricOf("wait_seconds_total", "Time spent waiting for a connection.", prometheus.CounterValue, func(p Pool) float64 { return p.Waited.Seconds() }),
}

// Describe implements [prometheus.Collector].
func (p poolMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, m := range poolMetricsOf {
		to <- m.desc
	}
}

// Collect implements [prometheus.Collector].
func (p poolMetrics) Collect(to chan<- prometheus.Metric) {
	for _, pool := range p() {
		for _, m := range poolMetricsOf {
			to <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(pool), pool.Name)
		}
	}
}
