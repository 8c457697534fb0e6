//go:build linux

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"
)

// The ratios that are required of the product against the peer.
const (
	requiredRaceRatio     = 8
	requiredTransferRatio = 6
	requiredBidRatio      = 8
	requiredBeforeRatio   = 0.97
	requiredBidsBefore    = 0.98
)

// What is required of durable bids against a Redis script that isn't durable: bids a second at the lower and at the
// higher number of connections, and a p99 of at most one and a half times the script's.
const (
	requiredRedisRatioLow  = 0.9
	requiredRedisRatioHigh = 1.1
	requiredRedisP99Ratio  = 1 / 1.5
)

// busyLoadAverage is from where other work on the machine spoils the figures. The build before the run leaves a load of
// up to about one behind.
const busyLoadAverage = 1.5

// Results are everything that a run measured.
type Results struct {
	StartedAt time.Time      `json:"started_at"`
	Machine   Machine        `json:"machine"`
	Options   map[string]any `json:"options"`
	Races     []RaceTurn     `json:"races"`
	Transfers []TransferTurn `json:"transfers"`
	Open      []TransferTurn `json:"transfers_open_loop"`
	Bids      []BidTurn      `json:"bids"`
	Mixes     []MixTurn      `json:"mixes"`
	Closings  []ClosingTurn  `json:"closings"`
	Servers   []ServersTurn  `json:"servers"`
	Fresh     []FreshTurn    `json:"fresh"`
	Batches   []BatchTurn    `json:"batches"`
	Snapshots []SnapshotTurn `json:"snapshots"`
	Sizes     []SizeTurn     `json:"sizes"`
	OpenBids  []TransferTurn `json:"bids_open_loop"`
	Log       []LogTurn      `json:"log"`
	Archives  []ArchiveTurn  `json:"archives"`
	Grown     Grown          `json:"grown"`
	TBPerf    TBPerf         `json:"tbperf"`
	Tails     []TailTurn     `json:"tails"`
	Locks     []LockTurn     `json:"locks"`
	Claims    []ClaimTurn    `json:"claims"`
	Draws     []DrawTurn     `json:"draws"`
	Sagas     []SagaTurn     `json:"sagas"`
	Fsyncs    float64        `json:"fsyncs_per_second"` // of the disk, one after the other
	Verdicts  []Verdict      `json:"verdicts"`
}

// RaceTurn is one race: from the start signal to the last answer, and the buyers' latencies.
type RaceTurn struct {
	Side    string  `json:"side"`
	TotalMS float64 `json:"total_ms"`
	P50MS   float64 `json:"p50_ms"`
	P99MS   float64 `json:"p99_ms"`
	Usage
}

// TransferTurn is one measured stretch of transfers. Rate is 0 in a closed loop.
type TransferTurn struct {
	Side        string  `json:"side"`
	Connections int     `json:"connections"`
	Rate        float64 `json:"rate_per_s,omitempty"`
	Answers     int64   `json:"answers"`
	PerSecond   float64 `json:"per_second"`
	P50MS       float64 `json:"p50_ms"`
	P99MS       float64 `json:"p99_ms"`
	P999MS      float64 `json:"p999_ms"`
	Usage
}

// Verdict is a required ratio of medians and what was measured.
type Verdict struct {
	What     string  `json:"what"`
	Ratio    float64 `json:"ratio"`
	Required float64 `json:"required"`
	Pass     bool    `json:"pass"`
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// spread is a median with the extremes around it.
func spread(values []float64, format string) string {
	if len(values) == 0 {
		return "-"
	}
	return fmt.Sprintf(format+" ("+format+" … "+format+")", median(values), slices.Min(values), slices.Max(values))
}

// pick gathers a figure from the turns that match.
func pick[T any](turns []T, match func(T) bool, figure func(T) float64) []float64 {
	var values []float64
	for _, t := range turns {
		if match(t) {
			values = append(values, figure(t))
		}
	}
	return values
}

func sides() []string { return []string{product, productBefore, peerRedis, peer, peerPipelined} }

func (m *Machine) print(out *printer) {
	out.printf("Machine: %d cores (%s), %.0f GiB, Linux %s; %s; PostgreSQL %s; a bare durable commit takes %.0f µs.\n",
		m.Cores, m.Processor, m.MemoryGiB, m.Kernel, m.Go, m.PostgreSQL, m.CommitUS)
	if m.LoadAverage > busyLoadAverage {
		out.printf("WARNING: the machine was busy before the run (load average %.1f), so these figures mean little. A busy\n"+
			"machine slows one writer that all wait for more than it slows many that take turns.\n", m.LoadAverage)
	}
	out.printf("PostgreSQL:")
	for _, name := range slices.Sorted(maps.Keys(m.Settings)) {
		out.printf(" %s=%s", name, m.Settings[name])
	}
	out.printf("\n")
}

// printer keeps the first error of its writer, so that a table can be printed without a check a line.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// table prints lines of cells, separated by tabs, as aligned columns.
func (p *printer) table(lines []string) {
	w := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		if p.err == nil {
			_, p.err = fmt.Fprintln(w, line)
		}
	}
	if p.err == nil {
		p.err = w.Flush()
	}
}

