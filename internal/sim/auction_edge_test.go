//go:build unix

package sim_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// edgeBidders is how many bids are aimed at the end of one round.
const edgeBidders = 12

// TestBidsAtTheClosingInstant aims bids at the ends of many short rounds. Each that is acknowledged is an event of the
// round that its answer names, before that round's close; each that is refused is none.
func TestBidsAtTheClosingInstant(t *testing.T) {
	beside(t)
	const rounds = 84 // of one auction
	rng, _ := testwait.Rand(t)
	accounts := names("bidder", edgeBidders)
	h := openHouse(t, 2, append(accounts, "gallery"), 1_000_000_000)
	// A machine may be so slow that no bid arrives in a round: then the next ones are longer.
	const mostRuns = 30
	duration, lead := 120*time.Millisecond, 28*time.Millisecond
	tries, hits := 0, map[string]int{}
	met := func() bool { return hits["in the round"] > 0 && hits["refused"]+hits["in the next round"] > 0 }
	testpromise.CheckEach(t, []string{"round-closes"}, func(seen func(string, time.Duration)) {
		for run := 0; (tries < testwait.Count(300, 10_000) || !met()) && run < mostRuns && !t.Failed(); run++ {
			if run > 0 && hits["in the round"] == 0 {
				duration *= 2
			}
			rules := replay.Rules{Seller: "gallery", UniqueAmounts: true}
			for range testwait.Count(rounds/3, rounds) {
				rules.Rounds = append(rules.Rounds, replay.RoundRule{Winners: 3, Duration: duration})
			}
			b := h.launch(t, fmt.Sprintf("edge-%d", run), accounts, rules)
			lead = b.aimAtEnds(t, rng, lead, hits)
			tries += len(accounts) * len(rules.Rounds)
			for _, r := range b.finish(t, patience).Rounds {
				seen("round-closes", r.CompletedAt.Sub(r.EndsAt))
			}
		}
	})
	if !met() {
		t.Errorf("the edge was not met: %v", hits)
	}
	t.Logf("%d tries: %v", tries, hits)
	h.close(t, 10)
}

// aimAtEnds lets every bidder aim one bid at the end of each round, at most lead before it. It returns the lead with which the edge is met
// on this machine.
func (b *bidding) aimAtEnds(t *testing.T, rng *rand.Rand, lead time.Duration, hits map[string]int) time.Duration {
	t.Helper()
	const past = 7 * time.Millisecond
	ctx := testwait.Context(t, 5*patience)
	var amount atomic.Int64
	for round := 1; round <= len(b.rules.Rounds); round++ {
		opened, err := b.subscribers[0].Await(ctx, "a round", func(e replay.Event) bool { return e.Opening != nil && e.Opening.Round == round })
		if err != nil {
			t.Error(err)
			return lead
		}
		outcomes := make([]string, len(b.accounts))
		failures := make([]error, len(b.accounts))
		var group sync.WaitGroup
		for i, account := range b.accounts {
			// Mostly just before the end, since a bid takes a while to arrive.
			aim := opened.Opening.EndsAt.Add(time.Duration(rng.Int64N(int64(lead+past))) - lead)
			group.Go(func() {
				wait.For(ctx, time.Until(aim))
				op := sim.NewBid(fmt.Sprintf("%s-%d-%d", b.name, round, i), b.id, account, amount.Add(1))
				answer, err := b.house.client.Settle(ctx, op)
				outcomes[i], failures[i] = edgeOutcome(answer, round), err
			})
		}
		group.Wait()
		complain(t, errors.Join(failures...))
		inside := 0
		for _, outcome := range outcomes {
			hits[outcome]++
			if outcome == "in the round" {
				inside++
			}
		}
		switch inside {
		case 0:
			lead = min(2*lead, b.rules.Rounds[round-1].Duration)
		case len(outcomes):
			lead = max(lead/2, past)
		}
	}
	return lead
}

func edgeOutcome(answer sim.Answer, round int) string {
	var told client.Bid
	switch {
	case answer.Code() == "not_active":
		return "refused"
	case answer.Status != http.StatusCreated:
		return answer.String()
	case answer.JSON(&told) != nil:
		return "unreadable"
	case int(told.Round) == round:
		return "in the round"
	default:
		return "in the next round"
	}
}

