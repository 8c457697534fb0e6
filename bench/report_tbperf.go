//go:build linux

package main

import "fmt"

// Names of the sides of tb-perf's case.
const (
	tbperfSinglyName  = "fairlead, singly"
	tbperfBatchesName = "fairlead, in batches"
	tbperfForUpdate   = "SELECT FOR UPDATE"
	tbperfAtomic      = "atomic UPDATE"
)

// What is required of Fairlead against the better PostgreSQL side.
const (
	requiredTBPerfSingly  = 8
	requiredTBPerfBatches = 25
)

// TBPerf is all that was measured of tb-perf's case. Deadlocks are PostgreSQL's own count, by side; both ways to Fairlead have one database.
// CommitUS is a bare commit that the standby has, too.
type TBPerf struct {
	CommitUS  float64          `json:"median_commit_us"`
	Turns     []TBPerfTurn     `json:"turns"`
	Deadlocks map[string]int64 `json:"deadlocks"`
}

// TBPerfTurn is one turn: at Rate, the highest open-loop rate that was sustained. Peak is what a closed loop reached just before.
type TBPerfTurn struct {
	TransferTurn

	Peak    float64 `json:"closed_loop_per_second"`
	Refused int64   `json:"refused"`
	Errors  int64   `json:"errors"`
}

func tbperfNames() []string {
	return []string{tbperfSinglyName, tbperfBatchesName, tbperfForUpdate, tbperfAtomic}
}

func (r *Results) tbperfFigures(side string, figure func(TBPerfTurn) float64) []float64 {
	return pick(r.TBPerf.Turns, func(t TBPerfTurn) bool { return t.Side == side }, figure)
}

func (r *Results) printTBPerf(out *printer) {
	out.printf("\nThe case of tb-perf: accounts by Zipf with exponent %.1f out of %v, %d clients, a synchronous standby (a bare commit takes %.0f µs).\n"+
		"The highest open-loop rate that was sustained; latencies count from when a transfer was due. Median (least … most) of %v turns.\n",
		tbperfExponent, r.Options["tbperf_accounts"], tbperfClients, r.TBPerf.CommitUS, r.Options["tbperf_pairs"])
	lines := []string{"\ttransfers a second\tclosed loop\tconnections\tp50 ms\tp99 ms\trefused\terrors\tdeadlocks\tserver CPU µs each\tdatabases\tgenerator"}
	for _, name := range tbperfNames() {
		figure := func(f func(TBPerfTurn) float64) []float64 { return r.tbperfFigures(name, f) }
		each := func(f func(TBPerfTurn) float64) float64 {
			return median(figure(func(t TBPerfTurn) float64 { return 1e6 * f(t) / float64(t.Answers) }))
		}
		sum := 0.0
		for _, errors := range figure(func(t TBPerfTurn) float64 { return float64(t.Errors) }) {
			sum += errors
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%.0f\t%s\t%s\t%.0f\t%.0f\t%d\t%.1f\t%.1f\t%.1f", name,
			spread(figure(func(t TBPerfTurn) float64 { return t.PerSecond }), "%.0f"),
			spread(figure(func(t TBPerfTurn) float64 { return t.Peak }), "%.0f"),
			median(figure(func(t TBPerfTurn) float64 { return float64(t.Connections) })),
			spread(figure(func(t TBPerfTurn) float64 { return t.P50MS }), "%.2f"),
			spread(figure(func(t TBPerfTurn) float64 { return t.P99MS }), "%.2f"),
			median(figure(func(t TBPerfTurn) float64 { return float64(t.Refused) })), sum, r.TBPerf.Deadlocks[name],
			each(func(t TBPerfTurn) float64 { return t.ServerSeconds }),
			each(func(t TBPerfTurn) float64 { return t.StoreSeconds }),
			each(func(t TBPerfTurn) float64 { return t.GeneratorSeconds })))
	}
	out.table(lines)
}

// judgeTBPerf compares within a pair with the side of PostgreSQL that was better in it.
func (r *Results) judgeTBPerf() {
	rates := func(side string) []float64 {
		return r.tbperfFigures(side, func(t TBPerfTurn) float64 { return t.PerSecond })
	}
	locked, atomic := rates(tbperfForUpdate), rates(tbperfAtomic)
	for _, v := range []struct {
		side     string
		required float64
	}{{tbperfSinglyName, requiredTBPerfSingly}, {tbperfBatchesName, requiredTBPerfBatches}} {
		ratios := rates(v.side)
		for i := range ratios {
			ratios[i] /= max(locked[i], atomic[i])
		}
		r.verdict("tb-perf's case, "+v.side+", against the better PostgreSQL side, within a turn", median(ratios), 1, v.required)
		if r.TBPerf.Deadlocks[v.side] > 0 {
			r.Verdicts = append(r.Verdicts, Verdict{What: "tb-perf's case, " + v.side + ", no deadlock", Required: 1})
		}
	}
}
