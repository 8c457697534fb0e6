package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/live"
)

// ObserveLive registers the live stream's metrics, which are read from the hub on each scrape.
func ObserveLive(r prometheus.Registerer, hub *live.Hub) {
	m := metricsOf(r, "fairlead_live_")
	m.gaugeFunc("topics", "Topics that are followed.", func() float64 { return float64(hub.Stats().Topics) })
	m.gaugeFunc("subscribers", "Connections to the live stream.", func() float64 { return float64(hub.Stats().Subscribers) })
	m.gaugeFunc("subscriptions", "Subscriptions of all connections.", func() float64 { return float64(hub.Stats().Subscriptions) })
	m.counterFunc("dropped_total", "Subscribers disconnected because they fell behind.", func() float64 { return float64(hub.Stats().Dropped) })
	m.counterFunc("pages_total", "Pages read from the log for subscribers that resume, or for other processes' events.", func() float64 { return float64(hub.Stats().Pages) })
}
