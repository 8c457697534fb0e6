package server

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// readyTimeout is how long the database may take to show that it is there.
const readyTimeout = 2 * time.Second

type healthView struct {
	Status  string `json:"status" enum:"ok,draining,unavailable"`
	Version string `json:"version"`
}

func (s *Server) systemRoutes() []route {
	metrics := promhttp.HandlerFor(s.Registry, promhttp.HandlerOpts{})
	return []route{
		readRoute("/healthz", accessPublic, "Is the process alive", func(*http.Request) (healthView, error) {
			return healthView{Status: "ok", Version: s.Version}, nil
		}, same[healthView]),
		get("/readyz", accessPublic, doc[none, healthView]("Are commands served"), s.getReady),
		get("/metrics", accessPublic, doc[none, none]("Metrics in Prometheus' text format"), func(w http.ResponseWriter, r *http.Request) error {
			metrics.ServeHTTP(w, r)
			return nil
		}),
		get("/openapi.json", accessPublic, doc[none, none]("This document"), func(w http.ResponseWriter, _ *http.Request) error {
			writeBody(w, http.StatusOK, s.openAPI)
			return nil
		}),
		get("/docs", accessPublic, doc[none, none]("The documentation as a page"), getDocs),
		get("/docs/{asset...}", accessPublic, doc[none, none]("The page's assets"), getDocs),
	}
}

func (s *Server) getReady(w http.ResponseWriter, r *http.Request) error {
	v := healthView{Status: "ok", Version: s.Version}
	status := http.StatusOK
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	if s.draining.Err() != nil {
		v.Status, status = "draining", http.StatusServiceUnavailable
	} else if err := s.Ready(ctx); err != nil {
		s.Logger.WarnContext(ctx, "not ready", "error", err)
		v.Status, status = "unavailable", http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(mustMarshal(v)) // The prober went away.
	return nil
}
