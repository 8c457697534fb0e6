package telemetry

import (
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/internal/lockmetrics"
	"github.com/fairlead-dev/fairlead/multidraw"
	"github.com/fairlead-dev/fairlead/saga"
)

// Auctions observes the auctions and the leader that closes their rounds.
type Auctions[O ~string] struct {
	extensions, closed prometheus.Counter
	term, leading      prometheus.Gauge
	overdue            prometheus.Gauge
	bids               map[O]prometheus.Counter
}

// NewAuctions registers the auctions' metrics. All of them, and every outcome of a bid, are there from the start.
func NewAuctions[O ~string](r prometheus.Registerer, outcomes []O) *Auctions[O] {
	m := metricsOf(r, "fairlead_auction_")
	bids := m.counters("bids_total", "Bids decided and committed, by outcome; replays are not counted.", "outcome")
	a := &Auctions[O]{
		bids:       map[O]prometheus.Counter{},
		extensions: m.counter("extensions_total", "Rounds' ends moved by late bids."),
		closed:     m.counter("rounds_closed_total", "Rounds settled by this process."),
		term:       m.gauge("leader_term", "The last term in which this process led; 0 before the first."),
		overdue:    m.gauge("round_overdue_seconds", "For how long the round is over that has waited longest for its close, as the leader sees it; 0: none is, or another process leads."),
		leading:    m.gauge("is_leader", "Whether this process is the leader, 1 or 0. More than one in sum is a bug."),
	}
	for _, outcome := range outcomes {
		a.bids[outcome] = bids.WithLabelValues(string(outcome))
	}
	return a
}

// BidsDecided implements the observer of the auctions.
func (a *Auctions[O]) BidsDecided(outcome O, n int) { a.bids[outcome].Add(float64(n)) }

// RoundsExtended implements the observer of the auctions.
func (a *Auctions[O]) RoundsExtended(n int) { a.extensions.Add(float64(n)) }

// RoundClosed implements the observer of the auctions.
func (a *Auctions[O]) RoundClosed() { a.closed.Inc() }

// RoundOverdue notes what the leader says of the round that has waited longest for its close.
func (a *Auctions[O]) RoundOverdue(d time.Duration) { a.overdue.Set(d.Seconds()) }

// Leading implements the observer of an election, for the one election that the auctions' leader holds.
func (a *Auctions[O]) Leading(_ string, term int64, leading bool) {
	now := 0.0
	if leading {
		now = 1
	}
	a.term.Set(float64(term))
	a.leading.Set(now)
}

// Publications observes the workers that publish. Result and Outcome are the words of their service: for what was recorded of
// an attempt, and for what came of an automation's firing.
type Publications[Result, Outcome ~string] struct {
	claimed, released           prometheus.Counter
	claim, late, took, fireLate prometheus.Histogram
	answers                     *prometheus.CounterVec
	running, overdue            prometheus.Gauge
	results                     map[Result]prometheus.Counter
	targets                     *lockmetrics.Table[map[Result]prometheus.Counter]
	firings                     map[Outcome]prometheus.Counter
}

