// Package telemetry turns what the services report into Prometheus metrics. Services know small observer interfaces of
// their own and nothing of Prometheus; this is where the two meet.
package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
)

// Lanes observes the group commit of one service.
type Lanes struct {
	batch, flush, wait                             prometheus.Histogram
	depth                                          prometheus.Gauge
	bisected, refused, panicked, failed, commanded prometheus.Counter
}

var _ groupcommit.Observer = (*Lanes)(nil)

// NewLanes registers the metrics of a service's group commit, labelled by the service.
func NewLanes(r prometheus.Registerer, service string) *Lanes {
	m := metricsOf(prometheus.WrapRegistererWith(prometheus.Labels{"service": service}, r), "fairlead_lane_")
	return &Lanes{
		batch:     m.histogram("batch_size", "Commands a commit.", []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}),
		flush:     m.histogram("flush_duration_seconds", "Time from a batch's start to its commit.", seconds()),
		wait:      m.histogram("wait_duration_seconds", "How long the oldest command of a batch had waited.", seconds()),
		depth:     m.gauge("queue_depth", "Commands that waited on the lane that last took a batch."),
		bisected:  m.counter("bisections_total", "Batches that failed and were halved."),
		refused:   m.counter("refused_total", "Commands refused because their lane was full."),
		panicked:  m.counter("panics_total", "Batches that panicked."),
		failed:    m.counter("failures_total", "Batches, or parts of one, that failed."),
		commanded: m.counter("commands_total", "Commands taken into batches."),
	}
}

// Taken implements [groupcommit.Observer].
func (l *Lanes) Taken(size, depth int, oldestWait time.Duration) {
	l.batch.Observe(float64(size))
	l.commanded.Add(float64(size))
	l.depth.Set(float64(depth))
	l.wait.Observe(oldestWait.Seconds())
}

// Flushed implements [groupcommit.Observer].
func (l *Lanes) Flushed(_ int, took time.Duration, err error) {
	l.flush.Observe(took.Seconds())
	if err != nil {
		l.failed.Inc()
	}
}

// Bisected implements [groupcommit.Observer].
func (l *Lanes) Bisected(int) { l.bisected.Inc() }

// Refused implements [groupcommit.Observer].
func (l *Lanes) Refused() { l.refused.Inc() }

// Panicked implements [groupcommit.Observer].
func (l *Lanes) Panicked(*groupcommit.PanicError) { l.panicked.Inc() }

// Transactions observes the database's transactions.
type Transactions struct {
	duration                *prometheus.HistogramVec
	outcomes, retries, fell *prometheus.CounterVec
	rows, waiting           prometheus.Gauge
	known                   sync.Map // of the names whose outcomes are all there
}

// NewTransactions registers the transactions' metrics.
func NewTransactions(r prometheus.Registerer) *Transactions {
	m := metricsOf(r, "fairlead_")
	return &Transactions{
		duration: m.histograms("transaction_duration_seconds", "Time of a transaction, its reruns included.", seconds(), "transaction"),
		outcomes: m.counters("transactions_total", "Transactions by how they ended.", "transaction", "outcome"),
		retries:  m.counters("transaction_retries_total", "Reruns of transactions by SQLSTATE or reason.", "transaction", "reason"),
		fell:     m.counters("transaction_fallbacks_total", "Transactions that were not committed on the fast path, by reason.", "transaction", "reason"),
		rows:     m.gauge("blocked_rows", "Rows, such as accounts and locks, that commands need and somebody else has locked."),
		waiting:  m.gauge("blocked_commands", "Commands that wait for such rows, each by itself."),
	}
}

// Transaction implements the observer of the database.
func (t *Transactions) Transaction(name string, _ int, took time.Duration, outcome string) {
	t.duration.WithLabelValues(name).Observe(took.Seconds())
	// All outcomes are there from a transaction's first one on: what is there for the first time with 1 has not increased.
	if _, known := t.known.LoadOrStore(name, true); !known {
		for _, o := range []string{"committed", "failed", "unknown"} {
			t.outcomes.WithLabelValues(name, o)
		}
	}
	t.outcomes.WithLabelValues(name, outcome).Inc()
}

