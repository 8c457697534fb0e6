package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/bench/load"
)

// tailsSlowest is how many of the slowest seconds are told, and tailsApart how far apart they are at least.
const (
	tailsSlowest = 10
	tailsApart   = 5
)

// tails runs bids and transfers at half of what a closed loop reached just before, for long enough that checkpoints and autovacuum come.
func (h *house) tails(ctx context.Context, o *options, results *Results) error {
	for _, s := range h.sides {
		if s.name != product {
			continue
		}
		if err := s.openAuction(ctx, o.accounts); err != nil {
			return fmt.Errorf("%s: open an auction: %w", s.name, err)
		}
		if err := h.ageLog(ctx); err != nil {
			return err
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

// ageLog has PostgreSQL's log go round once, so that it uses old segments again, as on any installation that is not new: a new segment is filled
// with zeros and synced while commits wait, see docs/operations/postgresql.md.
func (h *house) ageLog(ctx context.Context) error {
	var segments int
	if err := h.admin.QueryRow(ctx, `SELECT setting::bigint * 1048576 / pg_size_bytes(current_setting('wal_segment_size'))
		FROM pg_settings WHERE name = 'max_wal_size'`).Scan(&segments); err != nil {
		return fmt.Errorf("size of the log: %w", err)
	}
	for range segments { // A segment without anything is not left: a message is something.
		if _, err := h.admin.Exec(ctx, `SELECT pg_logical_emit_message(false, 'bench', ''), pg_switch_wal()`); err != nil {
			return fmt.Errorf("switch to another segment of the log: %w", err)
		}
	}
	return h.checkpoint(ctx)
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
	rate := cmp.Or(o.tailsRate, math.Floor(peak.PerSecond()/2))
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
		What: what, Peak: peak.PerSecond(), PeakP50: ms(peak.Quantile(50)), P9999MS: ms(r.Quantile(99.99)), WorstMS: ms(r.Quantile(100)), Did: last.did.since(first.did),
		Slowest: slowest(r, seen),
	}, s.requireTotal(ctx)
}

// watchedOpen runs an open loop, and looks each second at what PostgreSQL and the server do.
func (s *side) watchedOpen(ctx context.Context, o *options, rate float64, next func() []byte, check load.Check) (_ *load.Result, seen []sighting, err error) {
	engine, err := load.Dial(openConnections, s.addr)
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

// slowest are the seconds whose p99 was highest, and what was done from where latencies began to grow to that second. Seconds beside a
// slower one are left out: in an open loop they are of the same cause.
func slowest(r *load.Result, seen []sighting) []SlowSecond {
	seconds := min(len(r.Seconds), len(seen)-1)
	quantile := func(second int, q float64) float64 { return ms(time.Duration(r.Seconds[second].ValueAtQuantile(q))) }
	order := make([]int, max(seconds, 0))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(quantile(b, 99), quantile(a, 99)) })
	var all []SlowSecond
	for _, at := range order {
		beside := slices.ContainsFunc(all, func(s SlowSecond) bool { return max(at-s.At, s.At-at) < tailsApart })
		if beside || len(all) == tailsSlowest {
			continue
		}
		from := at
		for from > 0 && quantile(from-1, 99) < quantile(from, 99) {
			from--
		}
		before, after := seen[from], seen[at+1]
		var vacuums []string
		for _, s := range seen[from : at+2] {
			if s.vacuum != "" && !slices.Contains(vacuums, s.vacuum) {
				vacuums = append(vacuums, s.vacuum)
			}
		}
		all = append(all, SlowSecond{
			From: from, At: at, Due: r.Seconds[at].TotalCount(), P50MS: quantile(at, 50), P99MS: quantile(at, 99), WorstMS: quantile(at, 100),
			Did: after.did.since(before.did), Usage: after.used.since(before.used), Vacuum: strings.Join(vacuums, "; "),
			BusySeconds: after.busy - before.busy, DiskSeconds: after.waiting - before.waiting,
		})
	}
	return all
}
