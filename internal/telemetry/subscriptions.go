package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Subscriptions observes the deliverer of events. Outcome is its word for what became of an attempt.
type Subscriptions[Outcome ~string] struct {
	metrics    metrics
	attempts   map[Outcome]prometheus.Counter
	late, took prometheus.Histogram
	stopped    prometheus.Counter
}

// NewSubscriptions registers the metrics of subscriptions. All outcomes are there from the start.
func NewSubscriptions[Outcome ~string](r prometheus.Registerer, outcomes []Outcome) *Subscriptions[Outcome] {
	m := metricsOf(r, "fairlead_subscription_")
	attempts := m.counters("attempts_total", "Attempts to deliver an event, by outcome; refused: for good.", "outcome")
	s := &Subscriptions[Outcome]{
		metrics: m, attempts: map[Outcome]prometheus.Counter{},
		late:    m.histogram("late_seconds", "How old events were when an attempt to deliver them began.", []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 3600, 24 * 3600}),
		took:    m.histogram("send_duration_seconds", "Time of an attempt, without its recording.", append(seconds(), 30, 60, 120, 300, 600, 900)),
		stopped: m.counter("expired_total", "Topics that were stopped because their next event was not kept any more."),
	}
	for _, outcome := range outcomes {
		s.attempts[outcome] = attempts.WithLabelValues(string(outcome))
	}
	return s
}

// Attempted implements the observer of the deliverer.
func (s *Subscriptions[Outcome]) Attempted(outcome Outcome, late, took time.Duration) {
	s.attempts[outcome].Inc()
	s.late.Observe(late.Seconds())
	s.took.Observe(took.Seconds())
}

// Stopped implements the observer of the deliverer.
func (s *Subscriptions[Outcome]) Stopped() { s.stopped.Inc() }

// SubscriptionState is what the process that delivers knows; all is 0 in others.
type SubscriptionState struct {
	Leading                           bool
	Lag                               int64
	Oldest                            time.Duration
	Running, Waiting, Paused, Stopped int
}

// Observe registers the gauges of what the deliverer knows.
func (s *Subscriptions[Outcome]) Observe(state func() SubscriptionState) {
	gauge := func(name, help string, value func(SubscriptionState) float64) {
		s.metrics.gaugeFunc(name, help, func() float64 { return value(state()) })
	}
	gauge("leading", "1 in the process that delivers the events of subscriptions.", func(s SubscriptionState) float64 {
		if s.Leading {
			return 1
		}
		return 0
	})
	gauge("lag_events", "Events that subscriptions have not delivered yet, as of the last look, every ten seconds; 0 in processes that do not deliver.", func(s SubscriptionState) float64 { return float64(s.Lag) })
	gauge("lag_seconds", "For how long the event that has waited longest has waited; 0 in processes that do not deliver.", func(s SubscriptionState) float64 { return s.Oldest.Seconds() })
	gauge("running", "Topics of subscriptions whose events are being sent.", func(s SubscriptionState) float64 { return float64(s.Running) })
	gauge("waiting", "Topics of subscriptions that wait for their turn, or for their next attempt.", func(s SubscriptionState) float64 { return float64(s.Waiting) })
	gauge("paused", "Subscriptions that are paused.", func(s SubscriptionState) float64 { return float64(s.Paused) })
	gauge("stopped_topics", "Topics of subscriptions that are stopped because their next event is not kept any more.", func(s SubscriptionState) float64 { return float64(s.Stopped) })
}