func (r *Results) printRaces(out *printer) {
	out.printf("\nThe race: %d buyers at once for %d positions. Median (least … most) of %d races a side.\n",
		raceBuyers, racePositions, r.Options["race_pairs"])
	lines := []string{"\ttotal ms\tp50 ms\tp99 ms\tserver CPU ms\tPostgreSQL CPU ms\tgenerator CPU ms\tRSS MiB"}
	for _, name := range sides() {
		figure := func(f func(RaceTurn) float64) []float64 {
			return pick(r.Races, func(t RaceTurn) bool { return t.Side == name }, f)
		}
		if len(figure(func(RaceTurn) float64 { return 0 })) == 0 {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%.0f\t%.0f\t%.0f\t%.0f", name,
			spread(figure(func(t RaceTurn) float64 { return t.TotalMS }), "%.1f"),
			spread(figure(func(t RaceTurn) float64 { return t.P50MS }), "%.1f"),
			spread(figure(func(t RaceTurn) float64 { return t.P99MS }), "%.1f"),
			1e3*median(figure(func(t RaceTurn) float64 { return t.ServerSeconds })),
			1e3*median(figure(func(t RaceTurn) float64 { return t.StoreSeconds })),
			1e3*median(figure(func(t RaceTurn) float64 { return t.GeneratorSeconds })),
			median(figure(func(t RaceTurn) float64 { return t.RSSMiB }))))
	}
	out.table(lines)
}

func (r *Results) printTransfers(out *printer) {
	for _, connections := range connectionCounts() {
		out.printf("\nTransfers, closed loop, %d connections. Median (least … most) of %d turns a side.\n",
			connections, r.Options["transfer_pairs"])
		match := func(t TransferTurn) bool { return t.Connections == connections }
		printTransferTable(out, pickTurns(r.Transfers, match))
	}
	var rates []float64
	for _, t := range r.Open {
		if !slices.Contains(rates, t.Rate) {
			rates = append(rates, t.Rate)
		}
	}
	for _, rate := range rates {
		out.printf("\nTransfers, open loop, %.0f a second.\n", rate)
		printTransferTable(out, pickTurns(r.Open, func(t TransferTurn) bool { return t.Rate == rate }))
	}
}

func pickTurns(turns []TransferTurn, match func(TransferTurn) bool) []TransferTurn {
	return slices.DeleteFunc(slices.Clone(turns), func(t TransferTurn) bool { return !match(t) })
}

func printTransferTable(out *printer, turns []TransferTurn) {
	lines := []string{"\tper second\tp50 ms\tp99 ms\tp99.9 ms\tserver CPU µs each\tdatabase\tgenerator\tRSS MiB (peak)"}
	for _, name := range sides() {
		figure := func(f func(TransferTurn) float64) []float64 {
			return pick(turns, func(t TransferTurn) bool { return t.Side == name }, f)
		}
		if len(figure(func(TransferTurn) float64 { return 0 })) == 0 {
			continue
		}
		each := func(f func(TransferTurn) float64) float64 {
			return median(figure(func(t TransferTurn) float64 { return 1e6 * f(t) / float64(t.Answers) }))
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%.0f\t%.0f\t%.0f\t%.0f (%.0f)", name,
			spread(figure(func(t TransferTurn) float64 { return t.PerSecond }), "%.0f"),
			spread(figure(func(t TransferTurn) float64 { return t.P50MS }), "%.2f"),
			spread(figure(func(t TransferTurn) float64 { return t.P99MS }), "%.2f"),
			spread(figure(func(t TransferTurn) float64 { return t.P999MS }), "%.2f"),
			each(func(t TransferTurn) float64 { return t.ServerSeconds }),
			each(func(t TransferTurn) float64 { return t.StoreSeconds }),
			each(func(t TransferTurn) float64 { return t.GeneratorSeconds }),
			median(figure(func(t TransferTurn) float64 { return t.RSSMiB })),
			median(figure(func(t TransferTurn) float64 { return t.PeakRSSMiB }))))
	}
	out.table(lines)
}

