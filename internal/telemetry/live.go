package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/live"
)

// ObserveLive registers the live stream's metrics, which are read from the hub on each scrape.
func ObserveLive(r prometheus.Registerer, hub *live.Hub) {
	gauge := func(name, help string, value func(live.Stats) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "fairlead_live_" + name, Help: help}, func() float64 { return value(hub.Stats()) })
	}
	counter := func(name, help string, value func(live.Stats) float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "fairlead_live_" + name, Help: help}, func() float64 { return value(hub.Stats()) })
	}
	r.MustRegister(
		gauge("topics", "Topics that are followed.", func(s live.Stats) float64 { return float64(s.Topics) }),
		gauge("subscribers", "Connections to the live stream.", func(s live.Stats) float64 { return float64(s.Subscribers) }),
		gauge("subscriptions", "Subscriptions of all connections.", func(s live.Stats) float64 { return float64(s.Subscriptions) }),
		counter("dropped_total", "Subscribers disconnected because they fell behind.", func(s live.Stats) float64 { return float64(s.Dropped) }),
		counter("pages_total", "Pages read from the log for subscribers that resume, or for other processes' events.", func(s live.Stats) float64 { return float64(s.Pages) }),
	)
}
