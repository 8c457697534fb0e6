//go:build linux

package main

import "fmt"

// requiredLeaves is how many events a second must become leaves beside a load.
const requiredLeaves = 20_000

// requiredLogCost is how much of the processor time of an older state, which may have no log, a bid may take.
const requiredLogCost = 0.98

// LogTurn is a backlog of events that became leaves of the public log beside a load.
type LogTurn struct {
	Backlog      int     `json:"backlog"`
	PerSecond    float64 `json:"per_second"`            // leaves, from the first batch to the backlog's end
	StoreSeconds float64 `json:"store_cpu_s_each"`      // of the keeper's sessions
	Beside       float64 `json:"load_per_second"`       // meanwhile
	Alone        float64 `json:"load_alone_per_second"` // while the log did not grow
}

func (r *Results) printLog(out *printer) {
	if len(r.OpenBids) > 0 {
		out.printf("\nBids on one auction, open loop, %.0f a second. Median (least … most) of %d turns a side.\n", r.Options["log_rate"], r.Options["log_pairs"])
		printTransferTable(out, r.OpenBids)
	}
	figure := func(f func(LogTurn) float64) []float64 { return pick(r.Log, func(LogTurn) bool { return true }, f) }
	out.printf("\nThe public log: a backlog of %d bids becomes leaves beside bids in 1,000 auctions, purchases in 64 campaigns, and transfers, %d connections. Median (least … most) of %d turns.\n",
		r.Options["log_events"], mixConnections, r.Options["log_pairs"])
	out.table([]string{
		"leaves per second\tkeeper's PostgreSQL CPU µs each\tload per second meanwhile\tload while the log is held",
		fmt.Sprintf("%s\t%s\t%s\t%s",
			spread(figure(func(t LogTurn) float64 { return t.PerSecond }), "%.0f"),
			spread(figure(func(t LogTurn) float64 { return 1e6 * t.StoreSeconds }), "%.2f"),
			spread(figure(func(t LogTurn) float64 { return t.Beside }), "%.0f"),
			spread(figure(func(t LogTurn) float64 { return t.Alone }), "%.0f")),
	})
}

// judgeLog adds the verdicts on the log.
func (r *Results) judgeLog() {
	each := func(side string) float64 {
		return median(pick(r.OpenBids, func(t TransferTurn) bool { return t.Side == side }, processorTimeEach))
	}
	r.verdict("processor time a bid, open loop, against "+productBefore, each(productBefore), each(product), requiredLogCost)
	rates := pick(r.Log, func(LogTurn) bool { return true }, func(t LogTurn) float64 { return t.PerSecond })
	r.verdict(fmt.Sprintf("leaves a second beside a load, against %d", requiredLeaves), median(rates), requiredLeaves, 1)
}
