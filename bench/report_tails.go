//go:build linux

package main

import "fmt"

// What is required of latencies at half the peak: quantiles in multiples of the median.
const (
	requiredP99OfP50  = 6
	requiredP999OfP50 = 15
)

// TailTurn is one open-loop turn at half of Peak, which a closed loop reached, and what PostgreSQL did meanwhile.
type TailTurn struct {
	TransferTurn

	What    string       `json:"what"`
	Peak    float64      `json:"closed_loop_per_second"`
	PeakP50 float64      `json:"closed_loop_p50_ms"`
	P9999MS float64      `json:"p9999_ms"`
	WorstMS float64      `json:"worst_ms"`
	Did     Did          `json:"postgresql"`
	Slowest []SlowSecond `json:"slowest_seconds"`
}

// SlowSecond is what was due in one second of a turn, and what was done from From, since when latencies had grown, to its end. Vacuum is
// what autovacuum was at. BusySeconds are of all processors, whoever used them, and DiskSeconds what they idled while somebody waited for the disk.
type SlowSecond struct {
	From    int     `json:"from_s"`
	At      int     `json:"at_s"`
	Due     int64   `json:"due"`
	P50MS   float64 `json:"p50_ms"`
	P99MS   float64 `json:"p99_ms"`
	WorstMS float64 `json:"worst_ms"`
	Did     Did     `json:"postgresql"`
	Usage
	BusySeconds float64 `json:"busy_cpu_s"`
	DiskSeconds float64 `json:"disk_wait_s"`
	Vacuum      string  `json:"vacuum,omitempty"`
}

const mib = 1 << 20

func (r *Results) printTails(out *printer) {
	rate := fmt.Sprintf("half of what a closed loop of %d reached", openConnections)
	if r.tailsAtRate() {
		rate = "a given rate"
	}
	out.printf("\nTails, open loop at %s, for %v s. Median (least … most) of %v turns.\n", rate, r.Options["tails_measure_s"], r.Options["tails_pairs"])
	lines := []string{"\ta second\tp50 ms\tp99 ms\tp99.9 ms\tp99.99 ms\tworst ms\tserver CPU µs each\tdatabase\tgenerator"}
	for _, what := range []string{batchBids, batchTransfers} {
		figure := func(f func(TailTurn) float64) []float64 { return r.tailFigures(what, f) }
		each := func(f func(TailTurn) float64) float64 {
			return median(figure(func(t TailTurn) float64 { return 1e6 * f(t) / float64(t.Answers) }))
		}
		lines = append(lines, fmt.Sprintf("%s\t%.0f\t%s\t%s\t%s\t%s\t%s\t%.1f\t%.1f\t%.1f", what, median(figure(func(t TailTurn) float64 { return t.Rate })),
			spread(figure(func(t TailTurn) float64 { return t.P50MS }), "%.2f"),
			spread(figure(func(t TailTurn) float64 { return t.P99MS }), "%.2f"),
			spread(figure(func(t TailTurn) float64 { return t.P999MS }), "%.2f"),
			spread(figure(func(t TailTurn) float64 { return t.P9999MS }), "%.2f"),
			spread(figure(func(t TailTurn) float64 { return t.WorstMS }), "%.2f"),
			each(func(t TailTurn) float64 { return t.ServerSeconds }),
			each(func(t TailTurn) float64 { return t.StoreSeconds }),
			each(func(t TailTurn) float64 { return t.GeneratorSeconds })))
	}
	out.table(lines)
	for i, t := range r.Tails {
		d := t.Did
		out.printf("\nTurn %d, %s: PostgreSQL wrote %.0f MiB to its log with %.0f full pages, began %.0f checkpoints (%.0f pages, %.1f s of writing, %.1f s of syncing), "+
			"and vacuumed %.0f tables and analyzed %.0f by itself. The slowest seconds:\n",
			i+1, t.What, d.WALBytes/mib, d.WALPages, d.Checkpoints, d.CheckpointPages, d.CheckpointSeconds, d.CheckpointSyncs, d.Vacuums, d.Analyzes)
		lines := []string{"at s\tdue\tp50 ms\tp99 ms\tworst ms\tgrown since s\tlog MiB\tfull pages\tcheckpoints\tpages\tserver CPU s a second\tdatabase\tgenerator\tothers\tdisk wait\tautovacuum"}
		for _, s := range t.Slowest {
			long := float64(s.At - s.From + 1)
			others := s.BusySeconds - s.ServerSeconds - s.StoreSeconds - s.GeneratorSeconds
			lines = append(lines, fmt.Sprintf("%d\t%d\t%.2f\t%.2f\t%.2f\t%d\t%.1f\t%.0f\t%.0f\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%s", s.At, s.Due, s.P50MS, s.P99MS, s.WorstMS,
				s.From, s.Did.WALBytes/mib, s.Did.WALPages, s.Did.Checkpoints, s.Did.CheckpointPages, s.ServerSeconds/long, s.StoreSeconds/long,
				s.GeneratorSeconds/long, others/long, s.DiskSeconds/long, s.Vacuum))
		}
		out.table(lines)
	}
}

func (r *Results) tailsAtRate() bool {
	rate, _ := r.Options["tails_rate"].(float64)
	return rate > 0
}

func (r *Results) tailFigures(what string, figure func(TailTurn) float64) []float64 {
	return pick(r.Tails, func(t TailTurn) bool { return t.What == what }, figure)
}

// judgeTails compares within a turn: its median is of the same minutes. A median above the one at the peak is that of a queue, and no
// measure for anything. What is required holds for half the peak, not for a given rate.
func (r *Results) judgeTails() {
	if r.tailsAtRate() {
		return
	}
	for _, what := range []string{batchBids, batchTransfers} {
		r.verdict("p50 of "+what+" at half the peak, that at the peak over it, within a turn", median(r.tailFigures(what, func(t TailTurn) float64 { return t.PeakP50 / t.P50MS })), 1, 1)
		for _, v := range []struct {
			name     string
			required float64
			quantile func(TailTurn) float64
		}{
			{"p99", requiredP99OfP50, func(t TailTurn) float64 { return t.P99MS }},
			{"p99.9", requiredP999OfP50, func(t TailTurn) float64 { return t.P999MS }},
		} {
			times := r.tailFigures(what, func(t TailTurn) float64 { return v.quantile(t) / t.P50MS })
			r.verdict(fmt.Sprintf("%s of %s at half the peak, %.0f times the p50 over it, within a turn", v.name, what, v.required), v.required, median(times), 1)
		}
	}
}
