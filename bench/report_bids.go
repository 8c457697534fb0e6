//go:build linux

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// BidTurn is one measured stretch of bids. The figures of TransferTurn count accepted bids; the latencies are those of
// all answers.
type BidTurn struct {
	TransferTurn

	// Others counts the answers that refused a bid, by their code. There should be next to none.
	Others map[string]int64 `json:"others,omitempty"`
}

func (r *Results) printBids(out *printer) {
	turns := r.bidTurns()
	for _, connections := range connectionCounts() {
		out.printf("\nBids on one auction, closed loop, %d connections. Median (least … most) of %d turns a side.\n",
			connections, r.Options["bid_pairs"])
		printTransferTable(out, pickTurns(turns, func(t TransferTurn) bool { return t.Connections == connections }))
	}
	others := r.otherAnswers()
	if len(others) == 0 {
		out.printf("Every answer was 201.\n")
		return
	}
	out.printf("Answers other than 201: %s.\n", strings.Join(others, "; "))
}

// otherAnswers sums up the answers that refused, a line a side and code.
func (r *Results) otherAnswers() []string {
	counts := make(map[string]int64)
	for _, t := range r.Bids {
		for code, n := range t.Others {
			counts[t.Side+": "+code] += n
		}
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		lines = append(lines, fmt.Sprintf("%s %d times", name, counts[name]))
	}
	return lines
}

func (r *Results) bidTurns() []TransferTurn {
	turns := make([]TransferTurn, 0, len(r.Bids))
	for _, t := range r.Bids {
		turns = append(turns, t.TransferTurn)
	}
	return turns
}

// judgeBids adds the verdicts on bids.
func (r *Results) judgeBids() {
	turns := r.bidTurns()
	throughput := func(t TransferTurn) float64 { return t.PerSecond }
	p99 := func(t TransferTurn) float64 { return t.P99MS }
	r.judgeBidsBefore(turns)
	for _, against := range []string{peerRedis, peer, peerPipelined} {
		for i, n := range connectionCounts() {
			rate, latency := 0.0, 0.0
			switch against {
			case peerRedis:
				rate, latency = requiredRedisRatioLow, requiredRedisP99Ratio
				if i > 0 {
					rate = requiredRedisRatioHigh
				}
			case peer:
				rate = requiredBidRatio
			}
			r.verdict(fmt.Sprintf("bids a second, %d connections, against %s", n, against),
				medianOf(turns, product, n, throughput), medianOf(turns, against, n, throughput), rate)
			r.verdict(fmt.Sprintf("bids, p99, %d connections, against %s", n, against),
				medianOf(turns, against, n, p99), medianOf(turns, product, n, p99), latency)
			r.verdict(fmt.Sprintf("processor time a bid, %d connections, against %s", n, against),
				medianOf(turns, against, n, processorTimeEach), medianOf(turns, product, n, processorTimeEach), 0)
		}
	}
}

// judgeBidsBefore compares with the older state turn by turn, each with the one that stood beside it: two states of one program differ by
// less than what a disk does from one minute to the next.
func (r *Results) judgeBidsBefore(turns []TransferTurn) {
	for _, n := range connectionCounts() {
		of := func(side string, figure func(TransferTurn) float64) []float64 {
			return pick(turns, func(t TransferTurn) bool { return t.Side == side && t.Connections == n }, figure)
		}
		for _, compared := range []struct {
			what     string
			figure   func(TransferTurn) float64
			required float64
		}{
			{"bids a second", func(t TransferTurn) float64 { return t.PerSecond }, requiredBidsBefore},
			{"bids, 1/p99", func(t TransferTurn) float64 { return 1 / t.P99MS }, 0},
			{"bids for each second of processor time", func(t TransferTurn) float64 { return 1 / processorTimeEach(t) }, 0},
		} {
			now, before := of(product, compared.figure), of(productBefore, compared.figure)
			ratios := make([]float64, min(len(now), len(before)))
			for i := range ratios {
				ratios[i] = now[i] / before[i]
			}
			r.verdict(fmt.Sprintf("%s, %d connections, turn by turn against %s", compared.what, n, productBefore), median(ratios), 1, compared.required)
		}
	}
}
