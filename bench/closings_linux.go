package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/fairlead-dev/fairlead/bench/load"
)

// What bids are made while a round closes in which every account has bid.
const (
	closingAnother = "bids on another auction while a round closes"
	closingSame    = "bids on the auction whose round closes"
)

func closings() []string { return []string{closingAnother, closingSame} }

const (
	// The round is made longer when its bids take longer than the time that is to be left of it. It closes within a second of its end.
	closingRound   = 15 * time.Second
	closingLongest = 8 * time.Minute
	closingBefore  = 3 * time.Second
	closingAfter   = 3 * time.Second
)

// pauses are those between answers.
type pauses struct {
	last    time.Time
	longest time.Duration
}

// note takes an answer. The pause before it may be none that counts.
func (p *pauses) note(at time.Time, counts bool) {
	if counts && !p.last.IsZero() {
		p.longest = max(p.longest, at.Sub(p.last))
	}
	p.last = at
}

// closingTurn bids in a closed loop until a round has closed, and measures the longest pauses between two answers.
func (s *side) closingTurn(ctx context.Context, o *options, what string) (*ClosingTurn, error) {
	bids, err := s.newBidding(ctx, rand.Perm(o.accounts)) //nolint:gosec // Load needs no secrecy.
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.bidOnce(bids), s.analyze(ctx), s.h.checkpoint(ctx)); err != nil {
		return nil, err
	}
	closing, endsAt, err := s.aboutToClose(ctx, o.accounts)
	if err != nil {
		return nil, err
	}
	if what == closingSame {
		bids = closing
	}
	bids.others = map[string]int64{}
	engine, err := load.Dial(mixConnections, s.addr)
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	var before, after, accepted pauses
	r, err := engine.Closed(load.Phases{Measure: time.Until(endsAt.Add(closingAfter))}, bids.source(s.key), func(status int, body []byte) error {
		now := time.Now()
		over := !now.Before(endsAt)
		before.note(now, !over)
		after.note(now, over)
		if status == http.StatusCreated {
			accepted.note(now, over)
		}
		return bids.check(status, body)
	})
	if err != nil {
		return nil, err
	}
	accepted.note(time.Now(), true)
	first, second, err := s.rounds(ctx, closing)
	if err != nil {
		return nil, err
	}
	if first.Status != "completed" || second.StartedAt == nil {
		return nil, fmt.Errorf("the round is %s %s after its end, when nothing is measured any more", first.Status, time.Since(endsAt))
	}
	return &ClosingTurn{
		What: what, Bidders: o.accounts, PerSecond: r.PerSecond(), BeforeMS: ms(before.longest), PauseMS: ms(after.longest),
		RefusedMS: ms(accepted.longest), ClosedMS: ms(second.StartedAt.Sub(endsAt)),
	}, s.requireBids(ctx, &mixed{auctions: []*bidding{bids}})
}

// aboutToClose opens an auction in whose first round all accounts have bid, and which ends soon.
func (s *side) aboutToClose(ctx context.Context, accounts int) (*bidding, time.Time, error) {
	for length := closingRound; length <= closingLongest; length *= 2 {
		b, err := s.openBidding(ctx, rand.Perm(accounts), map[string]any{"rounds": []any{ //nolint:gosec // Load needs no secrecy.
			map[string]any{"winners": auctionWinners, "duration": length.String()},
			map[string]any{"winners": auctionWinners, "duration": auctionRound},
		}})
		if err != nil {
			return nil, time.Time{}, err
		}
		first, _, err := s.rounds(ctx, b)
		if err != nil {
			return nil, time.Time{}, err
		}
		// A bid that comes too late is refused, which is an error unless the round has ended.
		err = s.bidOnce(b)
		left := time.Until(*first.EndsAt)
		switch {
		case left >= closingBefore && err == nil:
			return b, *first.EndsAt, nil
		case left > 0 && err != nil:
			return nil, time.Time{}, err
		}
		if err := s.call(ctx, http.MethodPost, b.path+"/cancel", map[string]any{}, http.StatusOK, nil); err != nil {
			return nil, time.Time{}, err
		}
	}
	return nil, time.Time{}, fmt.Errorf("%d bids take longer than %s", accounts, closingLongest)
}

// roundState is a round as the server shows it.
type roundState struct {
	Status    string     `json:"status"`
	StartedAt *time.Time `json:"started_at"`
	EndsAt    *time.Time `json:"ends_at"`
}

// rounds shows the two of an auction.
func (s *side) rounds(ctx context.Context, b *bidding) (first, second roundState, err error) {
	var auction struct {
		Rounds [2]roundState `json:"rounds"`
	}
	err = s.call(ctx, http.MethodGet, b.path, nil, http.StatusOK, &auction)
	if err == nil && auction.Rounds[0].EndsAt == nil {
		err = errors.New("the first round has no end")
	}
	return auction.Rounds[0], auction.Rounds[1], err
}
