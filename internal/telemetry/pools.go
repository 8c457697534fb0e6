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

// poolDesc describes a metric of a pool.
func poolDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("fairlead_database_connections_"+name, help, []string{"pool"}, nil)
}

//nolint:gochecknoglobals // Descriptions: written here, changed nowhere.
var (
	poolMax    = poolDesc("max", "Most connections of a pool: of commands with the background work, or of reads.")
	poolInUse  = poolDesc("in_use", "Connections that are in use.")
	poolTaken  = poolDesc("taken_total", "Connections that were taken from a pool.")
	poolWaits  = poolDesc("waits_total", "Times that all connections were in use, so that somebody had to wait.")
	poolWaited = poolDesc("wait_seconds_total", "Time spent waiting for a connection.")
)

// Describe implements [prometheus.Collector].
func (p poolMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolMax, poolInUse, poolTaken, poolWaits, poolWaited} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (p poolMetrics) Collect(to chan<- prometheus.Metric) {
	for _, pool := range p() {
		for d, v := range map[*prometheus.Desc]float64{poolMax: float64(pool.Max), poolInUse: float64(pool.InUse)} {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, pool.Name)
		}
		for d, v := range map[*prometheus.Desc]float64{
			poolTaken: float64(pool.Taken), poolWaits: float64(pool.Waits), poolWaited: pool.Waited.Seconds(),
		} {
			to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, pool.Name)
		}
	}
}
