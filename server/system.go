package server

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/swaggest/swgui"
	"github.com/swaggest/swgui/v5emb"
)

// readyTimeout is how long the database may take to show that it is there.
const readyTimeout = 2 * time.Second

type healthView struct {
	Status  string `json:"status" enum:"ok,draining,unavailable"`
	Version string `json:"version"`
}

func (s *Server) systemRoutes() []route {
	docs := v5emb.NewHandlerWithConfig(swgui.Config{
		Title: "Fairlead", SwaggerJSON: "/openapi.json", BasePath: "/docs/", HideCurl: false, ShowTopBar: false,
	})
	metrics := promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{})
	return []route{
		get("/healthz", accessPublic, doc[none, healthView]("Is the process alive"), s.getHealth),
		get("/readyz", accessPublic, doc[none, healthView]("Are commands served"), s.getReady),
		get("/metrics", accessPublic, doc[none, none]("Metrics in Prometheus' text format"), metrics.ServeHTTP),
		get("/openapi.json", accessPublic, doc[none, none]("This document"), s.getOpenAPI),
		get("/docs", accessPublic, doc[none, none]("The documentation as a page"), docs.ServeHTTP),
		get("/docs/{asset...}", accessPublic, doc[none, none]("The page's assets"), s.getAsset(docs)),
	}
}

func (s *Server) getHealth(w http.ResponseWriter, _ *http.Request) {
	writeBody(w, http.StatusOK, mustMarshal(healthView{Status: "ok", Version: s.version}))
}

func (s *Server) getReady(w http.ResponseWriter, r *http.Request) {
	v := healthView{Status: "ok", Version: s.version}
	status := http.StatusOK
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	select {
	case <-s.draining:
		v.Status, status = "draining", http.StatusServiceUnavailable
	default:
		if err := s.ready(ctx); err != nil {
			s.logger.WarnContext(ctx, "not ready", "error", err)
			v.Status, status = "unavailable", http.StatusServiceUnavailable
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(mustMarshal(v)) // The prober went away.
}

func (s *Server) getOpenAPI(w http.ResponseWriter, _ *http.Request) {
	writeBody(w, http.StatusOK, s.openAPI)
}

// getAsset serves the page's assets, and answers for those that it does not have as every other path does.
func (s *Server) getAsset(docs http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		sieve := &notFoundSieve{ResponseWriter: w}
		docs.ServeHTTP(sieve, r)
		if sieve.missing {
			w.Header().Del("Content-Encoding")
			s.writeProblem(w, r, &refusal{kind: notFound, detail: "there is no such path"})
		}
	}
}

// notFoundSieve lets everything through but a 404.
type notFoundSieve struct {
	http.ResponseWriter

	missing bool
}

// WriteHeader implements [http.ResponseWriter].
func (w *notFoundSieve) WriteHeader(status int) {
	if w.missing = status == http.StatusNotFound; !w.missing {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Write implements [http.ResponseWriter].
func (w *notFoundSieve) Write(b []byte) (int, error) {
	if w.missing {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b) //nolint:wrapcheck // The writer's own error is the contract of io.Writer.
}
