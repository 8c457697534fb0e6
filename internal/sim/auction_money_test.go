//go:build unix

package sim_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/audit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestAuctionMoneyUnderLoad looks at the money in many snapshots while two servers take bids and close rounds: what
// is held is the sum of the active bids, and nothing is lost or made. After every round its winners have paid the seller
// and the others' money is still held; after the last one nothing is.
func TestAuctionMoneyUnderLoad(t *testing.T) {
	beside(t)
	sessions(t, 10, func(t *testing.T) {
		t.Helper()
		snapshots := testwait.Count(40, 100)
		_, seed := testwait.Rand(t)
		accounts := names("bidder", 40)
		h := openHouse(t, 2, append(accounts, "gallery"), 20_000)
		rules := replay.Rules{
			Seller: "gallery", MinBid: 1, MinIncrement: 1, UniqueAmounts: true,
			Window: 100 * time.Millisecond, Extension: 150 * time.Millisecond, MaxExtensions: 3,
		}
		for i := range 6 {
			rules.Rounds = append(rules.Rounds, replay.RoundRule{Winners: 1 + i%4, Duration: 700 * time.Millisecond})
		}
		var taken, asked int
		for run := 0; taken < snapshots && !t.Failed(); run++ {
			b := h.launch(t, fmt.Sprintf("money-%d", run), accounts, rules)
			c := b.crowd(t, seed+uint64(run), 8, 0)
			over := make(chan struct{})
			var group sync.WaitGroup
			group.Go(func() {
				defer close(over)
				// The end is awaited here, failures told by finish.
				_, _ = b.subscribers[0].Await(testwait.Context(t, 2*patience), "the end", isEnd)
			})
			group.Go(func() {
				snapshots, checks := h.watchHeld(t, over)
				taken, asked = taken+snapshots, asked+checks
			})
			group.Wait()
			c.finish(t)
			out := b.finish(t, patience)
			h.settledByRound(t, b, out)
			if held := out.Held(); held != 0 {
				t.Errorf("%d held after the end", held)
			}
			t.Logf("%d bids, income %d, %d snapshots, %d integrity checks", len(out.Bids), out.Income, taken, asked)
		}
		if taken < snapshots || asked < snapshots/10 {
			t.Errorf("only %d snapshots and %d integrity checks", taken, asked)
		}
		h.close(t, 5)
	})
}

// settledByRound plays the auction up to each close and compares with what the accounts' entries say by then: the
// transfers of the round's winners, and nobody else's.
func (h *auctionHouse) settledByRound(t *testing.T, b *bidding, out *replay.Outcome) {
	t.Helper()
	conn := pgtest.Connect(t, h.database)
	for _, r := range out.Rounds {
		var paid int64
		for _, w := range r.Winners {
			paid += w.Amount
		}
		var winners int
		var received int64
		const question = `SELECT count(*), coalesce(sum(e.amount), 0)::bigint
			FROM auction_winners w JOIN entries e ON e.transfer = w.transfer AND e.account = $3
			WHERE w.auction = $1 AND w.round = $2`
		testwait.Must(t, conn.QueryRow(t.Context(), question, b.id, r.Number, b.rules.Seller).Scan(&winners, &received))
		if winners != len(r.Winners) || received != paid || winners > r.Places {
			t.Errorf("round %d: the seller received %d from %d winners, by the events %d from %d", r.Number, received, winners, paid, len(r.Winners))
		}
	}
	testwait.Check(t, conn.Close(t.Context()))
}