// NewPublications registers the publications' metrics. All of them, and every result, are there from the start.
func NewPublications[Result, Outcome ~string](r prometheus.Registerer) *Publications[Result, Outcome] {
	m := metricsOf(r, "fairlead_publish_")
	// What was away for a while is late by that while: a quantile says no more than the last bucket.
	late := []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600, 4 * 3600, 24 * 3600}
	results := m.counters("attempts_total", "Attempts recorded, by result. A refused one came after its claim was lost.", "result")
	targets := m.counters("target_attempts_total", "Attempts recorded, by target and result; from the hundredth target on all others are one.", "target", "result")
	firings := m.counters("firings_total", "Automations fired, by outcome.", "outcome")
	p := &Publications[Result, Outcome]{
		claimed: m.counter("claims_total", "Publications claimed."),
		// As elsewhere, and finer where it should be: a p99 of 20 ms.
		claim: m.histogram("claim_duration_seconds", "Time of a transaction that claimed something.",
			[]float64{.0005, .001, .0025, .005, .0075, .01, .015, .02, .03, .05, .1, .25, .5, 1, 2.5, 5, 10}),
		late:     m.histogram("late_seconds", "How long publications had been due when they were claimed.", late),
		took:     m.histogram("send_duration_seconds", "Time of an attempt, without its recording.", append(seconds(), 30, 60, 120, 300, 600, 900)),
		answers:  m.counters("answers_total", "Answers of targets by status; 0: there was none.", "status"),
		results:  map[Result]prometheus.Counter{},
		running:  m.gauge("running", "Attempts under way."),
		overdue:  m.gauge("overdue_seconds", "For how long the publication is due that has waited longest, of those that this process could send and can't claim; 0: none does."),
		released: m.counter("stale_claims_total", "Stale claims released, each an attempt that was lost."),
		firings:  map[Outcome]prometheus.Counter{},
		fireLate: m.histogram("firing_late_seconds", "How late automations fired.", late),
	}
	for _, outcome := range []Outcome{"scheduled", "no_draft", "quota_reached"} {
		p.firings[outcome] = firings.WithLabelValues(string(outcome))
	}
	all := []Result{"published", "failed", "refused"}
	for _, result := range all {
		p.results[result] = results.WithLabelValues(string(result))
	}
	p.targets = lockmetrics.New(func(target string) map[Result]prometheus.Counter {
		of := map[Result]prometheus.Counter{}
		for _, result := range all {
			of[result] = targets.WithLabelValues(target, string(result))
		}
		return of
	})
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
func (p *Publications[Result, Outcome]) Recorded(target uuid.UUID, result Result) {
	p.results[result].Inc()
	p.targets.Of(target.String())[result].Inc()
}

// Running implements the observer of workers.
func (p *Publications[Result, Outcome]) Running(n int) { p.running.Set(float64(n)) }

// Released implements the observer of workers.
func (p *Publications[Result, Outcome]) Released(n int) { p.released.Add(float64(n)) }

// Overdue implements the observer of workers.
func (p *Publications[Result, Outcome]) Overdue(d time.Duration) { p.overdue.Set(d.Seconds()) }

// Fired implements the observer of automations.
func (p *Publications[Result, Outcome]) Fired(outcome Outcome, late time.Duration) {
	p.firings[outcome].Inc()
	p.fireLate.Observe(late.Seconds())
}

// Multidraws observes the multi-draws.
type Multidraws struct {
	draws   prometheus.Counter
	saved   prometheus.Histogram
	running prometheus.Gauge
	ended   map[multidraw.Status]prometheus.Counter
}

var _ multidraw.Observer = (*Multidraws)(nil)

// NewMultidraws registers the multi-draws' metrics. All of them, and every end of an operation, are there from the start.
func NewMultidraws(r prometheus.Registerer) *Multidraws {
	metrics := metricsOf(r, "fairlead_multidraw_")
	ended := metrics.counters("ended_total", "Runs completed or interrupted, and operations rolled back, by what they came to; interrupted ones may be resumed.", "status")
	m := &Multidraws{
		draws: metrics.counter("draws_total", "Draws made and saved."),
		saved: metrics.histogram("checkpoint_duration_seconds", "Time that the transaction of a checkpoint took.",
			[]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5}),
		running: metrics.gauge("running", "Operations that this process runs."),
		ended:   map[multidraw.Status]prometheus.Counter{},
	}
	for _, status := range []multidraw.Status{multidraw.StatusCompleted, multidraw.StatusInterrupted, multidraw.StatusRolledBack} {
		m.ended[status] = ended.WithLabelValues(string(status))
	}
	return m
}

// Saved implements [multidraw.Observer].
func (m *Multidraws) Saved(draws int, took time.Duration) {
	m.draws.Add(float64(draws))
	if took > 0 {
		m.saved.Observe(took.Seconds())
	}
}

// Running implements [multidraw.Observer].
func (m *Multidraws) Running(n int) { m.running.Set(float64(n)) }

// Ended implements [multidraw.Observer].
func (m *Multidraws) Ended(status multidraw.Status) {
	if c := m.ended[status]; c != nil {
		c.Inc()
	}
}

// Checkpoints observes the operations on the saved states of multi-draws.
type Checkpoints struct {
	done  map[bool]map[checkpoint.Op]prometheus.Counter // by success
	took  map[checkpoint.Op]prometheus.Observer
	bytes map[checkpoint.Op]prometheus.Observer
}

