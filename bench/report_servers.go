//go:build linux

package main

import "fmt"

// What is required of two servers that share their targets, on the same processors, against one.
const (
	requiredOneAuction   = 0.65
	requiredTwoAuctions  = 0.75
	requiredPurchases    = 0.8
	requiredHotTransfers = 0.8
)

// ServersTurn is one measured stretch of a load on one server or on two.
type ServersTurn struct {
	MixTurn

	Servers int `json:"servers"`
}

func (r *Results) serverFigure(load string, servers int, f func(ServersTurn) float64) []float64 {
	return pick(r.Servers, func(t ServersTurn) bool { return t.Mix == load && t.Servers == servers }, f)
}

func (r *Results) printServers(out *printer) {
	out.printf("\nOne server, and two on the same database whose connections take turns, closed loop, %d connections. Median (least … most) of %v turns.\n",
		mixConnections, r.Options["server_pairs"])
	lines := []string{"\tservers\tper second\tp50 ms\tp99 ms"}
	for _, m := range serverLoads() {
		for servers := 1; servers <= 2; servers++ {
			rates := r.serverFigure(m.name, servers, func(t ServersTurn) float64 { return t.PerSecond })
			if len(rates) == 0 {
				continue
			}
			lines = append(lines, fmt.Sprintf("%s\t%d\t%s\t%s\t%s", m.name, servers, spread(rates, "%.0f"),
				spread(r.serverFigure(m.name, servers, func(t ServersTurn) float64 { return t.P50MS }), "%.2f"),
				spread(r.serverFigure(m.name, servers, func(t ServersTurn) float64 { return t.P99MS }), "%.2f")))
		}
	}
	out.table(lines)
}

// judgeServers adds the verdicts on several servers.
func (r *Results) judgeServers() {
	rate := func(t ServersTurn) float64 { return t.PerSecond }
	for _, m := range serverLoads() {
		r.verdict(fmt.Sprintf("%s, two servers that share it, against one", m.name),
			median(r.serverFigure(m.name, 2, rate)), median(r.serverFigure(m.name, 1, rate)), m.required)
	}
}
