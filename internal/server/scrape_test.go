package server

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// TestScrapesShareAPage: all who ask while a page is made share the next one, which is made after a rest.
func TestScrapesShareAPage(t *testing.T) {
	t.Parallel()
	const takes, asking = 20 * time.Millisecond, 50
	synctest.Test(t, func(t *testing.T) {
		var began []time.Time // The lane makes one page at a time.
		registry := prometheus.NewRegistry()
		seen := prometheus.NewCounter(prometheus.CounterOpts{Name: "pages_total", Help: "Pages."})
		registry.MustRegister(seen)
		s := newScrapes(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			began = append(began, time.Now())
			seen.Inc()
			time.Sleep(takes)
			return registry.Gather()
		}))
		var all sync.WaitGroup
		ask := func(zip bool, want string) {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
			if zip {
				r.Header.Set("Accept-Encoding", "gzip")
			}
			all.Go(func() {
				if err := s.get(w, r); err != nil {
					t.Error(err)
					return
				}
				body := io.Reader(w.Body)
				if packed := w.Header().Get("Content-Encoding") == "gzip"; packed != zip {
					t.Errorf("packed: %v instead of %v", packed, zip)
				} else if zip {
					body, _ = gzip.NewReader(body)
				}
				if text, err := io.ReadAll(body); err != nil || !strings.Contains(string(text), want) {
					t.Errorf("%q has no %q, %v", text, want, err)
				}
			})
		}
		ask(false, "pages_total 1")
		synctest.Wait()
		for i := range asking {
			ask(i%2 == 0, "pages_total 2")
		}
		all.Wait()
		if len(began) != 2 || began[1].Sub(began[0]) != takes+scrapeRest*takes {
			t.Errorf("pages were made at %v", began)
		}
	})
}