var _ checkpoint.Observer = (*Checkpoints)(nil)

// NewCheckpoints registers the metrics of saved states. All of them are there from the start.
func NewCheckpoints(r prometheus.Registerer) *Checkpoints {
	metrics := metricsOf(r, "fairlead_checkpoint_")
	done := metrics.counters("operations_total", "Operations on saved states, by what they came to: ok or failed.", "operation", "result")
	took := metrics.histograms("duration_seconds", "Time of an operation on a saved state, with its retries and the wait for its turn.", seconds(), "operation")
	bytes := metrics.histograms("state_bytes", "Size of what was loaded or saved.", prometheus.ExponentialBuckets(64, 4, 10), "operation")
	c := &Checkpoints{
		done: map[bool]map[checkpoint.Op]prometheus.Counter{true: {}, false: {}}, took: map[checkpoint.Op]prometheus.Observer{}, bytes: map[checkpoint.Op]prometheus.Observer{},
	}
	for _, op := range checkpoint.Ops() {
		c.done[true][op], c.done[false][op] = done.WithLabelValues(string(op), "ok"), done.WithLabelValues(string(op), "failed")
		c.took[op], c.bytes[op] = took.WithLabelValues(string(op)), bytes.WithLabelValues(string(op))
	}
	return c
}

// Stored implements [checkpoint.Observer].
func (c *Checkpoints) Stored(op checkpoint.Op, bytes int, took time.Duration, err error) {
	c.done[err == nil][op].Inc()
	c.took[op].Observe(took.Seconds())
	if err == nil && bytes > 0 {
		c.bytes[op].Observe(float64(bytes))
	}
}

// Sagas observes the sagas and two-phase transactions.
type Sagas struct {
	ended, retried, resumed, resolved *prometheus.CounterVec
	took                              *prometheus.HistogramVec
	running                           prometheus.Gauge
	doubts, oldest, away              *prometheus.GaugeVec

	mu   sync.Mutex
	seen map[string]age // what was in doubt in a ledger when it could last be asked
}

// age is how old something was, and when that was.
type age struct {
	age time.Duration
	at  time.Time
}

var _ saga.Observer = (*Sagas)(nil)

// NewHistory registers the metrics of lost commits. The observer of a ledger's database is called with the losses that no operator has
// accepted, and whether the server has just found one.
func NewHistory(r prometheus.Registerer) (of func(ledger string) func(open int64, found bool)) {
	m := metricsOf(r, "fairlead_history_")
	found := m.counters("losses_total", "Times that this server found that the database lacks commits which it had confirmed.", "ledger")
	open := m.gauges("losses_open", "Losses, found by any server, that no operator has accepted.", "ledger")
	return func(ledger string) func(int64, bool) {
		found, open := found.WithLabelValues(ledger), open.WithLabelValues(ledger)
		return func(n int64, first bool) {
			open.Set(float64(n))
			if first {
				found.Inc()
			}
		}
	}
}

// NewPanics registers the metric of background work that panicked, and returns what counts.
func NewPanics(r prometheus.Registerer) (panicked func()) {
	return metricsOf(r, "fairlead_background_").counter("panics_total", "Pieces of the background work that panicked, and are tried again.").Inc
}

// NewKeys registers the metric of stored idempotency keys, and returns what sets it.
func NewKeys(r prometheus.Registerer) (stored func(n int64)) {
	g := metricsOf(r, "fairlead_idempotency_").gauge("keys", "Stored idempotency keys, of all processes, at the last sample: PostgreSQL's estimate.")
	return func(n int64) { g.Set(float64(n)) }
}

// NewSnapshots registers the metrics of what keeps dead row versions, and returns what sets them.
func NewSnapshots(r prometheus.Registerer) (oldest func(seconds float64, transactions int64)) {
	m := metricsOf(r, "fairlead_database_oldest_")
	age := m.gauge("snapshot_seconds", "Age of the oldest transaction that keeps dead row versions, of sessions and prepared ones, at the last sample.")
	behind := m.gauge("xmin_transactions", "Transactions begun since the oldest snapshot, those of replication slots and standbys included, at the last sample.")
	return func(seconds float64, transactions int64) {
		age.Set(seconds)
		behind.Set(float64(transactions))
	}
}