func (r *Results) medianThroughput(side string, connections int) float64 {
	return medianOf(r.Transfers, side, connections, func(t TransferTurn) float64 { return t.PerSecond })
}

// medianOf is the median of a figure of a side's turns at a number of connections.
func medianOf(turns []TransferTurn, side string, connections int, figure func(TransferTurn) float64) float64 {
	return median(pick(turns,
		func(t TransferTurn) bool { return t.Side == side && t.Connections == connections }, figure))
}

// processorTimeEach is what an answer costs server and database together, in seconds. Other work on the machine
// disturbs it less than it disturbs throughput.
func processorTimeEach(t TransferTurn) float64 {
	return (t.ServerSeconds + t.StoreSeconds) / float64(t.Answers)
}

func (r *Results) medianRace(side string, figure func(RaceTurn) float64) float64 {
	return median(pick(r.Races, func(t RaceTurn) bool { return t.Side == side }, figure))
}

// judge prints the ratios of medians and tells whether the required ones were reached. The pipelined peer's have no
// threshold; they are shown so that nobody has to wonder.
func (r *Results) judge(out *printer) bool {
	total := func(t RaceTurn) float64 { return t.TotalMS }
	p99 := func(t RaceTurn) float64 { return t.P99MS }
	for _, against := range []string{peer, peerPipelined, productBefore} {
		race, transfer := 0.0, 0.0
		switch against {
		case peer:
			race, transfer = requiredRaceRatio, requiredTransferRatio
		case productBefore:
			race, transfer = requiredBeforeRatio, requiredBeforeRatio
		}
		r.verdict("race, total time, against "+against, r.medianRace(against, total), r.medianRace(product, total), race)
		r.verdict("race, p99, against "+against, r.medianRace(against, p99), r.medianRace(product, p99), race)
		for i, n := range connectionCounts() {
			required := transfer
			if i > 0 && against == peer {
				required = 0
			}
			r.verdict(fmt.Sprintf("transfers a second, %d connections, against %s", n, against),
				r.medianThroughput(product, n), r.medianThroughput(against, n), required)
			r.verdict(fmt.Sprintf("processor time a transfer, %d connections, against %s", n, against),
				medianOf(r.Transfers, against, n, processorTimeEach), medianOf(r.Transfers, product, n, processorTimeEach), 0)
		}
	}
	r.judgeBids()
	r.judgeBatches()
	r.judgeTBPerf()
	r.judgeMixes()
	r.judgeServers()
	r.judgeFresh()
	r.judgeSnapshots()
	r.judgeTails()
	r.judgeLog()
	r.judgeArchives()
	r.judgeGrown()
	r.judgeLocks()
	r.judgeClaims()
	r.judgeDraws()
	if len(r.Verdicts) == 0 {
		return true
	}
	out.printf("\nRatios of medians, above 1 where the product is better:\n")
	var lines []string
	pass := true
	for _, v := range r.Verdicts {
		word := ""
		switch {
		case v.Required == 0:
		case v.Pass:
			word = fmt.Sprintf("PASS (at least %.2g)", v.Required)
		default:
			word = fmt.Sprintf("FAIL (at least %.2g)", v.Required)
			pass = false
		}
		lines = append(lines, fmt.Sprintf("%s\t%.2f\t%s", v.What, v.Ratio, word))
	}
	out.table(lines)
	return pass
}

func (r *Results) verdict(what string, above, below, required float64) {
	if above == 0 || below == 0 {
		return // That part was left out.
	}
	ratio := above / below
	r.Verdicts = append(r.Verdicts, Verdict{What: what, Ratio: ratio, Required: required, Pass: ratio >= required})
}
