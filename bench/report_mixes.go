//go:build linux

package main

import "fmt"

// What is required of mixes against the load that each of them disturbs, and of the beginning on a fresh database against
// the same load a minute later.
const (
	requiredFewFirstBids  = 0.9
	requiredManyFirstBids = 0.75
	requiredSameAccounts  = 0.75
	requiredFresh         = 0.8
	requiredMany          = 0.6
	requiredManyP99       = 4
	requiredPauseMS       = 250
	// A command for a lock, an acquisition or a release, costs 1.5 times a transfer at most.
	requiredLocks = 1 / 1.5
)

// MixTurn is one measured stretch of a mix. Refused counts the answers that are not counted as served.
type MixTurn struct {
	Mix       string  `json:"mix"`
	PerSecond float64 `json:"per_second"`
	P50MS     float64 `json:"p50_ms"`
	P99MS     float64 `json:"p99_ms"`
	Refused   int64   `json:"refused,omitempty"`
}

// ClosingTurn is a closed loop of bids while a round closes: the longest pause between two answers from its end on, and until then.
// RefusedMS is the longest time without an accepted bid, and ClosedMS is how long after its end the round was closed.
type ClosingTurn struct {
	What      string  `json:"what"`
	Bidders   int     `json:"bidders"`
	PerSecond float64 `json:"per_second"`
	BeforeMS  float64 `json:"longest_pause_before_ms"`
	PauseMS   float64 `json:"longest_pause_ms"`
	RefusedMS float64 `json:"longest_without_accepted_ms"`
	ClosedMS  float64 `json:"closed_after_ms"`
}

// FreshTurn is one load on a fresh database: how much of it was served at first, and later.
type FreshTurn struct {
	What  string  `json:"what"`
	First float64 `json:"first_per_second"`
	Later float64 `json:"later_per_second"`
}

func (r *Results) printMixes(out *printer) {
	out.printf("\nMixes, closed loop, %d connections. Median (least … most) of %v turns.\n", mixConnections, r.Options["mix_pairs"])
	lines := []string{"\tper second\tp50 ms\tp99 ms\trefused"}
	for _, m := range mixes() {
		figure := func(f func(MixTurn) float64) []float64 {
			return pick(r.Mixes, func(t MixTurn) bool { return t.Mix == m.name }, f)
		}
		if len(figure(func(MixTurn) float64 { return 0 })) == 0 {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%.0f", m.name,
			spread(figure(func(t MixTurn) float64 { return t.PerSecond }), "%.0f"),
			spread(figure(func(t MixTurn) float64 { return t.P50MS }), "%.2f"),
			spread(figure(func(t MixTurn) float64 { return t.P99MS }), "%.2f"),
			median(figure(func(t MixTurn) float64 { return float64(t.Refused) }))))
	}
	out.table(lines)
	if len(r.Closings) == 0 {
		return
	}
	out.printf("\nBids while a round of %v bidders closes, the same closed loop. Longest pauses between answers.\n", r.Options["accounts"])
	lines = []string{"\tper second\tms, until its end\tms, from its end on\tms without an accepted bid\tclosed after ms"}
	for _, what := range closings() {
		figure := func(f func(ClosingTurn) float64) []float64 {
			return pick(r.Closings, func(t ClosingTurn) bool { return t.What == what }, f)
		}
		if len(figure(func(ClosingTurn) float64 { return 0 })) == 0 {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", what,
			spread(figure(func(t ClosingTurn) float64 { return t.PerSecond }), "%.0f"),
			spread(figure(func(t ClosingTurn) float64 { return t.BeforeMS }), "%.1f"),
			spread(figure(func(t ClosingTurn) float64 { return t.PauseMS }), "%.1f"),
			spread(figure(func(t ClosingTurn) float64 { return t.RefusedMS }), "%.1f"),
			spread(figure(func(t ClosingTurn) float64 { return t.ClosedMS }), "%.0f")))
	}
	out.table(lines)
}

// judgeMixes compares within a turn, in which all mixes run one after the other: the speed of a machine changes from turn to turn.
func (r *Results) judgeMixes() {
	figures := func(name string, figure func(MixTurn) float64) []float64 {
		return pick(r.Mixes, func(t MixTurn) bool { return t.Mix == name }, figure)
	}
	rates := func(name string) []float64 { return figures(name, func(t MixTurn) float64 { return t.PerSecond }) }
	for _, m := range mixes() {
		if m.against == "" {
			continue
		}
		ratios := rates(m.name)
		if len(ratios) != len(rates(m.against)) {
			continue // One of them was left out.
		}
		for turn, rate := range rates(m.against) {
			ratios[turn] /= rate
		}
		r.verdict(m.name+", against "+m.against+", within a turn", median(ratios), 1, m.required)
		if m.timesP99 == 0 {
			continue
		}
		p99 := func(t MixTurn) float64 { return t.P99MS }
		times := figures(m.name, p99)
		for turn, other := range figures(m.against, p99) {
			times[turn] /= other
		}
		r.verdict(fmt.Sprintf("%s, %.0f times the p99 of %s over its, within a turn", m.name, m.timesP99, m.against), m.timesP99, median(times), 1)
	}
	for _, what := range closings() {
		longest := 0.0
		for _, pause := range pick(r.Closings, func(t ClosingTurn) bool { return t.What == what }, func(t ClosingTurn) float64 { return t.PauseMS }) {
			longest = max(longest, pause)
		}
		r.verdict(fmt.Sprintf("%s, %d ms over the longest pause", what, requiredPauseMS), requiredPauseMS, longest, 1)
	}
}

func (r *Results) printFresh(out *printer) {
	out.printf("\nOn a fresh database: the first %v s of a closed loop of %d, and as long after %v s. Median of %v turns.\n",
		r.Options["fresh_window_s"], mixConnections, r.Options["fresh_later_s"], r.Options["fresh_pairs"])
	lines := []string{"\tfirst, per second\tlater"}
	for _, what := range freshLoads() {
		figure := func(f func(FreshTurn) float64) []float64 {
			return pick(r.Fresh, func(t FreshTurn) bool { return t.What == what }, f)
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s", what, spread(figure(func(t FreshTurn) float64 { return t.First }), "%.0f"),
			spread(figure(func(t FreshTurn) float64 { return t.Later }), "%.0f")))
	}
	out.table(lines)
}

// judgeFresh compares within a turn: both parts of it are of one run.
func (r *Results) judgeFresh() {
	for _, what := range freshLoads() {
		ratios := pick(r.Fresh, func(t FreshTurn) bool { return t.What == what && t.Later > 0 }, func(t FreshTurn) float64 { return t.First / t.Later })
		r.verdict(what+" on a fresh database, first against later", median(ratios), 1, requiredFresh)
	}
}
