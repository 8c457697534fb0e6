package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// httpMetrics are the edge's own; each service brings its own too.
type httpMetrics struct {
	requests, documents, heavyRefused *prometheus.CounterVec
	duration                          *prometheus.HistogramVec
	heavyRunning, heavyWaiting        *prometheus.GaugeVec
	refusedConnections                prometheus.Counter
}

func newHTTPMetrics(r prometheus.Registerer) *httpMetrics {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauges := func(name, help string) *prometheus.GaugeVec {
		return promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"kind"})
	}
	return &httpMetrics{
		requests: counters("fairlead_http_requests_total", "Answered requests by method, route and status.", "method", "route", "status"),
		duration: promauto.With(r).NewHistogramVec(prometheus.HistogramOpts{
			Name: "fairlead_http_request_duration_seconds", Help: "Time from the request's header to the end of its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route"}),
		documents:    counters("fairlead_documents_built_total", "Documents of drawn campaigns, and trees for inclusion proofs, that were made.", "document"),
		heavyRunning: gauges("fairlead_heavy_reads_running", "Heavy reads under way: build, proof, public, scan, or check."),
		heavyWaiting: gauges("fairlead_heavy_reads_waiting", "Heavy reads that wait for their turn."),
		heavyRefused: counters("fairlead_heavy_reads_refused_total", "Heavy reads refused because too many waited, or for too long.", "kind"),
		refusedConnections: promauto.With(r).NewCounter(prometheus.CounterOpts{
			Name: "fairlead_http_refused_connections_total", Help: "Connections that were not taken: too many were open, or no descriptor was left.",
		}),
	}
}

func (m *httpMetrics) request(method, route string, status int, took time.Duration) {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		method = "other" // A client may not invent label values.
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.duration.WithLabelValues(route).Observe(took.Seconds())
}
