// Package telemetry turns what the services report into Prometheus metrics. Services know small observer interfaces of
// their own and nothing of Prometheus; this is where the two meet.
package telemetry

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/live"
)

// Lanes observes the group commit of one service.
type Lanes struct {
	batch, flush, wait                             prometheus.Histogram
	depth                                          prometheus.Gauge
	bisected, refused, panicked, failed, commanded prometheus.Counter
	load                                           atomic.Pointer[func() groupcommit.Load] // nil before there is a group
}

var _ groupcommit.Observer = (*Lanes)(nil)

// NewLanes registers the metrics of a service's group commit, labelled by the service.
func NewLanes(r prometheus.Registerer, service string) *Lanes {
	m := metricsOf(prometheus.WrapRegistererWith(prometheus.Labels{"service": service}, r), "fairlead_lane_")
	l := &Lanes{
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
	load := func() groupcommit.Load {
		if f := l.load.Load(); f != nil {
			return (*f)()
		}
		return groupcommit.Load{}
	}
	m.gaugeFunc("in_flight", "Commands that wait or are being committed, on all lanes.", func() float64 { return float64(load().All) })
	m.gaugeFunc("in_flight_busiest", "Commands that wait or are being committed on the lane that has most of them.", func() float64 { return float64(load().Most) })
	return l
}

// Made implements [groupcommit.Observer].
func (l *Lanes) Made(load func() groupcommit.Load) { l.load.Store(&load) }

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
	oldPrimary              *prometheus.CounterVec
	rows, tables, waiting   prometheus.Gauge
	known                   sync.Map // of the names whose outcomes are all there
}

// NewTransactions registers the transactions' metrics.
func NewTransactions(r prometheus.Registerer) *Transactions {
	m := metricsOf(r, "fairlead_")
	t := &Transactions{
		oldPrimary: m.counters("old_primary_connections_total", "Connections that led to a primary on an older timeline than the last one, by whether they were refused, or a commit was confirmed there.", "outcome"),
		duration:   m.histograms("transaction_duration_seconds", "Time of a transaction, its reruns included.", seconds(), "transaction"),
		outcomes:   m.counters("transactions_total", "Transactions by how they ended.", "transaction", "outcome"),
		retries:    m.counters("transaction_retries_total", "Reruns of transactions by SQLSTATE or reason.", "transaction", "reason"),
		fell:       m.counters("transaction_fallbacks_total", "Transactions that were not committed on the fast path, by reason.", "transaction", "reason"),
		rows:       m.gauge("blocked_rows", "Rows, such as accounts and locks, that commands need and somebody else has locked."),
		waiting:    m.gauge("blocked_commands", "Commands that wait, each by itself, for rows that somebody else has locked: those of fairlead_blocked_rows."),
		tables:     m.gauge("blocked_tables", "Tables that another session has kept locked, or rows there, for longer than 5 s; 0 where no transaction has waited in vain lately."),
	}
	for _, refused := range []bool{true, false} {
		t.oldPrimary.WithLabelValues(oldPrimaryOutcome(refused))
	}
	return t
}

func oldPrimaryOutcome(refused bool) string {
	if refused {
		return "refused"
	}
	return "committed"
}

