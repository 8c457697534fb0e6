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

// ObservePools registers the metrics of the pools of connections, that of commands and that of reads in this order, which are
// read on each scrape. P is the [Pool] of whoever has the pools.
func ObservePools[P ~struct {
	Name         string
	Max, InUse   int
	Taken, Waits int64
	Waited       time.Duration
}](r prometheus.Registerer, pools func() []P) {
	for i, name := range []string{"commands", "reads"} {
		m := metricsOf(prometheus.WrapRegistererWith(prometheus.Labels{"pool": name}, r), "fairlead_database_connections_")
		pool := func() Pool { return Pool(pools()[i]) }
		m.gaugeFunc("max", "Most connections of a pool: of commands with the background work, or of reads.", func() float64 { return float64(pool().Max) })
		m.gaugeFunc("in_use", "Connections that are in use.", func() float64 { return float64(pool().InUse) })
		m.counterFunc("taken_total", "Connections that were taken from a pool.", func() float64 { return float64(pool().Taken) })
		m.counterFunc("waits_total", "Times that all connections were in use, so that somebody had to wait.", func() float64 { return float64(pool().Waits) })
		m.counterFunc("wait_seconds_total", "Time spent waiting for a connection.", func() float64 { return pool().Waited.Seconds() })
	}
}