// NewSagas registers the sagas' metrics. All of them are there from the start.
func NewSagas(r prometheus.Registerer) *Sagas {
	metrics := metricsOf(r, "fairlead_saga_")
	m := &Sagas{
		ended: metrics.counters("ended_total", "Sagas that have ended, by protocol and how.", "protocol", "status"),
		took: metrics.histograms("duration_seconds", "Time from a saga's intent to its end.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}, "protocol"),
		retried:  metrics.counters("retries_total", "Runs that failed to get on, and are tried again.", "protocol"),
		resumed:  metrics.counters("resumed_total", "Sagas taken over from a run that had ended early.", "protocol"),
		resolved: metrics.counters("resolved_total", "Prepared transactions that were left behind and settled.", "decision"),
		running:  metrics.gauge("running", "Sagas that this process runs."),
		doubts:   metrics.gauges("in_doubt", "Prepared transactions, undecided or not yet settled, of all processes, at the last sample.", "ledger"),
		oldest:   metrics.gauges("in_doubt_oldest_seconds", "How long the oldest of them had been prepared at the last sample; 0 where there is none.", "ledger"),
		away:     metrics.gauges("ledger_unreachable", "Whether the ledger's database could not be asked for them at the last sample, 1 or 0; then they are those of the last answer.", "ledger"),
		seen:     map[string]age{},
	}
	for _, p := range []saga.Protocol{saga.Compensated, saga.TwoPhase} {
		for _, s := range []saga.Status{saga.Completed, saga.Failed, saga.WasCompensated} {
			m.ended.WithLabelValues(string(p), string(s))
		}
		m.took.WithLabelValues(string(p))
		m.retried.WithLabelValues(string(p))
		m.resumed.WithLabelValues(string(p))
	}
	for _, committed := range []bool{true, false} {
		m.resolved.WithLabelValues(decision(committed))
	}
	return m
}

func decision(committed bool) string {
	if committed {
		return "commit"
	}
	return "rollback"
}

// Ended implements [saga.Observer].
func (m *Sagas) Ended(p saga.Protocol, s saga.Status, took time.Duration) {
	m.ended.WithLabelValues(string(p), string(s)).Inc()
	m.took.WithLabelValues(string(p)).Observe(max(0, took.Seconds()))
}

// Retried implements [saga.Observer].
func (m *Sagas) Retried(p saga.Protocol) { m.retried.WithLabelValues(string(p)).Inc() }

// Resumed implements [saga.Observer].
func (m *Sagas) Resumed(p saga.Protocol) { m.resumed.WithLabelValues(string(p)).Inc() }

// Resolved implements [saga.Observer].
func (m *Sagas) Resolved(committed bool) { m.resolved.WithLabelValues(decision(committed)).Inc() }

// Running implements [saga.Observer].
func (m *Sagas) Running(n int) { m.running.Set(float64(n)) }

// Sample sets what is in doubt in each of the ledgers, as [saga.Service.InDoubt] has found it at a time. Of a ledger that
// could not be asked, what was in doubt is taken to be so still, and grows older.
func (m *Sagas) Sample(ledgers []string, found []saga.Doubt, failures map[string]error, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	count, oldest := map[string]int{}, map[string]time.Duration{}
	for i := range found {
		d := &found[i]
		count[d.Participant]++
		oldest[d.Participant] = max(oldest[d.Participant], d.Age)
	}
	for _, ledger := range ledgers {
		if failures[ledger] != nil {
			m.away.WithLabelValues(ledger).Set(1)
			if last, ok := m.seen[ledger]; ok {
				m.oldest.WithLabelValues(ledger).Set((last.age + now.Sub(last.at)).Seconds())
			}
			continue
		}
		m.away.WithLabelValues(ledger).Set(0)
		m.doubts.WithLabelValues(ledger).Set(float64(count[ledger]))
		m.oldest.WithLabelValues(ledger).Set(oldest[ledger].Seconds())
		delete(m.seen, ledger)
		if count[ledger] > 0 {
			m.seen[ledger] = age{age: oldest[ledger], at: now}
		}
	}
}
