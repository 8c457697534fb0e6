package server

import (
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fairlead-dev/fairlead/internal/operator"
)

type healthView struct {
	Status  string               `json:"status" enum:"ok,unavailable"`
	Reason  operator.Unreadiness `json:"reason,omitzero" enum:"database_unreachable,read_only,commit_timeout,disk_full,schema,pool_exhausted,draining"`
	Version string               `json:"version"`
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
	if s.draining.Err() != nil {
		v.Reason = operator.UnreadyDraining
	} else if err := s.Ready(r.Context()); err != nil {
		s.Logger.WarnContext(r.Context(), "not ready", "error", err)
		v.Reason = operator.UnreadyDatabase
		if why, ok := errors.AsType[*operator.UnreadyError](err); ok {
			v.Reason = why.Reason
		}
	}
	if v.Reason != "" {
		v.Status, status = "unavailable", http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(mustMarshal(v)) // The prober went away.
	return nil
}
