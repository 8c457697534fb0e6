// Package lockprom makes Prometheus metrics of locks. Fairlead's server has its own locks' metrics from here.
//
// One [Metrics] is the observer of lockers and of a backend's store:
//
//	metrics := lockprom.New(prometheus.DefaultRegisterer, "reports")
//	backend := pglock.New(pool, pglock.Options{Observer: metrics})
//	locker := lock.New(backend, lock.LockerOptions{Observer: metrics})
//
// The label class is [lock.Options].Class. It is for a few names: from the hundredth on, all others are counted as "other".
package lockprom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fairlead-dev/fairlead/internal/lockmetrics"
	"github.com/fairlead-dev/fairlead/lock"
)

// Metrics observes locks: those of one process, and through samples all that a backend has. It is safe for concurrent use.
type Metrics struct {
	victims, expired, handedOver   prometheus.Counter
	fallbacks                      *prometheus.CounterVec
	held, waiting, oldest, longest prometheus.Gauge
	classes                        *lockmetrics.Table[*class]
}

// class is the metrics of one class, looked up once.
type class struct {
	requests        map[lock.Outcome]prometheus.Counter
	wait, hold      prometheus.Observer
	contended, lost prometheus.Counter
}

var (
	_ lock.Observer         = (*Metrics)(nil)
	_ lock.StoreObserver    = (*Metrics)(nil)
	_ lock.FallbackObserver = (*Metrics)(nil)
)

// New registers the metrics. The classes are those whose series are there from the start, so that alerts see their first increase.
func New(r prometheus.Registerer, classes ...string) *Metrics {
	factory := promauto.With(r)
	const prefix = "fairlead_lock"
	counter := func(name, help string) prometheus.Counter {
		return factory.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return factory.NewGauge(prometheus.GaugeOpts{Name: prefix + name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
	}
	histograms := func(name, help string) *prometheus.HistogramVec {
		return factory.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: lockmetrics.Seconds()}, []string{"class"})
	}
	requests := counters("_requests_total", "Requests for locks by how they ended.", "class", "outcome")
	wait := histograms("_wait_seconds", "Time from a request for a lock to its end, granted or not.")
	hold := histograms("_hold_seconds", "How long locks were held that ended in this process.")
	contended := counters("_contended_total", "Requests that had to wait in line and were granted.", "class")
	lost := counters("_lost_total", "Locks that their holder in this process lost.", "class")
	return &Metrics{
		victims:    counter("_deadlock_victims_total", "Requests refused to break a deadlock."),
		expired:    counter("_expired_total", "Leases found expired by this process: their holders died, or forgot them."),
		handedOver: counter("_handovers_total", "Locks passed to the next in line by this process."),
		fallbacks:  counters("_fallbacks_total", "What left the fast path, by reason.", "reason"),
		held:       gauge("s_held", "Locks held, on all processes, at the last sample."),
		waiting:    gauge("s_waiting", "Requests that waited, on all processes, at the last sample."),
		oldest:     gauge("_oldest_hold_seconds", "How long the oldest lock had been held at the last sample."),
		longest:    gauge("_longest_wait_seconds", "How long the first in line had waited at the last sample."),
		classes: lockmetrics.New(func(name string) *class {
			c := &class{
				requests: map[lock.Outcome]prometheus.Counter{}, wait: wait.WithLabelValues(name), hold: hold.WithLabelValues(name),
				contended: contended.WithLabelValues(name), lost: lost.WithLabelValues(name),
			}
			for _, o := range lock.Outcomes() {
				c.requests[o] = requests.WithLabelValues(name, string(o))
			}
			return c
		}, classes...),
	}
}

// Asked implements [lock.Observer].
func (m *Metrics) Asked(class string, outcome lock.Outcome, waited time.Duration, contended bool) {
	c := m.classes.Of(class)
	c.requests[outcome].Inc()
	c.wait.Observe(waited.Seconds())
	if contended {
		c.contended.Inc()
	}
}

// Ended implements [lock.Observer].
func (m *Metrics) Ended(class string, held time.Duration, lost error) {
	c := m.classes.Of(class)
	c.hold.Observe(held.Seconds())
	if lost != nil {
		c.lost.Inc()
	}
}

// Expired implements [lock.StoreObserver].
func (m *Metrics) Expired(n int) { m.expired.Add(float64(n)) }

// Victim implements [lock.StoreObserver].
func (m *Metrics) Victim() { m.victims.Inc() }

// HandedOver implements [lock.StoreObserver].
func (m *Metrics) HandedOver() { m.handedOver.Inc() }

// Fallback implements [lock.FallbackObserver].
func (m *Metrics) Fallback(reason string) { m.fallbacks.WithLabelValues(reason).Inc() }

// Sample sets the gauges from what a backend has at an instant, by the backend's clock. A [lock.Inspector] gives snapshots; every
// ten seconds is often enough.
func (m *Metrics) Sample(s lock.Snapshot) {
	oldest, longest := s.Ages()
	m.held.Set(float64(len(s.Holders)))
	m.waiting.Set(float64(len(s.Waiters)))
	m.oldest.Set(oldest.Seconds())
	m.longest.Set(longest.Seconds())
}