// watchHeld compares, in one snapshot after another, what is held with the active bids, and all money with what came in.
// It asks the servers for the same now and then.
func (h *auctionHouse) watchHeld(t *testing.T, stop <-chan struct{}) (snapshots, integrities int) {
	t.Helper()
	conn := pgtest.Connect(t, h.database)
	const question = `SELECT (SELECT coalesce(sum(held), 0)::bigint FROM accounts),
		(SELECT coalesce(sum(amount), 0)::bigint FROM auction_standing WHERE active),
		(SELECT coalesce(sum(available + held), 0)::bigint FROM accounts),
		(SELECT coalesce(sum(CASE kind WHEN 'deposit' THEN amount ELSE -amount END), 0)::bigint FROM transfers
		 WHERE kind IN ('deposit', 'withdrawal') AND status = 'completed'),
		(SELECT count(*) FROM accounts a FULL JOIN
		 (SELECT account, sum(amount) AS bids FROM auction_standing WHERE active GROUP BY account) s ON s.account = a.id
		 WHERE coalesce(a.held, 0) <> coalesce(s.bids, 0)),
		(SELECT count(*) FROM accounts WHERE available < 0 OR held < 0)`
	// Looking is not to be most of what the machine does.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return snapshots, integrities
		case <-t.Context().Done():
			return snapshots, integrities
		case <-tick.C:
		}
		var held, bids, total, came int64
		var unequal, negative int
		if err := conn.QueryRow(t.Context(), question).Scan(&held, &bids, &total, &came, &unequal, &negative); err != nil {
			t.Error(err)
			return snapshots, integrities
		}
		if held != bids || total != came || unequal != 0 || negative != 0 {
			t.Errorf("snapshot %d: held %d, active bids %d; total %d, came in %d; %d accounts hold another amount, %d are negative",
				snapshots, held, bids, total, came, unequal, negative)
			return snapshots, integrities
		}
		snapshots++
		if snapshots%5 == 0 {
			var report struct {
				Valid      bool  `json:"valid"`
				Difference int64 `json:"difference"`
			}
			if err := h.client.GetJSON(t.Context(), "/v1/integrity", &report); err != nil || !report.Valid || report.Difference != 0 {
				t.Errorf("integrity check %d: %+v: %v", integrities, report, err)
			}
			integrities++
		}
		if snapshots%20 == 0 {
			complain(t, audit.Audit(testwait.Context(t, patience), conn))
		}
	}
}

// TestWinnerBidsAnew wins the first round and bids again in the second, where a carried-over bid beats it. Where a machine is so slow that a round is
// over before its bids have come, the rounds of the next auction are longer.
func TestWinnerBidsAnew(t *testing.T) {
	beside(t)
	enough := 4 * time.Second // for four bids, of which each may wait for a slow disk
	for !winnerBidsAnew(t, enough) {
		if enough *= 2; enough > patience {
			t.Fatalf("no bids come within %v", enough/2)
		}
	}
}

// winnerBidsAnew reports false where a round was over before its bids had come.
func winnerBidsAnew(t *testing.T, enough time.Duration) (inTime bool) {
	t.Helper()
	h := openHouse(t, 1, []string{"ann", "bob", "gallery"}, 1000)
	rules := replay.Rules{Seller: "gallery", UniqueAmounts: true, Rounds: []replay.RoundRule{
		{Winners: 1, Duration: enough}, {Winners: 1, Duration: enough},
	}}
	b := h.launch(t, "anew", []string{"ann", "bob"}, rules)
	late := false
	bid := func(key, account string, amount, round int64) sim.Answer {
		a, err := h.client.Settle(testwait.Context(t, patience), sim.NewBid(key, b.id, account, amount))
		testwait.Must(t, err)
		var told client.Bid
		late = late || a.Code() == "not_active" || a.Status == http.StatusCreated && a.JSON(&told) == nil && told.Round != round
		return a
	}
	first := []sim.Answer{bid("bob-1", "bob", 300, 1), bid("ann-1", "ann", 900, 1)}
	seller, dear := bid("seller", "gallery", 950, 1), bid("dear", "bob", 1001, 1)
	if late {
		return false
	}
	for i, a := range first {
		if a.Status != http.StatusCreated {
			t.Fatalf("bid %d: %v", i, a)
		}
	}
	if seller.Code() != "own_auction" {
		t.Errorf("bid of the seller: %v", seller)
	}
	if dear.Code() != "insufficient_funds" {
		t.Errorf("bid that is not covered: %v", dear)
	}
	b.await(t, patience, "the second round", func(e replay.Event) bool { return e.Opening != nil && e.Opening.Round == 2 })
	// Of her thousand ann paid 900.
	spent, anew := bid("ann-2", "ann", 101, 2), bid("ann-3", "ann", 100, 2)
	if late {
		return false
	}
	if spent.Code() != "insufficient_funds" {
		t.Errorf("the winner's money is spent: %v", spent)
	}
	if anew.Status != http.StatusCreated {
		t.Errorf("the winner bids anew: %v", anew)
	}
	out := b.finish(t, patience)
	if out.Income != 1200 || h.funds["ann"] != 100 || h.funds["bob"] != 700 || h.funds["gallery"] != 2200 {
		t.Errorf("income %d, funds %v", out.Income, h.funds)
	}
	h.close(t, 1)
	return true
}
