package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// httpMetrics are the edge's own; each service brings its own too.
type httpMetrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec

	documents          *prometheus.CounterVec
	heavyRunning       *prometheus.GaugeVec
	heavyWaiting       *prometheus.GaugeVec
	heavyRefused       *prometheus.CounterVec
	refusedConnections prometheus.Counter
}

func newHTTPMetrics(r prometheus.Registerer) *httpMetrics {
	m := &httpMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_http_requests_total", Help: "Answered requests by method, route and status.",
		}, []string{"method", "route", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fairlead_http_request_duration_seconds", Help: "Time from the request's header to the end of its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route"}),
		documents: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_documents_built_total", Help: "Documents of drawn campaigns, trees for inclusion proofs, and roots, that were made.",
		}, []string{"document"}),
		heavyRunning: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fairlead_heavy_reads_running", Help: "Heavy reads under way: build, proof, scan, or check.",
		}, []string{"kind"}),
		heavyWaiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fairlead_heavy_reads_waiting", Help: "Heavy reads that wait for their turn.",
		}, []string{"kind"}),
		heavyRefused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_heavy_reads_refused_total", Help: "Heavy reads refused because too many waited, or for too long.",
		}, []string{"kind"}),
		refusedConnections: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_http_refused_connections_total", Help: "Connections that were not taken: too many were open, or no descriptor was left.",
		}),
	}
	r.MustRegister(m.requests, m.duration, m.documents, m.heavyRunning, m.heavyWaiting, m.heavyRefused, m.refusedConnections)
	return m
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
