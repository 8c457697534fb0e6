//go:build linux

package main

import (
	"fmt"
	"slices"
)

// What is required of a database with a long history: the processor time of a command against that on an empty database, and times in seconds.
const (
	requiredGrownCost        = 1 / 1.3
	requiredStartSeconds     = 2
	requiredIntegritySeconds = 1
	requiredRecountPerSecond = 10_000_000 / 10
)

// Names of the databases.
const (
	grownEmpty = "empty"
	grownFull  = "grown"
)

// The loads, in the order of their turns.
const (
	grownRaises    = "raises"
	grownPurchases = "purchases"
	grownTransfers = "transfers"
)

func grownLoads() []string { return []string{grownRaises, grownTransfers, grownPurchases} }

// Grown is all that was measured of an empty database and of one with a long history.
type Grown struct {
	Accounts         int64       `json:"accounts"` // in the grown one
	Entries          int64       `json:"entries"`
	Bytes            int64       `json:"bytes"`
	FillSeconds      float64     `json:"fill_s"`
	RecountSeconds   float64     `json:"recount_s"`   // of fairlead integrity
	StartSeconds     []float64   `json:"start_s"`     // from the process's start until it is ready
	IntegritySeconds []float64   `json:"integrity_s"` // of GET /v1/integrity, after a closing
	BehindSeconds    []float64   `json:"behind_s"`    // the same, behind the loads of a turn
	Turns            []GrownTurn `json:"turns"`
}

// GrownTurn is a load on one of the databases, which its side names.
type GrownTurn struct {
	What string `json:"what"`
	TransferTurn
}

func (g *Grown) figures(what, side string, figure func(TransferTurn) float64) []float64 {
	return pick(g.Turns, func(t GrownTurn) bool { return t.What == what && t.Side == side }, func(t GrownTurn) float64 { return figure(t.TransferTurn) })
}

func (r *Results) printGrown(out *printer) {
	g := &r.Grown
	out.printf("\nAn empty database, with %v accounts, and one with %d accounts and %d entries, %d connections. Median (least … most) of %v turns.\n",
		r.Options["accounts"], g.Accounts, g.Entries, singleConnections, r.Options["grown_pairs"])
	lines := []string{"\t\tper second\tp50 ms\tp99 ms\tp99.9 ms\tserver CPU µs each\tdatabase\tgenerator\tRSS MiB"}
	for _, what := range grownLoads() {
		for _, side := range []string{grownEmpty, grownFull} {
			figure := func(f func(TransferTurn) float64, format string) string {
				return spread(g.figures(what, side, f), format)
			}
			each := func(f func(TransferTurn) float64) string {
				return figure(func(t TransferTurn) float64 { return 1e6 * f(t) / float64(t.Answers) }, "%.0f")
			}
			lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", what, side,
				figure(func(t TransferTurn) float64 { return t.PerSecond }, "%.0f"), figure(func(t TransferTurn) float64 { return t.P50MS }, "%.2f"),
				figure(func(t TransferTurn) float64 { return t.P99MS }, "%.2f"), figure(func(t TransferTurn) float64 { return t.P999MS }, "%.2f"),
				each(func(t TransferTurn) float64 { return t.ServerSeconds }), each(func(t TransferTurn) float64 { return t.StoreSeconds }),
				each(func(t TransferTurn) float64 { return t.GeneratorSeconds }), figure(func(t TransferTurn) float64 { return t.RSSMiB }, "%.0f")))
		}
	}
	out.table(lines)
	out.printf("The history took %.0f s to write, and has %.1f GB. fairlead integrity counted it in %.1f s.\n", g.FillSeconds, float64(g.Bytes)/1e9, g.RecountSeconds)
	out.printf("Seconds of %d starts on it: %s. Seconds of %d answers of GET /v1/integrity after a closing of the books: %s; behind the loads of a turn: %s.\n",
		len(g.StartSeconds), spread(g.StartSeconds, "%.2f"), len(g.IntegritySeconds), spread(g.IntegritySeconds, "%.2f"), spread(g.BehindSeconds, "%.2f"))
}

// judgeGrown compares within a turn. Of times that are promised, the longest counts.
func (r *Results) judgeGrown() {
	g := &r.Grown
	if len(g.Turns) == 0 {
		return
	}
	for _, what := range grownLoads() {
		within := func(f func(TransferTurn) float64) []float64 {
			ratios := g.figures(what, grownFull, f)
			for turn, empty := range g.figures(what, grownEmpty, f) {
				ratios[turn] /= empty
			}
			return ratios
		}
		r.verdict(what+", processor time each on an empty database over that on the grown one, within a turn", 1, median(within(processorTimeEach)), requiredGrownCost)
		r.verdict(what+" a second on the grown database, against the empty one, within a turn", median(within(func(t TransferTurn) float64 { return t.PerSecond })), 1, 0)
	}
	r.verdict(fmt.Sprintf("start on the grown database, %d s over the longest", requiredStartSeconds), requiredStartSeconds, slices.Max(g.StartSeconds), 1)
	r.verdict(fmt.Sprintf("GET /v1/integrity on the grown database, %d s over the longest", requiredIntegritySeconds), requiredIntegritySeconds, slices.Max(g.IntegritySeconds), 1)
	r.verdict("entries a second of fairlead integrity, against 10,000,000 in 10 s", float64(g.Entries)/g.RecountSeconds, requiredRecountPerSecond, 1)
}