// TestAntiSnipingRace lets many clients on two servers bid around the edges of the window and of the end, which moves as
// they do. The auditor recomputes every extension from the bids' times alone.
func TestAntiSnipingRace(t *testing.T) {
	beside(t)
	rng, seed := testwait.Rand(t)
	accounts := names("bidder", edgeBidders)
	h := openHouse(t, 2, append(accounts, "gallery"), 1_000_000_000)
	var bids, extensions, exhausted, untouched int
	one := func(run int, seen func(string, time.Duration)) {
		rules := replay.Rules{
			Seller: "gallery", UniqueAmounts: true, MinIncrement: 1 + rng.Int64N(3),
			Window:        time.Duration(20+rng.IntN(100)) * time.Millisecond,
			Extension:     time.Duration(20+rng.IntN(150)) * time.Millisecond,
			MaxExtensions: 1 + rng.IntN(6),
		}
		for range 6 {
			rules.Rounds = append(rules.Rounds, replay.RoundRule{Winners: 1 + rng.IntN(3), Duration: 250 * time.Millisecond})
		}
		b := h.launch(t, fmt.Sprintf("snipe-%d", run), accounts, rules)
		b.snipe(t, seed+uint64(run))
		out := b.finish(t, patience)
		bids += len(out.Bids)
		for _, r := range out.Rounds {
			extensions += r.Extensions
			switch r.Extensions {
			case rules.MaxExtensions:
				exhausted++
				if want := r.StartedAt.Add(250*time.Millisecond + time.Duration(rules.MaxExtensions)*rules.Extension); !r.EndsAt.Equal(want) {
					t.Errorf("round %d ended at %v, %v with all extensions", r.Number, r.EndsAt, want)
				}
			case 0:
				untouched++
			}
			seen("round-closes", r.CompletedAt.Sub(r.EndsAt))
		}
	}
	testpromise.CheckEach(t, []string{"round-closes"}, func(seen func(string, time.Duration)) {
		// What bids come to depends on how fast the machine is: a slow one bids on in further auctions.
		enough := func(run int) bool { return run >= testwait.Count(2, 60) && extensions > 0 && exhausted > 0 }
		for run := 0; !enough(run) && run < 60 && !t.Failed(); run++ {
			one(run, seen)
		}
	})
	t.Logf("%d bids, %d extensions, %d rounds with all of them, %d with none", bids, extensions, exhausted, untouched)
	if extensions == 0 || exhausted == 0 {
		t.Errorf("%d extensions, %d rounds with all of them", extensions, exhausted)
	}
	h.close(t, 5)
}

// snipe lets every bidder aim at the edge of the window or at the end of the open round, wherever it is by then, until
// the auction is over.
func (b *bidding) snipe(t *testing.T, seed uint64) {
	t.Helper()
	ctx := testwait.Context(t, 2*patience)
	var ends atomic.Int64 // of the open round, Unix microseconds
	over := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		defer close(over)
		_, err := b.subscribers[0].Await(ctx, "the end of the auction", func(e replay.Event) bool {
			switch {
			case e.Opening != nil:
				ends.Store(e.Opening.EndsAt.UnixMicro())
			case e.Extension != nil:
				ends.Store(e.Extension.EndsAt.UnixMicro())
			}
			return isEnd(e)
		})
		testwait.Check(t, err)
	})
	var amount atomic.Int64
	for i, account := range b.accounts {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		group.Go(func() {
			for n := 0; sim.GoesOn(ctx, over); n++ {
				aim := time.UnixMicro(ends.Load()).Add(time.Duration(rng.Int64N(int64(24*time.Millisecond))) - 16*time.Millisecond)
				if rng.IntN(3) > 0 {
					aim = aim.Add(-b.rules.Window)
				}
				if soon := time.Now().Add(5 * time.Millisecond); aim.Before(soon) {
					aim = soon
				}
				wait.For(ctx, time.Until(aim))
				op := sim.NewBid(fmt.Sprintf("%s-%d-%d", b.name, i, n), b.id, account, amount.Add(b.rules.MinIncrement))
				if answer, err := b.house.client.Settle(ctx, op); err != nil {
					t.Error(err)
					return
				} else if answer.Status != http.StatusCreated && answer.Code() != "not_active" {
					t.Errorf("%s: %v", op, answer)
					return
				}
			}
		})
	}
	group.Wait()
}