// MetOldPrimary implements [postgres.Observer].
func (t *Transactions) MetOldPrimary(refused bool) {
	t.oldPrimary.WithLabelValues(oldPrimaryOutcome(refused)).Inc()
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

// BlockedTables implements the observer of the database.
func (t *Transactions) BlockedTables(tables int) { t.tables.Set(float64(tables)) }

// Retry implements the observer of the database.
func (t *Transactions) Retry(name, reason string) { t.retries.WithLabelValues(name, reason).Inc() }

// Lottery observes the lottery. Its metrics have the names that the requirement gives them.
type Lottery struct {
	attempts, triggered, success, retries, conflicts prometheus.Counter
	duration, lockWait                               prometheus.Histogram
	stuck, oversold, twice, waiting, overdue         prometheus.Gauge
	rounds, failures                                 *prometheus.CounterVec
}

// NewLottery registers the lottery's metrics. The failures are all kinds of them, so that each is there from the start.
func NewLottery(r prometheus.Registerer, failures []string) *Lottery {
	m := metricsOf(r, "fairlead_lottery_")
	l := &Lottery{
		attempts:  m.counter("commands_total", "Commands on campaigns that were decided, purchases above all."),
		triggered: m.counter("draw_triggered_total", "Transactions that set out to draw, reruns included."),
		success:   m.counter("draw_success_total", "Draws committed."),
		failures:  m.counters("draw_failure_total", "Draws that failed, by kind of failure: computed and not committed, or refused.", "error_type"),
		retries:   m.counter("draw_retries_total", "Reruns of transactions that draw."),
		conflicts: m.counter("state_machine_conflicts_total", "Refused transitions of a campaign's status."),
		duration:  m.histogram("draw_duration_seconds", "Time of a batch that draws, from its lane to its commit.", seconds()),
		lockWait:  m.histogram("advisory_lock_wait_seconds", "Wait for a campaign's advisory lock and row, of transactions that were decided under them.", seconds()),
		stuck:     m.gauge("draws_stuck", "Campaigns drawing for longer than they may, at the last sweep."),
		oversold:  m.gauge("oversold_campaigns", "Campaigns in sale with more sold than they have, at the last sweep. Anything but 0 is a bug."),
		twice:     m.gauge("duplicate_draws", "Campaigns with more than one result, or with one before their draw, at the last sweep. Anything but 0 is a bug."),
		rounds:    m.counters("beacon_attempts_total", "Attempts to get the round of a beacon, by what they came to: ok, or the kind of failure.", "result"),
		waiting:   m.gauge("beacon_waiting", "Sealed campaigns that wait for their beacon's round, at the last sweep."),
		overdue:   m.gauge("beacon_overdue_seconds", "How long the longest waiting campaign has waited since its round was due, at the last sweep."),
	}
	// There from the start.
	l.rounds.WithLabelValues("ok")
	for _, kind := range failures {
		l.failures.WithLabelValues(kind)
	}
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
func (l *Lottery) DrawEnded(took time.Duration, failure string) {
	if failure != "" {
		l.failures.WithLabelValues(failure).Inc()
		return
	}
	l.success.Inc()
	l.duration.Observe(took.Seconds())
}

// Conflicts implements the observer of the lottery.
func (l *Lottery) Conflicts(n int) { l.conflicts.Add(float64(n)) }

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

// LockWait implements the observer of the lottery.
func (l *Lottery) LockWait(d time.Duration) { l.lockWait.Observe(d.Seconds()) }

// metrics makes metrics whose names begin with prefix, and registers each.
type metrics struct {
	make   promauto.Factory
	prefix string
}

func metricsOf(r prometheus.Registerer, prefix string) metrics {
	return metrics{make: promauto.With(r), prefix: prefix}
}

func (m metrics) counter(name, help string) prometheus.Counter {
	return m.make.NewCounter(prometheus.CounterOpts{Name: m.prefix + name, Help: help})
}

func (m metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return m.make.NewCounterVec(prometheus.CounterOpts{Name: m.prefix + name, Help: help}, labels)
}

func (m metrics) gauge(name, help string) prometheus.Gauge {
	return m.make.NewGauge(prometheus.GaugeOpts{Name: m.prefix + name, Help: help})
}

func (m metrics) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return m.make.NewGaugeVec(prometheus.GaugeOpts{Name: m.prefix + name, Help: help}, labels)
}

// gaugeFunc and counterFunc make metrics whose values are read on each scrape.
func (m metrics) gaugeFunc(name, help string, value func() float64) {
	m.make.NewGaugeFunc(prometheus.GaugeOpts{Name: m.prefix + name, Help: help}, value)
}

func (m metrics) counterFunc(name, help string, value func() float64) {
	m.make.NewCounterFunc(prometheus.CounterOpts{Name: m.prefix + name, Help: help}, value)
}

func (m metrics) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return m.make.NewHistogram(prometheus.HistogramOpts{Name: m.prefix + name, Help: help, Buckets: buckets})
}

func (m metrics) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return m.make.NewHistogramVec(prometheus.HistogramOpts{Name: m.prefix + name, Help: help, Buckets: buckets}, labels)
}

