package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/bench/load"
)

// tailsSlowest is how many of the slowest seconds are told.
const tailsSlowest = 10

// tails runs bids and transfers at half of what a closed loop reached just before, for long enough that checkpoints and autovacuum come.
func (h *house) tails(ctx context.Context, o *options, results *Results) error {
	for _, s := range h.sides {
		if s.name != product {
			continue
		}
		if err := s.openAuction(ctx, o.accounts); err != nil {
			return fmt.Errorf("%s: open an auction: %w", s.name, err)
		}
		for pair := range o.tailsPairs {
			for _, what := range inTurn(pair, []string{batchBids, batchTransfers}) {
				turn, err := s.tailTurn(ctx, o, what)
				if err != nil {
					return fmt.Errorf("%s: tails of %s: %w", s.name, what, err)
				}
				slog.Info("tails", "what", what, "pair", pair+1, "rate", turn.Rate, "p50_ms", turn.P50MS, "p99_ms", turn.P99MS, "p999_ms", turn.P999MS)
				results.Tails = append(results.Tails, *turn)
			}
		}
	}
	return nil
}

func (s *side) tailTurn(ctx context.Context, o *options, what string) (*TailTurn, error) {
	if err := errors.Join(s.analyze(ctx), s.h.checkpoint(ctx)); err != nil {
		return nil, err
	}
	b := s.bidding
	b.others, b.refused = map[string]int64{}, 0
	commands, check := b.bids(), b.check
	if what == batchTransfers {
		commands, check = transferBodies(0, o.accounts), wantCompleted
	}
	next := commands.requests(s.key)
	peak, _, err := s.closedTurn(o, openConnections, next, check, nil)
	if err != nil {
		return nil, err
	}
	rate := math.Floor(peak.PerSecond() / 2)
	if rate < 1 {
		return nil, fmt.Errorf("%.1f a second are too few", peak.PerSecond())
	}
	r, seen, err := s.watchedOpen(ctx, o, rate, next, check)
	if err != nil {
		return nil, err
	}
	if b.refused*100 > r.Answers {
		return nil, fmt.Errorf("too many refusals: %v", b.others)
	}
	first, last := seen[0], seen[len(seen)-1]
	return &TailTurn{
		TransferTurn: TransferTurn{
			Side: s.name, Rate: rate, Connections: openConnections, Answers: r.Answers, PerSecond: r.PerSecond(),
			P50MS: ms(r.Quantile(50)), P99MS: ms(r.Quantile(99)), P999MS: ms(r.Quantile(99.9)), Usage: last.used.since(first.used),
		},
		What: what, Peak: peak.PerSecond(), P9999MS: ms(r.Quantile(99.99)), WorstMS: ms(r.Quantile(100)), Did: last.did.since(first.did),
		Slowest: slowest(r, seen),
	}, s.requireTotal(ctx)
}

// watchedOpen runs an open loop, and looks each second at what PostgreSQL and the server do.
func (s *side) watchedOpen(ctx context.Context, o *options, rate float64, next func() []byte, check load.Check) (_ *load.Result, seen []sighting, err error) {
	engine, err := load.Dial(s.addr, openConnections)
	if err != nil {
		return nil, nil, err
	}
	defer engine.Close()
	watch, err := s.watch(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, watch.close(ctx)) }()
	over := make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- watch.run(ctx, time.Now().Add(o.warmup), over) }()
	r, err := engine.Open(rate, o.warmup, o.tailsMeasure, next, check)
	close(over)
	return r, watch.seen, errors.Join(<-done, err)
}

// slowest are the seconds whose p99 was highest, with what was done in them.
func slowest(r *load.Result, seen []sighting) []SlowSecond {
	var all []SlowSecond
	for i, latencies := range r.Seconds {
		if latencies.TotalCount() == 0 || i+1 >= len(seen) {
			continue
		}
		quantile := func(q float64) float64 { return ms(time.Duration(latencies.ValueAtQuantile(q))) }
		all = append(all, SlowSecond{
			At: i, Due: latencies.TotalCount(), P50MS: quantile(50), P99MS: quantile(99), WorstMS: quantile(100),
			Did: seen[i+1].did.since(seen[i].did), Usage: seen[i+1].used.since(seen[i].used), Vacuum: cmp.Or(seen[i+1].vacuum, seen[i].vacuum),
		})
	}
	slices.SortFunc(all, func(a, b SlowSecond) int { return cmp.Compare(b.P99MS, a.P99MS) })
	return all[:min(len(all), tailsSlowest)]
}
