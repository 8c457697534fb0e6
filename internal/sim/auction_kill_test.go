//go:build unix

package sim_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// leads asks a server's metrics whether it is the leader.
func leads(t *testing.T, server *sim.Server) bool {
	t.Helper()
	return bytes.Contains(metricsOf(t, server), []byte("\nfairlead_auction_is_leader 1\n"))
}

// leader waits until one of the servers, all of which run, leads, which is promised within a limit. Two at a time never do.
func (h *auctionHouse) leader(t *testing.T, limit time.Duration) (leader *sim.Server, others []*sim.Server) {
	t.Helper()
	testwait.Eventually(t, testwait.Promised(limit), "a leader", func() bool {
		leader, others = nil, nil
		for _, server := range h.servers {
			if leader == nil && leads(t, server) {
				leader = server
			} else {
				others = append(others, server)
			}
		}
		return leader != nil
	})
	return leader, others
}

// ended says whether the last event has come.
func (b *bidding) ended() bool {
	events := b.subscribers[0].Events()
	return len(events) > 0 && isEnd(events[len(events)-1])
}

// checkCloses wants every round to have closed in time, given when leaders died, in order, and returns how late the latest
// was of those that no death could have delayed, and of the others. Who dies before a round had to be closed gives its
// successor time anew.
func checkCloses(t *testing.T, out *replay.Outcome, deaths []time.Time) (calm, delayed time.Duration) {
	t.Helper()
	for _, r := range out.Rounds {
		if out.Status == "cancelled" || r.Status != "completed" {
			continue
		}
		late, limit, near := r.CompletedAt.Sub(r.EndsAt), testwait.Promised(closeLimit), false
		for _, death := range deaths {
			if after := death.Sub(r.EndsAt); after <= limit {
				limit = max(limit, after+testwait.Promised(closeLimitAfterDeath))
				near = near || after >= -closeLimitAfterDeath && death.Before(r.CompletedAt)
			}
		}
		if late > limit {
			t.Errorf("round %d ended at %v and closed %v later, limit %v; leaders died at %v", r.Number, r.EndsAt, late, limit, deaths)
		}
		if near {
			delayed = max(delayed, late)
		} else {
			calm = max(calm, late)
		}
	}
	return calm, delayed
}

// checkTicks wants the countdowns of one connection each in a second of its own, since a leader that is dead says nothing
// more, and no gap but when a leader died. It returns how many it compared.
func checkTicks(t *testing.T, s *sim.Subscriber, deaths []time.Time) (compared int) {
	t.Helper()
	ticks := s.Ticks()
	for i := 1; i < len(ticks); i++ {
		a, b := ticks[i-1], ticks[i]
		if a.Connection != b.Connection || a.Round != b.Round || !a.EndsAt.Equal(b.EndsAt) {
			continue
		}
		compared++
		limit := testwait.Promised(2500 * time.Millisecond)
		for _, death := range deaths {
			if death.Before(b.Arrived) && a.Arrived.Sub(death) < closeLimitAfterDeath {
				limit = testwait.Promised(closeLimitAfterDeath + 2*time.Second)
			}
		}
		if !b.At.Truncate(time.Second).After(a.At.Truncate(time.Second)) || a.RemainingMS <= b.RemainingMS {
			t.Errorf("round %d: countdowns of %d ms at %v and %d ms at %v", a.Round, a.RemainingMS, a.At, b.RemainingMS, b.At)
		}
		if apart := b.Arrived.Sub(a.Arrived); apart > limit {
			t.Errorf("round %d: no countdown for %v", a.Round, apart)
		}
	}
	return compared
}

