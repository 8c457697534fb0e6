package telemetry

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Publications observes the workers that publish. Result and Outcome are the words of their service: for what was recorded of
// an attempt, and for what came of an automation's firing.
type Publications[Result, Outcome ~string] struct {
	claimed, released           prometheus.Counter
	claim, late, took, fireLate prometheus.Histogram
	answers                     *prometheus.CounterVec
	running                     prometheus.Gauge
	results                     map[Result]prometheus.Counter
	firings                     map[Outcome]prometheus.Counter
}

// NewPublications registers the publications' metrics. All of them, and every result, are there from the start.
func NewPublications[Result, Outcome ~string](r prometheus.Registerer) *Publications[Result, Outcome] {
	m := metricsOf(r, "fairlead_publish_")
	// What was away for a while is late by that while: a quantile says no more than the last bucket.
	late := []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600, 4 * 3600, 24 * 3600}
	results := m.counters("attempts_total", "Attempts recorded, by result. A refused one came after its claim was lost.", "result")
	firings := m.counters("firings_total", "Automations fired, by outcome.", "outcome")
	p := &Publications[Result, Outcome]{
		claimed: m.counter("claims_total", "Publications claimed."),
		// As elsewhere, and finer where it should be: 99 of 100 within 20 ms.
		claim: m.histogram("claim_duration_seconds", "Time of a transaction that claimed something.",
			[]float64{.0005, .001, .0025, .005, .0075, .01, .015, .02, .03, .05, .1, .25, .5, 1, 2.5, 5, 10}),
		late:     m.histogram("late_seconds", "How long publications had been due when they were claimed.", late),
		took:     m.histogram("send_duration_seconds", "Time of an attempt, without its recording.", seconds()),
		answers:  m.counters("answers_total", "Answers of targets by status; 0: there was none.", "status"),
		results:  map[Result]prometheus.Counter{},
		running:  m.gauge("running", "Attempts under way."),
		released: m.counter("stale_claims_total", "Stale claims released, each an attempt that was lost."),
		firings:  map[Outcome]prometheus.Counter{},
		fireLate: m.histogram("firing_late_seconds", "How late automations fired.", late),
	}
	for _, outcome := range []Outcome{"scheduled", "no_draft", "quota_reached"} {
		p.firings[outcome] = firings.WithLabelValues(string(outcome))
	}
	for _, result := range []Result{"published", "failed", "refused"} {
		p.results[result] = results.WithLabelValues(string(result))
	}
	return p
}

// Claimed implements the observer of workers.
func (p *Publications[Result, Outcome]) Claimed(n int, took time.Duration) {
	p.claimed.Add(float64(n))
	p.claim.Observe(took.Seconds())
}

// Attempted implements the observer of workers.
func (p *Publications[Result, Outcome]) Attempted(late, took time.Duration, statusCode int) {
	p.late.Observe(late.Seconds())
	p.took.Observe(took.Seconds())
	p.answers.WithLabelValues(strconv.Itoa(statusCode)).Inc()
}

// Recorded implements the observer of workers.
func (p *Publications[Result, Outcome]) Recorded(result Result) { p.results[result].Inc() }

// Running implements the observer of workers.
func (p *Publications[Result, Outcome]) Running(n int) { p.running.Set(float64(n)) }

// Released implements the observer of workers.
func (p *Publications[Result, Outcome]) Released(n int) { p.released.Add(float64(n)) }

// Fired implements the observer of automations.
func (p *Publications[Result, Outcome]) Fired(outcome Outcome, late time.Duration) {
	p.firings[outcome].Inc()
	p.fireLate.Observe(late.Seconds())
}
