package demo

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/replay"
	"github.com/fairlead-dev/fairlead/internal/screen"
)

// The bots' tempers, in minor units and time. Some can afford less than they want, and are told so.
const (
	demoFirstBid   = 5_000
	demoFirstRange = 8_000
	demoLeastLimit = 20_000
	demoLimitRange = 35_000
	demoStep       = 350
	demoFastest    = 150 * time.Millisecond
	demoSlowest    = 700 * time.Millisecond
	// demoSnipers is that each so-and-so-many-th bot bids near the ends of rounds alone.
	demoSnipers = 8
)

// run is one bot: it follows the auction on the board, and bids when it does not win and can afford to.
func (a *auctionAct) run(ctx context.Context, i int, account string) error {
	choice := rand.New(rand.NewPCG(uint64(i), demoBots)) //nolint:gosec // What a bot bids in a demo is no secret.
	limit := demoLeastLimit + choice.Int64N(demoLimitRange)
	sniper := i%demoSnipers == 0
	for {
		pause := demoFastest + rand.N(demoSlowest-demoFastest) //nolint:gosec // As above.
		if sniper {
			pause = a.board.untilLate(time.Now(), pause)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-a.board.ended():
			return nil
		case <-time.After(pause):
		}
		amount := a.board.wish(account, choice, limit)
		if amount == 0 {
			continue
		}
		code, err := a.bid(ctx, account, amount)
		if err != nil {
			return err
		}
		if code == "insufficient_funds" {
			limit = min(limit, demoBotFunds)
		}
	}
}

// board is the auction as the live stream tells it: nothing of it is asked for. It is safe for concurrent use; over is
// closed round by round, once everything is known of a round.
type board struct {
	over []chan struct{}

	mu      sync.Mutex
	rounds  []Round
	current int // from 1; 0 while no round is open
	endsAt  time.Time
	bids    map[string]int64 // the standing ones
	spent   map[string]int64 // by winners
	refund  struct {
		bids   int
		amount int64
	}
}

func newBoard(places []int) *board {
	b := &board{bids: map[string]int64{}, spent: map[string]int64{}}
	for _, n := range places {
		b.rounds = append(b.rounds, Round{Places: n})
		b.over = append(b.over, make(chan struct{}))
	}
	return b
}

// ended is closed when the auction has ended.
func (b *board) ended() <-chan struct{} { return b.over[len(b.over)-1] }

// apply takes the next event over.
func (b *board) apply(e replay.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case e.Opening != nil:
		if e.Opening.Round > 1 {
			close(b.over[e.Opening.Round-2])
		}
		b.current, b.endsAt = e.Opening.Round, e.Opening.EndsAt
	case e.Bid != nil:
		b.bids[e.Bid.Account] = e.Bid.Amount
		b.rounds[e.Bid.Round-1].Bids++
	case e.Extension != nil:
		b.endsAt = e.Extension.EndsAt
		b.rounds[e.Extension.Round-1].Extensions = e.Extension.Extensions
	case e.Close != nil:
		b.current = 0
		for _, w := range e.Close.Winners {
			b.rounds[e.Close.Round-1].Winners = append(b.rounds[e.Close.Round-1].Winners, payment(w))
			b.spent[w.Account] += w.Amount
			delete(b.bids, w.Account)
		}
	case e.Carry != nil:
		b.rounds[e.Carry.FromRound-1].CarriedOver++
	case e.Type == replay.AuctionCompleted:
		b.refund.bids = len(b.bids)
		for _, amount := range b.bids {
			b.refund.amount += amount
		}
		close(b.over[len(b.over)-1])
	}
}

// round returns a round that is over.
func (b *board) round(i int) Round {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rounds[i]
}

// wish is what an account would bid now, 0 when nothing: it has a place, or cannot afford one.
func (b *board) wish(account string, choice *rand.Rand, limit int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current == 0 {
		return 0
	}
	limit -= b.spent[account]
	own := b.bids[account]
	if own == 0 {
		first := min(limit, demoFirstBid+choice.Int64N(demoFirstRange))
		if first < demoFirstBid {
			return 0
		}
		return first
	}
	places := b.rounds[b.current-1].Places
	leading := b.leading(places)
	if len(leading) < places || own >= leading[places-1] {
		return 0 // It wins as things are.
	}
	least := max(own+demoIncrement, leading[places-1]+1)
	if least > limit {
		return 0
	}
	return min(limit, least+choice.Int64N(demoStep))
}

// leading returns the highest amounts, at most so many, in order.
func (b *board) leading(places int) []int64 {
	amounts := make([]int64, 0, len(b.bids))
	for _, amount := range b.bids {
		amounts = append(amounts, amount)
	}
	slices.SortFunc(amounts, func(x, y int64) int { return cmp.Compare(y, x) })
	return amounts[:min(places, len(amounts))]
}

// untilLate is how long a sniper waits: until late in the window, or for a moment when it is late already, or no round
// is open.
func (b *board) untilLate(now time.Time, moment time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if late := b.endsAt.Add(-demoSnipeWindow * 2 / 3).Sub(now); b.current > 0 && late > 0 {
		return late
	}
	return moment
}

// progress tells how far the open round is, from 0 to 1, and what to say of it.
func (b *board) progress(now time.Time) (part float64, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current == 0 {
		return 0, "closing"
	}
	r := b.rounds[b.current-1]
	left := max(0, b.endsAt.Sub(now))
	whole := demoRoundLength + time.Duration(r.Extensions)*demoExtension
	text = fmt.Sprintf("%s, %s", screen.Seconds(left), plural(r.Bids, "bid"))
	if r.Extensions > 0 {
		text += ", extended"
	}
	return 1 - left.Seconds()/whole.Seconds(), text
}
