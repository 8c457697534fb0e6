package server

import (
	"compress/gzip"
	_ "embed"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/swaggest/swgui/v5/static"

	"github.com/fairlead-dev/fairlead/internal/console"
	"github.com/fairlead-dev/fairlead/internal/operator"
)

type healthView struct {
	Status  string               `json:"status" enum:"ok,unavailable"`
	Reason  operator.Unreadiness `json:"reason,omitzero" enum:"database_unreachable,read_only,commit_timeout,disk_full,schema,pool_exhausted,draining"`
	Version string               `json:"version"`
}

func (s *Server) systemRoutes() []route {
	metrics := newScrapes(s.Registry)
	ready := get("/readyz", accessPublic, doc[none, healthView]("Are commands served"), s.getReady)
	ready.doc.unready = true
	return []route{
		readRoute("/healthz", accessPublic, "Is the process alive", func(*http.Request) (healthView, error) {
			return healthView{Status: "ok", Version: s.Version}, nil
		}, same[healthView]),
		ready,
		get("/metrics", accessPublic, doc[none, none]("Metrics in Prometheus' text format"), metrics.get),
		get("/openapi.json", accessPublic, doc[none, none]("This document"), func(w http.ResponseWriter, _ *http.Request) error {
			document, err := s.openAPI()
			if err == nil {
				writeBody(w, http.StatusOK, document)
			}
			return err
		}),
		get("/docs", accessPublic, doc[none, none]("The documentation as a page"), getDocs),
		get("/docs/{asset...}", accessPublic, doc[none, none]("The page's assets"), getDocs),
	}
}

func (s *Server) getReady(w http.ResponseWriter, r *http.Request) error {
	v := healthView{Status: "ok", Version: s.Version}
	status := http.StatusOK
	if s.leaving.Load() || s.draining.Err() != nil {
		v.Reason = operator.UnreadyDraining
	} else if err := s.Ready(r.Context()); err != nil {
		if s.unready.Is(err) {
			s.Logger.WarnContext(r.Context(), "not ready", "error", err)
		}
		v.Reason = operator.UnreadyDatabase
		if why, ok := errors.AsType[*operator.UnreadyError](err); ok {
			v.Reason = why.Reason
		}
	}
	if v.Reason == "" {
		s.unready.Is(nil)
	} else {
		v.Status, status = "unavailable", http.StatusServiceUnavailable
		s.metrics.unready.WithLabelValues(string(v.Reason)).Inc()
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(mustMarshal(v)) // The prober went away.
	return nil
}

// docsPolicy is what the page of documentation may do: it runs its own scripts alone, asks this server alone, and is framed by
// nobody, since a visitor may type a key into it. Swagger UI has its icons in data URLs, and styles in its elements.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

var (
	//go:embed docs/docs.html
	docsPage []byte
	//go:embed docs/docs.js
	docsScript []byte
	//go:embed docs/docs.css
	docsStyle []byte
)

// docsAssets are the page, under no name, and what it loads, unpacked and packed once and for all.
//
//nolint:gochecknoglobals // What is embedded is the same for all, and never changes.
var docsAssets = sync.OnceValue(func() map[string]*console.Asset {
	all := map[string]*console.Asset{
		"": console.NewAsset("docs.html", docsPage), "docs.js": console.NewAsset("docs.js", docsScript), "docs.css": console.NewAsset("docs.css", docsStyle),
		"problems": console.NewAsset("problems.html", problemsPage()),
	}
	for _, name := range []string{"swagger-ui-bundle.js", "swagger-ui.css", "favicon-32x32.png"} {
		body, err := unpacked(name)
		if err != nil {
			panic("server: embedded files cannot be read: " + err.Error())
		}
		all[name] = console.NewAsset(name, body)
	}
	return all
})

func unpacked(name string) ([]byte, error) {
	if strings.HasSuffix(name, ".png") {
		return static.FS.ReadFile(name) //nolint:wrapcheck // It names the file.
	}
	f, err := static.FS.Open(name + ".gz")
	if err != nil {
		return nil, err //nolint:wrapcheck // As above.
	}
	defer func() { _ = f.Close() }()
	r, err := gzip.NewReader(f)
	if err != nil {
		return nil, err //nolint:wrapcheck // The caller says what for.
	}
	return io.ReadAll(r) //nolint:wrapcheck // As above.
}

func getDocs(w http.ResponseWriter, r *http.Request) error {
	asset, ok := docsAssets()[r.PathValue("asset")]
	if !ok {
		return noSuchPath(w, r)
	}
	h := w.Header()
	h.Set("Content-Security-Policy", docsPolicy)
	h.Set("X-Frame-Options", "DENY") // For browsers that do not know frame-ancestors.
	h.Set("Referrer-Policy", "no-referrer")
	asset.Send(w, r, http.StatusOK)
	return nil
}