// Fallback implements the observer of the database.
func (t *Transactions) Fallback(name, reason string) { t.fell.WithLabelValues(name, reason).Inc() }

// Blocked implements the observer of the database.
func (t *Transactions) Blocked(rows, commands int) {
	t.rows.Set(float64(rows))
	t.waiting.Set(float64(commands))
}

// Retry implements the observer of the database.
func (t *Transactions) Retry(name, reason string) { t.retries.WithLabelValues(name, reason).Inc() }

// Lottery observes the lottery. Its metrics bear the names that the requirement gives them.
type Lottery struct {
	attempts, triggered, success, failure, retries, conflicts prometheus.Counter
	duration, lockWait                                        prometheus.Histogram
	stuck, oversold, twice, waiting, overdue                  prometheus.Gauge
	rounds                                                    *prometheus.CounterVec
}

// NewLottery registers the lottery's metrics.
func NewLottery(r prometheus.Registerer) *Lottery {
	m := metricsOf(r, "fairlead_lottery_")
	l := &Lottery{
		attempts:  m.counter("commands_total", "Commands on campaigns that were decided, purchases above all."),
		triggered: m.counter("draw_triggered_total", "Transactions that set out to draw, reruns included."),
		success:   m.counter("draw_success_total", "Draws committed."),
		failure:   m.counter("draw_failure_total", "Draws that were computed and not committed."),
		retries:   m.counter("draw_retries_total", "Reruns of transactions that draw."),
		conflicts: m.counter("state_machine_conflicts_total", "Refused transitions of a campaign's status."),
		duration:  m.histogram("draw_duration_seconds", "Time of a batch that draws, from its lane to its commit.", seconds()),
		lockWait:  m.histogram("advisory_lock_wait_seconds", "Wait for a campaign's advisory lock and row.", seconds()),
		stuck:     m.gauge("draws_stuck", "Campaigns drawing for longer than they may, at the last sweep."),
		oversold:  m.gauge("oversold_campaigns", "Campaigns in sale with more sold than they have, at the last sweep. Anything but 0 is a bug."),
		twice:     m.gauge("duplicate_draws", "Campaigns with more than one result, or with one before their draw, at the last sweep. Anything but 0 is a bug."),
		rounds:    m.counters("beacon_attempts_total", "Attempts to get the round of a beacon, by what they came to: ok, or the kind of failure.", "result"),
		waiting:   m.gauge("beacon_waiting", "Sealed campaigns that wait for their beacon's round, at the last sweep."),
		overdue:   m.gauge("beacon_overdue_seconds", "How long the longest waiting campaign has waited since its round was due, at the last sweep."),
	}
	l.rounds.WithLabelValues("ok") // There from the start.
	return l
}

// Attempted implements the observer of the lottery.
func (l *Lottery) Attempted(n int) { l.attempts.Add(float64(n)) }

// DrawTriggered implements the lottery's Observer.
func (l *Lottery) DrawTriggered(rerun bool) {
	l.triggered.Inc()
	if rerun {
		l.retries.Inc()
	}
}

// DrawEnded implements the observer of the lottery.
func (l *Lottery) DrawEnded(took time.Duration, err error) {
	if err != nil {
		l.failure.Inc()
		return
	}
	l.success.Inc()
	l.duration.Observe(took.Seconds())
}

// Conflict implements the observer of the lottery.
func (l *Lottery) Conflict() { l.conflicts.Inc() }

// Watched implements the observer of the lottery.
func (l *Lottery) Watched(stuck, oversold, duplicates, waiting int, overdue time.Duration) {
	l.stuck.Set(float64(stuck))
	l.oversold.Set(float64(oversold))
	l.twice.Set(float64(duplicates))
	l.waiting.Set(float64(waiting))
	l.overdue.Set(overdue.Seconds())
}

// RoundTried implements the observer of the lottery.
func (l *Lottery) RoundTried(failure string) {
	if failure == "" {
		failure = "ok"
	}
	l.rounds.WithLabelValues(failure).Inc()
}

// LockWait implements the observer of its store.
func (l *Lottery) LockWait(d time.Duration) { l.lockWait.Observe(d.Seconds()) }
