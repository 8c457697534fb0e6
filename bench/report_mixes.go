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
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%.0f", m.name,
			spread(figure(func(t MixTurn) float64 { return t.PerSecond }), "%.0f"),
			spread(figure(func(t MixTurn) float64 { return t.P50MS }), "%.2f"),
			spread(figure(func(t MixTurn) float64 { return t.P99MS }), "%.2f"),
			median(figure(func(t MixTurn) float64 { return float64(t.Refused) }))))
	}
	out.table(lines)
}

// judgeMixes compares within a turn, in which all mixes run one after the other: the speed of a machine changes from turn to turn.
func (r *Results) judgeMixes() {
	rates := func(name string) []float64 {
		return pick(r.Mixes, func(t MixTurn) bool { return t.Mix == name }, func(t MixTurn) float64 { return t.PerSecond })
	}
	for _, m := range mixes() {
		if m.against == "" {
			continue
		}
		ratios := rates(m.name)
		for turn, rate := range rates(m.against) {
			ratios[turn] /= rate
		}
		r.verdict(m.name+", against "+m.against+", within a turn", median(ratios), 1, m.required)
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