// seconds are the buckets of durations from a tenth of a millisecond to ten seconds.
func seconds() []float64 {
	return []float64{.0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
}

// Pool is what is known of a pool of connections.
type Pool struct {
	Name         string
	Max, InUse   int
	Taken, Waits int64
	Waited       time.Duration
}

// ObservePools registers the metrics of the pools of connections, that of commands and that of reads in this order, which are
// read on each scrape. P is the [Pool] of whoever has the pools.
func ObservePools[P ~struct {
	Name         string
	Max, InUse   int
	Taken, Waits int64
	Waited       time.Duration
}](r prometheus.Registerer, pools func() []P) {
	for i, name := range []string{"commands", "reads"} {
		m := metricsOf(prometheus.WrapRegistererWith(prometheus.Labels{"pool": name}, r), "fairlead_database_connections_")
		pool := func() Pool { return Pool(pools()[i]) }
		m.gaugeFunc("max", "Most connections of a pool: of commands with the background work, or of reads.", func() float64 { return float64(pool().Max) })
		m.gaugeFunc("in_use", "Connections that are in use.", func() float64 { return float64(pool().InUse) })
		m.counterFunc("taken_total", "Connections that were taken from a pool.", func() float64 { return float64(pool().Taken) })
		m.counterFunc("waits_total", "Times that all connections were in use, so that somebody had to wait.", func() float64 { return float64(pool().Waits) })
		m.counterFunc("wait_seconds_total", "Time spent waiting for a connection.", func() float64 { return pool().Waited.Seconds() })
	}
}

// ObserveAccounts registers the metrics of the accounts that this server remembers.
func ObserveAccounts(r prometheus.Registerer, remembered func() (accounts int, forgotten int64)) {
	m := metricsOf(r, "fairlead_accounts_")
	m.gaugeFunc("in_memory", "Accounts that are remembered, so that commands need not read them.", func() float64 {
		accounts, _ := remembered()
		return float64(accounts)
	})
	m.counterFunc("forgotten_total", "Accounts that were forgotten for others: more are in use than --accounts-in-memory.", func() float64 {
		_, forgotten := remembered()
		return float64(forgotten)
	})
}

// ObserveReads registers the metric of the reads that wait for locks.
func ObserveReads(r prometheus.Registerer, blocked func() int) {
	metricsOf(r, "fairlead_").gaugeFunc("blocked_reads", "Reads that wait for a table that somebody has locked against readers.", func() float64 { return float64(blocked()) })
}

// SharedTarget is a target that several servers work on, and how often this one finds it changed, a second.
type SharedTarget struct {
	Target string
	Rate   float64
}

// ObserveEngine registers the metric of what the database's engine lacks, and says so once.
func ObserveEngine(r prometheus.Registerer, missing []string) {
	lacks := metricsOf(r, "fairlead_database_").gauges("lacks", "1 for each capability that the database was found to lack at the start, and that has something else in its place.", "capability")
	for _, c := range missing {
		lacks.WithLabelValues(c).Set(1)
	}
}

// ObserveShared registers the metric of the targets that this server works on in turns with others; what there is at a scrape is all
// that it shows. T is the [SharedTarget] of whoever counts them.
func ObserveShared[T ~struct {
	Target string
	Rate   float64
}](r prometheus.Registerer, shared func() []T) {
	r.MustRegister(&sharedCollector{
		rate: prometheus.NewDesc("fairlead_shared_target_changes_per_second", "Times in a second that another server had changed an auction or campaign since this one worked on it. Only those with 2 or more are there, 20 at most.", []string{"target"}, nil),
		list: func() (list []SharedTarget) {
			for _, t := range shared() {
				list = append(list, SharedTarget(t))
			}
			return list
		},
	})
}

type sharedCollector struct {
	rate *prometheus.Desc
	list func() []SharedTarget
}

// Describe implements [prometheus.Collector].
func (c *sharedCollector) Describe(to chan<- *prometheus.Desc) { to <- c.rate }

// Collect implements [prometheus.Collector].
func (c *sharedCollector) Collect(to chan<- prometheus.Metric) {
	for _, t := range c.list() {
		to <- prometheus.MustNewConstMetric(c.rate, prometheus.GaugeValue, t.Rate, t.Target)
	}
}

// Replica is the state of a standby that reads go to.
type Replica struct {
	Usable                 bool
	Lag                    time.Duration
	Served, Failed, Behind int64
}

// ObserveReplica registers the metrics of a standby, which are read on each scrape. R is the [Replica] of whoever reads from it.
func ObserveReplica[R ~struct {
	Usable                 bool
	Lag                    time.Duration
	Served, Failed, Behind int64
}](r prometheus.Registerer, replica func() (R, bool)) {
	m := metricsOf(r, "fairlead_replica_")
	state := func() Replica {
		s, _ := replica()
		return Replica(s)
	}
	m.gaugeFunc("usable", "1 while reads go to the standby, else 0.", func() float64 {
		if state().Usable {
			return 1
		}
		return 0
	})
	m.gaugeFunc("lag_seconds", "How old what the standby shows may be at most; 0: it is not known.", func() float64 { return state().Lag.Seconds() })
	m.counterFunc("served_total", "Reads that the standby has answered.", func() float64 { return float64(state().Served) })
	m.counterFunc("failed_total", "Reads that the standby has failed, so that the primary answered.", func() float64 { return float64(state().Failed) })
	m.counterFunc("behind_total", "Reads that the primary answered, because the standby was away, too old, or behind what the client wanted to see.", func() float64 { return float64(state().Behind) })
}

// ObserveLive registers the live stream's metrics, which are read from the hub on each scrape.
func ObserveLive(r prometheus.Registerer, hub *live.Hub) {
	m := metricsOf(r, "fairlead_live_")
	m.gaugeFunc("topics", "Topics that are followed.", func() float64 { return float64(hub.Stats().Topics) })
	m.gaugeFunc("subscribers", "Connections to the live stream.", func() float64 { return float64(hub.Stats().Subscribers) })
	m.gaugeFunc("subscriptions", "Subscriptions of all connections.", func() float64 { return float64(hub.Stats().Subscriptions) })
	m.counterFunc("dropped_total", "Subscribers disconnected because they fell behind.", func() float64 { return float64(hub.Stats().Dropped) })
	m.counterFunc("pages_total", "Pages read from the log for subscribers that resume, or for other processes' events.", func() float64 { return float64(hub.Stats().Pages) })
}
