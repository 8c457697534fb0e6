//go:build unix

package sim_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestRandomAuctionsAreReplayed draws auctions of all kinds and bids of all kinds on them from a seed. In the middle of
// each, and at its end, the auditor plays its events and compares everything with what the servers say.
func TestRandomAuctionsAreReplayed(t *testing.T) {
	beside(t)
	rng, _ := testwait.Rand(t)
	accounts := names("bidder", testwait.Count(30, 300))
	// Little enough for some bids to be refused for want of money, as winners grow poor.
	h := openHouse(t, 2, append(accounts, "gallery"), int64(testwait.Count(3_000, 20_000)))
	target := int64(testwait.Count(1_000, 100_000))
	var sent int64
	var accepted, outbid, wins, extensions, looks int
	for run := 0; sent < target && !t.Failed(); run++ {
		rules := randomRules(rng, run == 0 || rng.IntN(4) > 0)
		if run == 0 {
			rules.Rounds[0].Duration = 8 * time.Second // A look takes a request an account, and may be slower than a short round.
		}
		b := h.launch(t, fmt.Sprintf("random-%d", run), accounts, rules)
		// Two crowds bid one after the other. Between them, only the clock changes anything.
		for _, most := range []int{testwait.Count(100, 2_000), testwait.Count(200, 5_000)} {
			c := b.crowd(t, rng.Uint64(), 8, int64(most))
			c.drain(t)
			sent += int64(most)
			if b.lookAround(t) {
				looks++
			}
			b.name += "+" // for the keys
		}
		// And a few who bid until the end, so that rounds are extended.
		c := b.crowd(t, rng.Uint64(), 2, 0)
		b.await(t, patience, "the end of the auction", isEnd)
		sent += c.sent.Load()
		c.finish(t)
		out := b.finish(t, patience)
		accepted += len(out.Bids)
		for _, placed := range out.Bids {
			outbid += len(*placed.Outbid)
		}
		wins += len(out.Wins())
		for _, r := range out.Rounds {
			extensions += r.Extensions
		}
	}
	t.Logf("%d bids sent, %d accepted, %d times somebody was outbid, %d wins, %d extensions, %d looks in the middle",
		sent, accepted, outbid, wins, extensions, looks)
	if accepted == 0 || outbid == 0 || wins == 0 || extensions == 0 || looks == 0 {
		t.Error("something never happened")
	}
	h.close(t, 10)
}

// randomRules draws an auction that lasts some seconds, with or without anti-sniping.
func randomRules(rng *rand.Rand, snipe bool) replay.Rules {
	rules := replay.Rules{
		Seller: "gallery", MinBid: 1 + rng.Int64N(5), MinIncrement: 1 + rng.Int64N(10), UniqueAmounts: rng.IntN(3) > 0,
	}
	if snipe {
		rules.Window = time.Duration(50+rng.IntN(600)) * time.Millisecond
		rules.Extension = time.Duration(20+rng.IntN(300)) * time.Millisecond
		rules.MaxExtensions = 1 + rng.IntN(5)
	}
	if rng.IntN(3) == 0 {
		rules.Cooldown = time.Duration(1+rng.IntN(20)) * time.Millisecond
	}
	for range 3 + rng.IntN(4) {
		rules.Rounds = append(rules.Rounds, replay.RoundRule{
			Winners: 1 + rng.IntN(8), Duration: time.Duration(testwait.Count(400, 1000)+rng.IntN(testwait.Count(500, 2000))) * time.Millisecond,
		})
	}
	return rules
}

// lookAround compares an auction under way with what its events come to. A round may close meanwhile; then it looks
// again, and it gives up when the auction has ended.
func (b *bidding) lookAround(t *testing.T) (seen bool) {
	t.Helper()
	ctx := testwait.Context(t, patience)
	for {
		var shown struct {
			Seq    int64  `json:"seq"`
			Status string `json:"status"`
		}
		testwait.Must(t, b.house.client.GetJSON(ctx, "/v1/auctions/"+b.id, &shown))
		if shown.Status != "active" {
			return false
		}
		testwait.Must(t, testwait.Err(b.subscribers[0].Await(ctx, "the last event", func(e replay.Event) bool { return e.Seq >= shown.Seq })))
		out := b.replay(t, b.subscribers[0].Events()[:shown.Seq])
		err := compareAuction(ctx, b.house.client, b.id, out)
		if err == nil {
			return true
		}
		var again struct {
			Seq int64 `json:"seq"`
		}
		testwait.Must(t, b.house.client.GetJSON(ctx, "/v1/auctions/"+b.id, &again))
		// The leaderboard of a round that is over and not yet closed is still that of the events.
		if again.Seq == shown.Seq || !errors.As(err, new(*replay.Difference)) && ctx.Err() != nil {
			t.Fatalf("%s: %v", b.name, err)
		}
	}
}
