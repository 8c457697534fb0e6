package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/lock"
)

// Auctions observes the auctions and the leader that closes their rounds.
type Auctions struct {
	bids       map[auction.Outcome]prometheus.Counter
	extensions prometheus.Counter
	closed     prometheus.Counter
	term       prometheus.Gauge
	leading    prometheus.Gauge
}

var (
	_ auction.Observer  = (*Auctions)(nil)
	_ lock.TermObserver = (*Auctions)(nil)
)

// NewAuctions registers the auctions' metrics. All of them, and every outcome of a bid, are there from the start.
func NewAuctions(r prometheus.Registerer) *Auctions {
	bids := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fairlead_auction_bids_total", Help: "Bids decided and committed, by outcome; replays are not counted.",
	}, []string{"outcome"})
	a := &Auctions{
		bids:       map[auction.Outcome]prometheus.Counter{},
		extensions: prometheus.NewCounter(prometheus.CounterOpts{Name: "fairlead_auction_extensions_total", Help: "Rounds' ends moved by late bids."}),
		closed:     prometheus.NewCounter(prometheus.CounterOpts{Name: "fairlead_auction_rounds_closed_total", Help: "Rounds settled by this process."}),
		term:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_auction_leader_term", Help: "The last term in which this process led; 0 before the first."}),
		leading:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_auction_is_leader", Help: "Whether this process is the leader, 1 or 0. More than one in sum is a bug."}),
	}
	for _, outcome := range auction.Outcomes() {
		a.bids[outcome] = bids.WithLabelValues(outcome.String())
	}
	r.MustRegister(bids, a.extensions, a.closed, a.term, a.leading)
	return a
}

// BidsDecided implements [auction.Observer].
func (a *Auctions) BidsDecided(outcome auction.Outcome, n int) { a.bids[outcome].Add(float64(n)) }

// RoundsExtended implements [auction.Observer].
func (a *Auctions) RoundsExtended(n int) { a.extensions.Add(float64(n)) }

// RoundClosed implements [auction.Observer].
func (a *Auctions) RoundClosed() { a.closed.Inc() }

// Leading implements [lock.TermObserver], for the one election that the auctions' leader holds.
func (a *Auctions) Leading(_ string, term int64, leading bool) {
	a.term.Set(float64(term))
	if leading {
		a.leading.Set(1)
		return
	}
	a.leading.Set(0)
}
