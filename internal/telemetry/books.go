package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// BooksWork is what is done with the books for the integrity check.
type BooksWork string

// The kinds of it.
const (
	BooksClose   BooksWork = "close"
	BooksRecount BooksWork = "recount"
)

// Books observes the closings and recounts of the books.
type Books struct {
	registry prometheus.Registerer
	took     map[BooksWork]prometheus.Observer
	failures map[BooksWork]prometheus.Counter
}

// NewBooks registers the metrics of closings and recounts.
func NewBooks(r prometheus.Registerer) *Books {
	m := metricsOf(r, "fairlead_books_")
	took := m.histograms("duration_seconds", "Time of a closing of the books for the integrity check, or of a recount, by this process.", append(seconds(), 30, 60, 300, 1800, 3600), "work")
	failures := m.counters("failures_total", "Closings and recounts of the books that could not be done, and are tried again.", "work")
	b := &Books{registry: r, took: map[BooksWork]prometheus.Observer{}, failures: map[BooksWork]prometheus.Counter{}}
	for _, work := range [...]BooksWork{BooksClose, BooksRecount} {
		b.took[work], b.failures[work] = took.WithLabelValues(string(work)), failures.WithLabelValues(string(work))
	}
	return b
}

// Done reports one that was done.
func (b *Books) Done(work BooksWork, took time.Duration) { b.took[work].Observe(took.Seconds()) }

// Failed reports one that could not be done.
func (b *Books) Failed(work BooksWork) { b.failures[work].Inc() }

// BooksState is what the process that closes and recounts the books knows of its work; all is 0 in others.
type BooksState struct {
	Late    time.Duration
	Invalid bool
}

// Observe registers the gauges of what that process knows.
func (b *Books) Observe(state func(BooksWork) BooksState) {
	for work := range b.took {
		m := metricsOf(prometheus.WrapRegistererWith(prometheus.Labels{"work": string(work)}, b.registry), "fairlead_books_")
		m.gaugeFunc("late_seconds", "How much longer ago than the period allows the last closing or recount began; 0 in processes that don't keep the books, and for small ledgers.",
			func() float64 { return state(work).Late.Seconds() })
		m.gaugeFunc("invalid", "1 where the last closing or recount has found that the books don't add up; 0 in processes that don't keep the books.", func() float64 {
			if state(work).Invalid {
				return 1
			}
			return 0
		})
	}
}