// TestAuctionServersAreKilled kills one of two servers under load again and again, the leader half of the time. Rounds
// still settle once and in time, acknowledged bids stand, and a subscriber on each server sees every event in order,
// without gap or double.
func TestAuctionServersAreKilled(t *testing.T) {
	sessions(t, 10, func(t *testing.T) {
		t.Helper()
		const auctions = 2
		rng, seed := testwait.Rand(t)
		h := openHouse(t, 2, []string{"gallery-0", "gallery-1"}, 0)
		var bidders [auctions][]string
		for i := range bidders {
			bidders[i] = names(fmt.Sprintf("bidder-%d", i), 12)
			h.open(t, bidders[i], 1_000_000)
		}
		h.leader(t, closeLimitAfterDeath)
		var running [auctions]*bidding
		var crowds [auctions]*crowd
		var deaths []time.Time
		var calm, delayed time.Duration
		var bids, rounds, ticks, resumed, run int
		end := func(i int) {
			crowds[i].finish(t)
			out := running[i].finish(t, patience)
			a, b := checkCloses(t, out, deaths)
			calm, delayed, bids, rounds = max(calm, a), max(delayed, b), bids+len(out.Bids), rounds+len(out.Rounds)
			for _, s := range running[i].subscribers {
				ticks += checkTicks(t, s, deaths)
				connections, _ := s.Connections()
				resumed += connections - 1
				testwait.Check(t, s.Close())
			}
		}
		begin := func(i int) {
			run++
			running[i] = h.launch(t, fmt.Sprintf("kill-%d", run), bidders[i], killRules(rng, fmt.Sprintf("gallery-%d", i)))
			crowds[i] = running[i].crowd(t, seed+uint64(run), 3, 0)
		}
		for i := range running {
			begin(i)
		}
		kills := testwait.Count(4, 10)
		for kill := range kills {
			for i := range running {
				if running[i].ended() {
					end(i)
					begin(i)
				}
			}
			await(t, "answers", h.history.After(20+rng.IntN(150)))
			leader, others := h.leader(t, closeLimitAfterDeath)
			victim := others[0]
			if kill%2 == 0 {
				victim = leader
				deaths = append(deaths, time.Now())
			}
			testwait.Must(t, victim.Kill(testwait.Context(t, patience)))
			await(t, "answers of the other server", h.history.After(20+rng.IntN(60)))
			start(t, victim)
			if t.Failed() {
				t.Fatalf("after kill %d", kill)
			}
		}
		for i := range running {
			end(i)
		}
		t.Logf("%d kills, %d of leaders; %d auctions, %d rounds, %d bids; closes at most %v late, %v around a leader's death; "+
			"%d countdowns compared, %d subscriptions resumed", kills, len(deaths), run, rounds, bids, calm, delayed, ticks, resumed)
		if resumed == 0 {
			t.Error("no subscription was resumed")
		}
		h.close(t, 5)
	})
}

// killRules draws an auction that lasts for some kills.
func killRules(rng *rand.Rand, seller string) replay.Rules {
	rules := replay.Rules{
		Seller: seller, UniqueAmounts: rng.IntN(2) == 0,
		Window: 150 * time.Millisecond, Extension: 200 * time.Millisecond, MaxExtensions: 3,
	}
	for range 6 {
		rules.Rounds = append(rules.Rounds, replay.RoundRule{
			Winners: 1 + rng.IntN(3), Duration: 500*time.Millisecond + time.Duration(rng.IntN(2000))*time.Millisecond,
		})
	}
	return rules
}

