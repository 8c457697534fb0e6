//go:build unix

package sim_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// leads asks a server's metrics whether it is the leader.
func leads(t *testing.T, server *sim.Server) bool {
	t.Helper()
	return bytes.Contains(metricsOf(t, server), []byte("\nfairlead_auction_is_leader 1\n"))
}

// leader waits until one of the servers, all of which run, leads. Two at a time never do.
func (h *auctionHouse) leader(t *testing.T) (leader *sim.Server, others []*sim.Server) {
	t.Helper()
	testwait.Eventually(t, patience, "a leader", func() bool {
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

// promisesUnderKills are those that [closes] and [checkTicks] measure.
var promisesUnderKills = []string{"round-closes", "round-closes-after-death", "countdown"}

// closes measures how late every round closed, given when leaders died, in order: those that no death could have delayed, and the
// others. A leader that dies before a round has closed gives its successor time anew.
func closes(out *replay.Outcome, deaths []time.Time, seen func(string, time.Duration)) {
	for _, r := range out.Rounds {
		if out.Status == "cancelled" || r.Status != "completed" {
			continue
		}
		name, from := "round-closes", r.EndsAt
		for _, death := range deaths {
			if death.Before(r.CompletedAt) && death.Sub(r.EndsAt) >= -soonAfterDeath {
				name = "round-closes-after-death"
				if death.After(from) {
					from = death
				}
			}
		}
		seen(name, r.CompletedAt.Sub(from))
	}
}

// checkTicks wants the countdowns of one connection each in a second of its own, since a leader that is dead says nothing
// more. It measures how long after the one before each came, beyond a second, but for those that a leader's death may have delayed. It
// returns how many it compared.
func checkTicks(t *testing.T, s *sim.Subscriber, deaths []time.Time, seen func(string, time.Duration)) (compared int) {
	t.Helper()
	ticks := s.Ticks()
	for i := 1; i < len(ticks); i++ {
		a, b := ticks[i-1], ticks[i]
		if a.Connection != b.Connection || a.Round != b.Round || !a.EndsAt.Equal(b.EndsAt) {
			continue
		}
		compared++
		if !b.At.Truncate(time.Second).After(a.At.Truncate(time.Second)) || a.RemainingMS <= b.RemainingMS {
			t.Errorf("round %d: countdowns of %d ms at %v and %d ms at %v", a.Round, a.RemainingMS, a.At, b.RemainingMS, b.At)
		}
		delayed := func(death time.Time) bool { return death.Before(b.Arrived) && a.Arrived.Sub(death) < soonAfterDeath }
		if !slices.ContainsFunc(deaths, delayed) {
			seen("countdown", b.Arrived.Sub(a.Arrived)-time.Second)
		}
	}
	return compared
}

// TestAuctionServersAreKilled kills one of two servers under load again and again, the leader half of the time. Rounds
// still settle once and in time, acknowledged bids stand, and a subscriber on each server sees every event in order,
// without gap or double.
func TestAuctionServersAreKilled(t *testing.T) {
	beside(t)
	sessions(t, 10, func(t *testing.T) {
		t.Helper()
		testpromise.CheckEach(t, promisesUnderKills, func(seen func(string, time.Duration)) { killAuctionServers(t, seen) })
	})
}

func killAuctionServers(t *testing.T, seen func(string, time.Duration)) {
	t.Helper()
	const auctions = 2
	rng, seed := testwait.Rand(t)
	h := openHouse(t, 2, []string{"gallery-0", "gallery-1"}, 0)
	var bidders [auctions][]string
	for i := range bidders {
		bidders[i] = names(fmt.Sprintf("bidder-%d", i), 12)
		h.open(t, bidders[i], 1_000_000)
	}
	h.leader(t)
	var running [auctions]*bidding
	var crowds [auctions]*crowd
	var deaths []time.Time
	var bids, rounds, ticks, resumed, run int
	end := func(i int) {
		crowds[i].finish(t)
		out := running[i].finish(t, patience)
		closes(out, deaths, seen)
		bids, rounds = bids+len(out.Bids), rounds+len(out.Rounds)
		for _, s := range running[i].subscribers {
			ticks += checkTicks(t, s, deaths, seen)
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
		leader, others := h.leader(t)
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
	t.Logf("%d kills, %d of leaders; %d auctions, %d rounds, %d bids; %d countdowns compared, %d subscriptions resumed",
		kills, len(deaths), run, rounds, bids, ticks, resumed)
	if resumed == 0 {
		t.Error("no subscription was resumed")
	}
	h.close(t, 5)
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
	beside(t)
	pgtest.Needs(t, pgkit.Notify)
	testpromise.CheckEach(t, []string{"countdown"}, func(seen func(string, time.Duration)) { oneCountdownASecond(t, seen) })
}

func oneCountdownASecond(t *testing.T, seen func(string, time.Duration)) {
	t.Helper()
	h := openHouse(t, 2, []string{"ann", "gallery"}, 1000)
	h.leader(t)
	rules := calm(1)
	rules.Rounds[0].Duration = 10 * time.Minute
	b := h.launch(t, "countdown", []string{"ann"}, rules)
	var deaths []time.Time
	listen := func() {
		for _, s := range b.subscribers {
			testwait.Must(t, s.AwaitTicks(testwait.Context(t, patience), len(s.Ticks())+testwait.Count(3, 20)))
		}
	}
	listen()
	leader, _ := h.leader(t)
	deaths = append(deaths, time.Now())
	testwait.Must(t, leader.Kill(testwait.Context(t, patience)))
	start(t, leader)
	listen()
	leader, _ = h.leader(t)
	deaths = append(deaths, time.Now())
	if code, err := leader.Terminate(testwait.Context(t, patience)); err != nil || code != 0 {
		t.Fatalf("code %d: %v", code, err)
	}
	start(t, leader)
	listen()
	b.act(t, "cancel")
	b.finish(t, patience)
	for i, s := range b.subscribers {
		if compared := checkTicks(t, s, deaths, seen); compared == 0 {
			t.Errorf("subscriber %d: no countdowns to compare", i)
		} else {
			t.Logf("subscriber %d: %d countdowns a second apart", i, compared)
		}
	}
	h.close(t, 1)
}

// TestStoppedLeaderWakes freezes the leader for longer than its term, lets the other server take over, and wakes it. It
// must not close anything any more, and its subscriber must have missed nothing.
func TestStoppedLeaderWakes(t *testing.T) {
	beside(t)
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
		leader, _ := h.leader(t)
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
			if late := r.CompletedAt.Sub(r.EndsAt); testwait.Torture() && late > locksTakenBack { // Beside other tests, the machine may stall.
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
