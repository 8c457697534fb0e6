package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"regexp"

	"github.com/fairlead-dev/fairlead/bench/load"
)

// mixConnections is the closed-loop load of the mixes.
const mixConnections = 64

// mixDeposit lets every account bid in each of the many auctions that the mixes open.
const mixDeposit = 1_000_000_000_000

// mixKeys are locked in turn, so that a connection's key is nobody else's.
const mixKeys = 10_000

// mix is a load on the product that is made of several kinds of commands.
type mix struct {
	name     string
	against  string // the one that it is compared with, "" if none
	required float64
	timesP99 float64 // at most so many times the other's p99, 0 if that isn't compared
	make     func(context.Context, *side, int) (*mixed, error)
}

// mixed is what a turn sends: its sources take turns.
type mixed struct {
	auctions []*bidding
	sources  []func() []byte
	check    load.Check // nil: the first auction's
	refusals *bidding   // counts them, where it isn't the first auction
}

const (
	mixRaises            = "raises alone"
	mixSeparateAuctions  = "two auctions, separate accounts"
	mixSeparateTransfers = "an auction and transfers, separate accounts"
	mixTransfers         = "transfers alone"
	mixLocks             = "locks over HTTP, a key each"
	mixMany              = "1,000 auctions, 64 campaigns and transfers"
)

// mixes are all of them, in the order of their turns.
func mixes() []mix {
	return []mix{
		{name: mixRaises, make: firstBids(0)},
		{name: "1 % first bids", against: mixRaises, required: requiredFewFirstBids, make: firstBids(100)},
		{name: "10 % first bids", against: mixRaises, required: requiredManyFirstBids, make: firstBids(10)},
		{name: mixSeparateAuctions, make: twoAuctions(false)},
		{name: "two auctions, the same accounts", against: mixSeparateAuctions, required: requiredSameAccounts, make: twoAuctions(true)},
		{name: mixSeparateTransfers, make: auctionAndTransfers(false)},
		{name: "an auction and transfers, the same accounts", against: mixSeparateTransfers, required: requiredSameAccounts, make: auctionAndTransfers(true)},
		{name: mixTransfers, make: func(_ context.Context, s *side, accounts int) (*mixed, error) {
			return &mixed{sources: []func() []byte{s.transferSource(accounts)}, check: wantCompleted}, nil
		}},
		{name: mixLocks, against: mixTransfers, required: requiredLocks, make: func(_ context.Context, s *side, _ int) (*mixed, error) {
			next, check := s.locks(mixKeys)
			return &mixed{sources: []func() []byte{next}, check: check}, nil
		}},
		{name: mixMany, against: mixRaises, required: requiredMany, timesP99: requiredManyP99, make: manyTargets},
	}
}

// mixes runs them in turn, pair after pair, each turn in auctions of its own, so that all begin alike.
func (h *house) mixes(ctx context.Context, o *options, results *Results) error {
	only, err := regexp.Compile(o.mixNames)
	if err != nil {
		return fmt.Errorf("--mix-names: %w", err)
	}
	for _, s := range h.sides {
		if s.name != product {
			continue
		}
		if err := s.depositForMixes(o.accounts); err != nil {
			return err
		}
		for pair := range o.mixPairs {
			for _, m := range mixes() {
				if !only.MatchString(m.name) {
					continue
				}
				turn, err := s.mixTurn(ctx, o, m)
				if err != nil {
					return fmt.Errorf("%s: %s: %w", s.name, m.name, err)
				}
				slog.Info("mixes", "mix", m.name, "pair", pair+1, "per_second", math.Round(turn.PerSecond), "p99_ms", turn.P99MS, "refused", turn.Refused)
				results.Mixes = append(results.Mixes, *turn)
			}
			for _, what := range closings() {
				if !only.MatchString(what) {
					continue
				}
				turn, err := s.closingTurn(ctx, o, what)
				if err != nil {
					return fmt.Errorf("%s: %s: %w", s.name, what, err)
				}
				slog.Info("mixes", "mix", what, "pair", pair+1, "pause_ms", turn.PauseMS, "pause_before_ms", turn.BeforeMS, "closed_after_ms", turn.ClosedMS)
				results.Closings = append(results.Closings, *turn)
			}
		}
	}
	return nil
}

// depositForMixes gives each account what it bids in the mixes.
func (s *side) depositForMixes(accounts int) error {
	deposit := func(i int) string { return fmt.Sprintf(`{"account":%q,"amount":%d}`, accountID(i), mixDeposit) }
	if err := s.postAll("/v1/deposits", accounts, deposit); err != nil {
		return fmt.Errorf("%s: deposits: %w", s.name, err)
	}
	return nil
}

