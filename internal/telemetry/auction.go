package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Auctions observes the auctions and the leader that closes their rounds.
type Auctions[O ~string] struct {
	extensions, closed prometheus.Counter
	term, leading      prometheus.Gauge
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

// Leading implements the observer of an election, for the one election that the auctions' leader holds.
func (a *Auctions[O]) Leading(_ string, term int64, leading bool) {
	a.term.Set(float64(term))
	if leading {
		a.leading.Set(1)
		return
	}
	a.leading.Set(0)
}
