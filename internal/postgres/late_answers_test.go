package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
)

const (
	lateServers = 8
	lateBidders = 3 // of each server's auction
	lateRound   = time.Second
	// An answer that is held back is one of up to so long before the end, and comes up to so long after it, or a little
	// before it.
	lateBefore = 800 * time.Millisecond
	lateAfter  = 500 * time.Millisecond
	// bidAfter is how long the bidders go on when the round should be over.
	bidAfter = 500 * time.Millisecond
)

// lateServer is a server whose database answers late at times.
type lateServer struct {
	*house

	direct string
	proxy  *wire.Proxy
	rng    *rand.Rand
	name   string
	sent   *spans
}

// TestLateAnswersLetNoBidIn bids against the ends of many rounds, each from before the end until after it, while the
// database's answers to the server come late at random. However late they come: no bid that was sent after the end is
// accepted, nor one whose transaction began after it; no bid that was sent within the window fails to extend the round; and
// no cooldown is cut short.
func TestLateAnswersLetNoBidIn(t *testing.T) {
	t.Parallel()
	seed := seeded(t)
	at := witnessed(t)
	money := newLedgerService(t, open(t, Options{URL: at}))
	fund(t, money, 0, "seller")
	var (
		sent    spans
		left    atomic.Int64
		servers sync.WaitGroup
	)
	left.Store(int64(torture(24, 1000)))
	for n := range lateServers {
		s := &lateServer{direct: at, rng: rand.New(rand.NewPCG(seed, uint64(n))), name: fmt.Sprintf("s%d", n), sent: &sent}
		proxy, through := wire.Through(t, at, wire.Options{Seed: seed + uint64(n)})
		s.proxy, s.house = proxy, newHouse(t, through)
		for i := range 2 * lateBidders {
			fund(t, money, 1_000_000_000, fmt.Sprintf("%s-%d", s.name, i))
		}
		servers.Go(func() {
			for left.Add(-1) >= 0 && !t.Failed() {
				if err := s.round(); err != nil {
					t.Errorf("%s: %v", s.name, err)
				}
			}
		})
	}
	servers.Wait()
	complainOfLateBids(t, pgtest.Connect(t, at), &sent)
}

// round plays one auction of a single round.
func (s *lateServer) round() error {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	op := auction.Create{
		Title: "late", Currency: "EUR", Seller: "seller", MinBid: 1, MinIncrement: 1, UniqueAmounts: s.rng.IntN(2) == 0,
		Rounds: []auction.NewRound{{Winners: 1, Duration: lateRound}},
	}
	switch s.rng.IntN(3) {
	case 0:
		op.AntiSnipe = auction.AntiSnipe{Window: 300 * time.Millisecond, Extension: 100 * time.Millisecond, MaxExtensions: 2}
	case 1:
		op.Cooldown = 50 * time.Millisecond
	}
	made, err := s.try(uuid.Nil, op)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	id := made.(*auction.Auction).ID //nolint:errcheck,forcetypeassert // That is what Create makes.
	started, err := s.try(id, auction.Start{})
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	ends := *started.(*auction.Auction).Open().EndsAt //nolint:errcheck,forcetypeassert // That is what Start makes.
	var (
		bidders sync.WaitGroup
		amount  atomic.Int64
		errs    = make(chan error, lateBidders+1)
		over    = ends.Add(time.Duration(op.AntiSnipe.MaxExtensions) * op.AntiSnipe.Extension)
	)
	for n := range lateBidders {
		rng := rand.New(rand.NewPCG(s.rng.Uint64(), 0))
		bidders.Go(func() { errs <- s.bidUntil(ctx, id, ends, over.Add(bidAfter), rng, n, &amount) })
	}
	err = s.beLate(ctx, ends)
	bidders.Wait()
	if err != nil {
		return err
	}
	for range lateBidders {
		if err := <-errs; err != nil {
			return err
		}
	}
	return untilFree(func() error { _, err := s.try(id, auction.CloseRound{Round: 1, Term: 1}); return err })
}

// beLate holds one answer back, a while before the round should end, so that it comes around the end.
func (s *lateServer) beLate(ctx context.Context, ends time.Time) error {
	conn, err := pgx.Connect(ctx, s.direct)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	var now time.Time
	if err := conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return err
	}
	before := lateBefore/4 + time.Duration(s.rng.Int64N(int64(lateBefore*3/4)))
	if err := pause(ctx, ends.Sub(now)-before); err != nil {
		return err
	}
	late := before - lateAfter/5 + time.Duration(s.rng.Int64N(int64(lateAfter*6/5)))
	seen := s.proxy.Stats().Delayed
	s.proxy.Delay(2, late, late)
	defer s.proxy.Delay(0, 0, 0)
	for waited := time.Duration(0); waited < before && s.proxy.Stats().Delayed == seen; waited += time.Millisecond {
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// pause lets so much of the round pass.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// bidUntil bids with two accounts, now and then again under a key that has its answer, until the database's clock shows
// until.
func (s *lateServer) bidUntil(ctx context.Context, id uuid.UUID, ends, until time.Time, rng *rand.Rand, n int, amount *atomic.Int64) error {
	conn, err := pgx.Connect(ctx, s.direct)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	type call struct {
		op  auction.PlaceBid
		key string
	}
	var last *call
	for {
		var before, after time.Time
		if err := conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&before); err != nil {
			return err
		}
		if !before.Before(until) {
			return nil
		}
		// A repeated command is decided under the auction's lock, and brings the server the database's time.
		repeat := 8
		if before.Before(ends.Add(-lateBefore / 4)) {
			repeat = 2
		}
		c, again := last, rng.IntN(repeat) == 0
		if c == nil || !again {
			c, again = &call{
				auction.PlaceBid{Account: fmt.Sprintf("%s-%d", s.name, 2*n+rng.IntN(2)), Amount: amount.Add(1)}, uuid.NewString(),
			}, false
		}
		answer, err := s.service.Execute(ctx, id, keyed[auction.Op](c.op, c.key, ""))
		if err != nil {
			return err
		}
		if err := conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&after); err != nil {
			return err
		}
		if answer.Status == 201 && !again {
			var told struct{ Seq int64 }
			if err := json.Unmarshal(answer.Body, &told); err != nil {
				return err
			}
			s.sent.add(bidID{id, told.Seq}, span{before, after})
			last = c
		}
		// Bidders are no busy loop.
		if err := pause(ctx, time.Duration(5+rng.IntN(10))*time.Millisecond); err != nil {
			return err
		}
	}
}
