package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/fairlead-dev/fairlead/internal/console"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

const (
	// scrapeRest is how many times as long as a page took to make no other is made, for longestRest at most: whoever asks, and however often, they
	// keep a fourth of one processor busy.
	scrapeRest = 3
	// scrapesQueued may wait for a page.
	scrapesQueued = 1024
)

// textFormat is Prometheus' text format.
var textFormat = expfmt.NewFormat(expfmt.TypeTextPlain) //nolint:gochecknoglobals // A constant, but for the type.

// scrape is a page of metrics. It is shared by all who wait for it.
type scrape struct{ plain, zipped []byte }

// scrapes makes pages of metrics. No credential is needed for them. A request gets a page that was begun after it came, and all requests that wait get
// the same one.
type scrapes struct {
	from  prometheus.Gatherer
	group *groupcommit.Group[struct{}, bool, *scrape] // asked whether it is to be zipped
	rest  time.Time                                   // the flush's: none is made before
}

func newScrapes(from prometheus.Gatherer) *scrapes {
	s := &scrapes{from: from}
	s.group = groupcommit.New(s.flush, groupcommit.Options{MaxQueue: scrapesQueued, MaxBatch: scrapesQueued, Divisible: func(error) bool { return false }})
	return s
}

func (s *scrapes) flush(ctx context.Context, _ struct{}, zipped []bool) ([]*scrape, error) {
	if !wait.For(ctx, time.Until(s.rest)) {
		return nil, ctx.Err()
	}
	began := time.Now()
	page, err := s.page(zipped)
	now := time.Now()
	s.rest = now.Add(min(scrapeRest*now.Sub(began), longestRest))
	if err != nil {
		return nil, err
	}
	pages := make([]*scrape, len(zipped))
	for i := range pages {
		pages[i] = page
	}
	return pages, nil
}

func (s *scrapes) page(zipped []bool) (*scrape, error) {
	families, err := s.from.Gather()
	if err != nil {
		return nil, err //nolint:wrapcheck // It becomes an internal error as it is.
	}
	var text, small bytes.Buffer
	encoder := expfmt.NewEncoder(&text, textFormat)
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			return nil, err //nolint:wrapcheck // As above.
		}
	}
	if slices.Contains(zipped, true) {
		zip := gzip.NewWriter(&small)
		_, _ = zip.Write(text.Bytes()) // A buffer takes all.
		_ = zip.Close()
	}
	return &scrape{text.Bytes(), small.Bytes()}, nil
}

func (s *scrapes) get(w http.ResponseWriter, r *http.Request) error {
	zip := console.TakesGzip(r.Header.Get("Accept-Encoding"))
	page, err := s.group.Do(r.Context(), struct{}{}, zip)
	if err != nil {
		return err
	}
	h, body := w.Header(), page.plain
	h.Set("Content-Type", string(textFormat))
	h.Add("Vary", "Accept-Encoding")
	if zip {
		h.Set("Content-Encoding", "gzip")
		body = page.zipped
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body) // An error means that the client went away.
	return nil
}
