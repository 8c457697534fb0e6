// Package lockotel makes OpenTelemetry metrics of locks. They are those of lockprom, by OpenTelemetry's conventions of names.
//
// One [Metrics] is the observer of lockers and of a backend's store:
//
//	metrics, err := lockotel.New(otel.Meter("locks"), "reports")
//	backend := pglock.New(pool, pglock.Options{Observer: metrics})
//	locker := lock.New(backend, lock.LockerOptions{Observer: metrics})
//
// The attribute class is [lock.Options].Class. It is for a few names: from the hundredth on, all others are counted as "other".
package lockotel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/fairlead-dev/fairlead/internal/lockmetrics"
	"github.com/fairlead-dev/fairlead/lock"
)

// Metrics observes locks: those of one process, and through samples all that a backend has. It is safe for concurrent use.
type Metrics struct {
	requests, contended, lost, victims, expired, handedOver, fallbacks metric.Int64Counter
	wait, hold                                                         metric.Float64Histogram
	held, waiting                                                      metric.Int64Gauge
	oldest, longest                                                    metric.Float64Gauge
	classes                                                            *lockmetrics.Table[class]
}

// class is the attributes of one class, made once.
type class struct {
	of       metric.MeasurementOption
	outcomes map[lock.Outcome]metric.MeasurementOption
}

var (
	_ lock.Observer         = (*Metrics)(nil)
	_ lock.StoreObserver    = (*Metrics)(nil)
	_ lock.FallbackObserver = (*Metrics)(nil)
)

// New makes the instruments. For the classes the counters are there from the start, with 0, so that alerts see their first increase.
// It returns the meter's errors.
func New(meter metric.Meter, classes ...string) (*Metrics, error) {
	var failures []error
	counter := func(name, unit, what string) metric.Int64Counter {
		c, err := meter.Int64Counter("fairlead.lock."+name, metric.WithUnit(unit), metric.WithDescription(what))
		failures = append(failures, err)
		return c
	}
	seconds := func(name, what string) metric.Float64Histogram {
		h, err := meter.Float64Histogram("fairlead.lock."+name, metric.WithUnit("s"), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(lockmetrics.Seconds()...))
		failures = append(failures, err)
		return h
	}
	count := func(name, unit, what string) metric.Int64Gauge {
		g, err := meter.Int64Gauge("fairlead.lock."+name, metric.WithUnit(unit), metric.WithDescription(what))
		failures = append(failures, err)
		return g
	}
	age := func(name, what string) metric.Float64Gauge {
		g, err := meter.Float64Gauge("fairlead.lock."+name, metric.WithUnit("s"), metric.WithDescription(what))
		failures = append(failures, err)
		return g
	}
	m := &Metrics{
		requests:   counter("requests", "{request}", "Requests for locks by how they ended."),
		contended:  counter("contended", "{request}", "Requests that had to wait in line and were granted."),
		lost:       counter("lost", "{lock}", "Locks that their holder in this process lost."),
		victims:    counter("deadlock.victims", "{request}", "Requests refused to break a deadlock."),
		expired:    counter("expired", "{lease}", "Leases found expired by this process: their holders died, or forgot them."),
		handedOver: counter("handovers", "{lock}", "Locks passed to the next in line by this process."),
		fallbacks:  counter("fallbacks", "{event}", "What left the fast path, by reason."),
		wait:       seconds("wait.duration", "Time from a request for a lock to its end, granted or not."),
		hold:       seconds("hold.duration", "How long locks were held that ended in this process."),
		held:       count("held", "{lock}", "Locks held, on all processes, at the last sample."),
		waiting:    count("waiting", "{request}", "Requests that waited, on all processes, at the last sample."),
		oldest:     age("oldest_hold", "How long the oldest lock had been held at the last sample."),
		longest:    age("longest_wait", "How long the first in line had waited at the last sample."),
	}
	if err := errors.Join(failures...); err != nil {
		return nil, fmt.Errorf("lockotel: %w", err)
	}
	none := context.Background()
	m.victims.Add(none, 0)
	m.expired.Add(none, 0)
	m.handedOver.Add(none, 0)
	m.classes = lockmetrics.New(func(name string) class {
		c := class{of: set(name), outcomes: map[lock.Outcome]metric.MeasurementOption{}}
		for _, o := range lock.Outcomes() {
			c.outcomes[o] = set(name, attribute.String("outcome", string(o)))
			m.requests.Add(none, 0, c.outcomes[o])
		}
		m.contended.Add(none, 0, c.of)
		m.lost.Add(none, 0, c.of)
		return c
	}, classes...)
	return m, nil
}

func set(class string, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(more, attribute.String("class", class))...))
}

// Asked implements [lock.Observer].
func (m *Metrics) Asked(class string, outcome lock.Outcome, waited time.Duration, contended bool) {
	ctx, c := context.Background(), m.classes.Of(class)
	m.requests.Add(ctx, 1, c.outcomes[outcome])
	m.wait.Record(ctx, waited.Seconds(), c.of)
	if contended {
		m.contended.Add(ctx, 1, c.of)
	}
}

// Ended implements [lock.Observer].
func (m *Metrics) Ended(class string, held time.Duration, lost error) {
	ctx, c := context.Background(), m.classes.Of(class)
	m.hold.Record(ctx, held.Seconds(), c.of)
	if lost != nil {
		m.lost.Add(ctx, 1, c.of)
	}
}

// Expired implements [lock.StoreObserver].
func (m *Metrics) Expired(n int) { m.expired.Add(context.Background(), int64(n)) }

// Victim implements [lock.StoreObserver].
func (m *Metrics) Victim() { m.victims.Add(context.Background(), 1) }

// HandedOver implements [lock.StoreObserver].
func (m *Metrics) HandedOver() { m.handedOver.Add(context.Background(), 1) }

// Fallback implements [lock.FallbackObserver].
func (m *Metrics) Fallback(reason string) {
	m.fallbacks.Add(context.Background(), 1, metric.WithAttributes(attribute.String("reason", reason)))
}

// Sample sets the gauges from what a backend has at an instant, by the backend's clock. A [lock.Inspector] gives snapshots; every
// ten seconds is often enough.
func (m *Metrics) Sample(s lock.Snapshot) {
	ctx := context.Background()
	oldest, longest := s.Ages()
	m.held.Record(ctx, int64(len(s.Holders)))
	m.waiting.Record(ctx, int64(len(s.Waiters)))
	m.oldest.Record(ctx, oldest.Seconds())
	m.longest.Record(ctx, longest.Seconds())
}
