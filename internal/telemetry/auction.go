package telemetry

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Outcome is what became of a bid, in the words of the auctions' service.
type Outcome interface {
	comparable
	fmt.Stringer
}

// Auctions observes the auctions and the leader that closes their rounds.
type Auctions[O Outcome] struct {
	bids       map[O]prometheus.Counter
	extensions prometheus.Counter
	closed     prometheus.Counter
	term       prometheus.Gauge
	leading    prometheus.Gauge
}

// NewAuctions registers the auctions' metrics. All of them, and every outcome of a bid, are there from the start.
func NewAuctions[O Outcome](r prometheus.Registerer, outcomes []O) *Auctions[O] {
	bids := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fairlead_auction_bids_total", Help: "Bids decided and committed, by outcome; replays are not counted.",
	}, []string{"outcome"})
	a := &Auctions[O]{
		bids:       map[O]prometheus.Counter{},
		extensions: prometheus.NewCounter(prometheus.CounterOpts{Name: "fairlead_auction_extensions_total", Help: "Rounds' ends moved by late bids."}),
		closed:     prometheus.NewCounter(prometheus.CounterOpts{Name: "fairlead_auction_rounds_closed_total", Help: "Rounds settled by this process."}),
		term:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_auction_leader_term", Help: "The last term in which this process led; 0 before the first."}),
		leading:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_auction_is_leader", Help: "Whether this process is the leader, 1 or 0. More than one in sum is a bug."}),
	}
	for _, outcome := range outcomes {
		a.bids[outcome] = bids.WithLabelValues(outcome.String())
	}
	r.MustRegister(bids, a.extensions, a.closed, a.term, a.leading)
	return a
}

// BidsDecided implements the observer of the auctions.
func (a *Auctions[O]) BidsDecided(outcome O, n int) { a.bids[outcome].Add(float64(n)) }

// RoundsExtended implements the observer of the auctions.
func (a *Auctions[O]) RoundsExtended(n int) { a.extensions.Add(float64(n)) }

// RoundClosed implements the observer of the auctions.
func (a *Auctions[O]) RoundClosed() { a.closed.Inc() }

// Leading implements the observer of an election, for the one election that the auctions' leader holds.
func (a *Auctions[O]) Leading(_ string, term int64, leading bool) {
	a.term.Set(float64(term))
	if leading {
		a.leading.Set(1)
		return
	}
	a.leading.Set(0)
}