// TestOneCountdownASecond listens on each of two servers: every second one countdown, and not two, before and after
// the leader is killed, and after the next one has handed over by itself.
func TestOneCountdownASecond(t *testing.T) {
	h := openHouse(t, 2, []string{"ann", "gallery"}, 1000)
	h.leader(t, closeLimitAfterDeath)
	rules := calm(1)
	rules.Rounds[0].Duration = 10 * time.Minute
	b := h.launch(t, "countdown", []string{"ann"}, rules)
	var deaths []time.Time
	listen := func(limit time.Duration) {
		for i, s := range b.subscribers {
			from, began := len(s.Ticks()), time.Now()
			awaitTicks(t, s, from+1, testwait.Promised(limit))
			t.Logf("subscriber %d: a countdown after %v", i, time.Since(began).Round(time.Millisecond))
			awaitTicks(t, s, from+testwait.Count(3, 20), testwait.Promised(time.Duration(testwait.Count(3, 20)+2)*time.Second))
		}
	}
	listen(2 * time.Second)
	leader, _ := h.leader(t, closeLimitAfterDeath)
	deaths = append(deaths, time.Now())
	testwait.Must(t, leader.Kill(testwait.Context(t, patience)))
	start(t, leader)
	listen(closeLimitAfterDeath + time.Second)
	leader, _ = h.leader(t, closeLimitAfterDeath)
	deaths = append(deaths, time.Now())
	if code, err := leader.Terminate(testwait.Context(t, patience)); err != nil || code != 0 {
		t.Fatalf("code %d: %v", code, err)
	}
	start(t, leader)
	listen(closeLimitAfterDeath + time.Second)
	b.act(t, "cancel")
	b.finish(t, patience)
	for i, s := range b.subscribers {
		if compared := checkTicks(t, s, deaths); compared == 0 {
			t.Errorf("subscriber %d: no countdowns to compare", i)
		} else {
			t.Logf("subscriber %d: %d countdowns a second apart", i, compared)
		}
	}
	h.close(t, 1)
}

// awaitTicks waits until a subscriber has had n countdowns.
func awaitTicks(t *testing.T, s *sim.Subscriber, n int, limit time.Duration) {
	t.Helper()
	testwait.Must(t, s.AwaitTicks(testwait.Context(t, limit), n))
}

// TestStoppedLeaderWakes freezes the leader for longer than its term, lets the other server take over, and wakes it. It
// must not close anything any more, and its subscriber must have missed nothing.
func TestStoppedLeaderWakes(t *testing.T) {
	rng, seed := testwait.Rand(t)
	accounts := names("bidder", 12)
	h := openHouse(t, 2, append(accounts, "gallery"), 1_000_000)
	h.client.LimitAttempts(500 * time.Millisecond)
	var deaths []time.Time
	for run := range testwait.Count(1, 10) {
		rules := killRules(rng, "gallery")
		for i := range rules.Rounds {
			rules.Rounds[i].Duration = 2 * time.Second
		}
		leader, _ := h.leader(t, 2*closeLimitAfterDeath)
		b := h.launch(t, fmt.Sprintf("stop-%d", run), accounts, rules)
		c := b.crowd(t, seed+uint64(run), 4, 0)
		await(t, "answers", h.history.After(testwait.Count(20, 50)+rng.IntN(testwait.Count(40, 100)))) // Some rounds must be left to the other server.
		deaths = append(deaths, time.Now())
		testwait.Must(t, leader.Signal(syscall.SIGSTOP))
		// The other server's subscriber sees rounds close while the leader sleeps.
		var awake *sim.Subscriber
		for i, server := range h.servers {
			if server != leader {
				awake = b.subscribers[i]
			}
		}
		seen := len(awake.Events())
		closes := 0
		_, err := awake.Await(testwait.Context(t, patience), "two closes by the other server", func(e replay.Event) bool {
			if e.Close != nil && e.Seq > int64(seen) && e.At.After(deaths[len(deaths)-1]) {
				closes++
			}
			return closes == 2
		})
		testwait.Must(t, leader.Signal(syscall.SIGCONT))
		testwait.Must(t, err)
		b.await(t, 2*patience, "the end of the auction", isEnd)
		c.finish(t)
		out := b.finish(t, patience)
		// A stopped process may hold the auction's row, which PostgreSQL takes back after a while.
		for _, r := range out.Rounds {
			if late := r.CompletedAt.Sub(r.EndsAt); late > locksTakenBack {
				t.Errorf("round %d closed %v after its end", r.Number, late)
			}
		}
		t.Logf("%d bids in %d rounds, the leader slept for %d closes", len(out.Bids), len(out.Rounds), closes)
		if t.Failed() {
			break
		}
	}
	h.close(t, 5)
}
