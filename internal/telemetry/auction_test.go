package telemetry_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
)

// TestAuctions holds the names to those that alerts and dashboards are written with.
func TestAuctions(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	a := telemetry.NewAuctions(r, auction.Outcomes())
	bids := func(outcome string) string { return `fairlead_auction_bids_total{outcome="` + outcome + `"}` }
	want := map[string]sample{}
	for _, outcome := range []string{
		"accepted", "account_not_found", "not_active", "own_auction", "cooldown", "bid_too_low", "amount_taken", "currency_mismatch", "insufficient_funds",
	} {
		want[bids(outcome)] = sample{}
	}
	for _, n := range []string{"extensions_total", "rounds_closed_total", "leader_term", "is_leader", "round_overdue_seconds"} {
		want["fairlead_auction_"+n] = sample{}
	}
	expect(t, r, want) // All of them are there from the start, so that an alert on absence makes sense.

	a.BidsDecided(auction.OutcomeAccepted, 7)
	a.BidsDecided(auction.OutcomeAccepted, 2)
	a.BidsDecided(auction.OutcomeCooldown, 3)
	a.RoundsExtended(2)
	a.RoundClosed()
	a.RoundOverdue(1500 * time.Millisecond)
	a.Leading("auctions", 4, true)
	want[bids("accepted")], want[bids("cooldown")] = sample{value: 9}, sample{value: 3}
	want["fairlead_auction_extensions_total"], want["fairlead_auction_rounds_closed_total"] = sample{value: 2}, sample{value: 1}
	want["fairlead_auction_round_overdue_seconds"] = sample{value: 1.5}
	want["fairlead_auction_leader_term"], want["fairlead_auction_is_leader"] = sample{value: 4}, sample{value: 1}
	expect(t, r, want)
	a.Leading("auctions", 4, false)
	want["fairlead_auction_is_leader"] = sample{} // The term stays: it is the last in which this process led.
	expect(t, r, want)
}