// among is a random order of half of the accounts: the first half, or the second one.
func among(accounts, half int) []int {
	order := rand.Perm(accounts / 2) //nolint:gosec // Load needs no secrecy.
	for i := range order {
		order[i] += half * (accounts / 2)
	}
	return order
}

// bidOn opens an auction in which the accounts have bid, and bid again in this order.
func (s *side) bidOn(ctx context.Context, m *mixed, order []int) (*bidding, error) {
	b, err := s.newBidding(ctx, order)
	if err != nil {
		return nil, err
	}
	b.others = map[string]int64{}
	m.auctions = append(m.auctions, b)
	m.sources = append(m.sources, b.source(s.key))
	return b, s.bidOnce(b)
}

// firstBids are raises among which every so-many-th bid is the first one of its account.
func firstBids(every int) func(context.Context, *side, int) (*mixed, error) {
	return func(ctx context.Context, s *side, accounts int) (*mixed, error) {
		var m mixed
		b, err := s.bidOn(ctx, &m, among(accounts, 0))
		if err != nil {
			return nil, err
		}
		b.every, b.newcomers = every, among(accounts, 1)
		return &m, nil
	}
}

// twoAuctions are raises in two auctions in turn. The same accounts bid in both at about the same time.
func twoAuctions(same bool) func(context.Context, *side, int) (*mixed, error) {
	return func(ctx context.Context, s *side, accounts int) (*mixed, error) {
		var m mixed
		order := among(accounts, 0)
		if _, err := s.bidOn(ctx, &m, order); err != nil {
			return nil, err
		}
		if !same {
			order = among(accounts, 1)
		}
		_, err := s.bidOn(ctx, &m, order)
		return &m, err
	}
}

// auctionAndTransfers are raises and transfers in turn.
func auctionAndTransfers(same bool) func(context.Context, *side, int) (*mixed, error) {
	return func(ctx context.Context, s *side, accounts int) (*mixed, error) {
		var m mixed
		if _, err := s.bidOn(ctx, &m, among(accounts, 0)); err != nil {
			return nil, err
		}
		first := accounts / 2
		if same {
			first = 0
		}
		m.sources = append(m.sources, s.transferSourceAmong(first, accounts/2))
		return &m, nil
	}
}

func (s *side) mixTurn(ctx context.Context, o *options, m mix) (*MixTurn, error) {
	sent, err := m.make(ctx, s, o.accounts)
	if err != nil {
		return nil, err
	}
	// What the planner knows of a new auction is measured on fresh databases, not here.
	if err := errors.Join(s.analyze(ctx), s.h.checkpoint(ctx)); err != nil {
		return nil, err
	}
	timed := *o
	timed.warmup, timed.measure = o.mixWarmup, o.mixMeasure
	check, counts := sent.check, sent.refusals
	switch {
	case check == nil:
		counts = sent.auctions[0]
		check = counts.check
	case counts == nil:
		counts = &bidding{}
	}
	r, _, err := s.closedTurn(&timed, mixConnections, inOrder(sent.sources), check, nil)
	if err != nil {
		return nil, err
	}
	if r.Answers == 0 {
		return nil, errors.New("nothing was measured: more --accounts are needed, or less time")
	}
	if counts.refused*100 > r.Answers {
		return nil, fmt.Errorf("too many refusals: %v", counts.others)
	}
	return &MixTurn{
		Mix: m.name, PerSecond: r.PerSecond(), P50MS: ms(r.Quantile(50)), P99MS: ms(r.Quantile(99)), Refused: counts.refused,
	}, s.requireBids(ctx, sent)
}

// requireBids checks that the auctions count what was acknowledged, where nothing else was.
func (s *side) requireBids(ctx context.Context, m *mixed) error {
	if len(m.sources) > len(m.auctions) {
		return nil
	}
	var acknowledged, counted int64
	for _, b := range m.auctions {
		var auction struct {
			TotalBids int64 `json:"total_bids"`
		}
		if err := s.call(ctx, http.MethodGet, b.path, nil, http.StatusOK, &auction); err != nil {
			return err
		}
		acknowledged += b.total
		counted += auction.TotalBids
	}
	if acknowledged != counted {
		return fmt.Errorf("%d bids were acknowledged, but the auctions have %d", acknowledged, counted)
	}
	return nil
}
