package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/lock"
)

// Locks observes locks: those of one process, and through samples all that the database has.
type Locks struct {
	requests                       *prometheus.CounterVec
	wait, hold                     *prometheus.HistogramVec
	contended, lost                *prometheus.CounterVec
	victims, expired, handedOver   prometheus.Counter
	held, waiting, oldest, longest prometheus.Gauge

	classes sync.Map // what is counted of each, as finding it by its labels takes longer than counting
}

// lockClass is what is counted of the locks of one class.
type lockClass struct {
	requests        map[lock.Outcome]prometheus.Counter
	wait, hold      prometheus.Observer
	contended, lost prometheus.Counter
}

var _ lock.Observer = (*Locks)(nil)

// lockSeconds are the buckets of waits and holds, from a millisecond to an hour.
func lockSeconds() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600}
}

// NewLocks registers the locks' metrics. The classes are those that are there from the start.
func NewLocks(r prometheus.Registerer, classes ...string) *Locks {
	m := metricsOf(r, "fairlead_lock")
	l := &Locks{
		requests:   m.counters("_requests_total", "Requests for locks by how they ended.", "class", "outcome"),
		wait:       m.histograms("_wait_seconds", "Time from a request for a lock to its end, granted or not.", lockSeconds(), "class"),
		hold:       m.histograms("_hold_seconds", "How long locks were held that ended in this process.", lockSeconds(), "class"),
		contended:  m.counters("_contended_total", "Requests that had to wait in line and were granted.", "class"),
		lost:       m.counters("_lost_total", "Locks that their holder in this process lost.", "class"),
		victims:    m.counter("_deadlock_victims_total", "Requests refused to break a deadlock."),
		expired:    m.counter("_expired_total", "Leases found expired by this process: their holders died, or forgot them."),
		handedOver: m.counter("_handovers_total", "Locks passed to the next in line by this process."),
		held:       m.gauge("s_held", "Locks held, on all processes, at the last sample."),
		waiting:    m.gauge("s_waiting", "Requests that waited, on all processes, at the last sample."),
		oldest:     m.gauge("_oldest_hold_seconds", "How long the oldest lock had been held at the last sample."),
		longest:    m.gauge("_longest_wait_seconds", "How long the first in line had waited at the last sample."),
	}
	for _, class := range classes {
		l.class(class)
	}
	return l
}

// class returns the metrics of a class. It makes all of them when one is needed first.
func (l *Locks) class(name string) *lockClass {
	known, _ := l.classes.Load(name)
	if c, ok := known.(*lockClass); ok {
		return c
	}
	c := &lockClass{
		requests: map[lock.Outcome]prometheus.Counter{}, wait: l.wait.WithLabelValues(name), hold: l.hold.WithLabelValues(name),
		contended: l.contended.WithLabelValues(name), lost: l.lost.WithLabelValues(name),
	}
	for _, o := range lock.Outcomes() {
		c.requests[o] = l.requests.WithLabelValues(name, string(o))
	}
	l.classes.Store(name, c)
	return c
}

// Asked implements [lock.Observer].
func (l *Locks) Asked(class string, outcome lock.Outcome, waited time.Duration, contended bool) {
	c := l.class(class)
	c.requests[outcome].Inc()
	c.wait.Observe(waited.Seconds())
	if contended {
		c.contended.Inc()
	}
}

// Ended implements [lock.Observer].
func (l *Locks) Ended(class string, held time.Duration, lost error) {
	c := l.class(class)
	c.hold.Observe(held.Seconds())
	if lost != nil {
		c.lost.Inc()
	}
}

// Expired implements the observer of the locks in PostgreSQL.
func (l *Locks) Expired(n int) { l.expired.Add(float64(n)) }

// Victim implements the observer of the locks in PostgreSQL.
func (l *Locks) Victim() { l.victims.Inc() }

// HandedOver implements the observer of the locks in PostgreSQL.
func (l *Locks) HandedOver() { l.handedOver.Inc() }

// Sample sets the gauges from what the database has at an instant, by the database's clock.
func (l *Locks) Sample(s lock.Snapshot) {
	l.held.Set(float64(len(s.Holders)))
	l.waiting.Set(float64(len(s.Waiters)))
	l.oldest.Set(0)
	l.longest.Set(0)
	if len(s.Holders) > 0 {
		l.oldest.Set(max(0, s.At.Sub(s.Holders[0].GrantedAt).Seconds()))
	}
	if len(s.Waiters) > 0 {
		l.longest.Set(max(0, s.At.Sub(s.Waiters[0].Since).Seconds()))
	}
}
