//go:build unix

package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestAuctionServerDiesAtEveryCrashPoint lets the only server, which is the leader, kill itself at each named place of an
// auction, under load that settles every bid by its key when the server is back. Its subscriber misses nothing, and what
// the auction's events say is recomputed when it has ended.
func TestAuctionServerDiesAtEveryCrashPoint(t *testing.T) {
	beside(t)
	sessions(t, 5, func(t *testing.T) {
		t.Helper()
		rng, seed := testwait.Rand(t)
		accounts := names("bidder", 12)
		h := openHouse(t, 1, append(accounts, "gallery"), 1_000_000)
		server := h.servers[0]
		for run := range testwait.Count(1, 3) {
			for i, point := range []string{"auction.before_commit", "auction.after_commit", "auction.settle"} {
				rules := killRules(rng, "gallery")
				rules.Rounds = rules.Rounds[:4] // Two closes are enough, and are left after the first kill.
				b := h.launch(t, fmt.Sprintf("crash-%d-%s", run, point), accounts, rules)
				c := b.crowd(t, seed+uint64(3*run+i), 2, 0)
				await(t, "answers", h.history.After(20))
				deaths := []time.Time{time.Now()}
				// Rounds close now and then, batches of bids commit all the time.
				hit := 1 + rng.IntN(40)
				if point == "auction.settle" {
					hit = 1 + rng.IntN(2)
				}
				at := fmt.Sprintf("%s:%d", point, hit)
				willDie(t, server, at)
				dies(t, server, at)
				deaths = append(deaths, time.Now())
				start(t, server)
				await(t, "answers after "+at, h.history.After(30))
				b.await(t, 2*patience, "the end of the auction", isEnd)
				c.finish(t)
				out := b.finish(t, patience)
				testpromise.CheckEach(t, promisesUnderKills[:2], func(seen func(string, time.Duration)) { closes(out, deaths, seen) })
				if t.Failed() {
					t.Fatalf("run %d, %s", run, at)
				}
				if len(out.Rounds) == 0 || len(out.Bids) == 0 {
					t.Errorf("%s: %d rounds and %d bids", at, len(out.Rounds), len(out.Bids))
				}
			}
		}
		h.close(t, 20)
	})
}
