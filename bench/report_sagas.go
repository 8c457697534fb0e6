//go:build linux

package main

import (
	"fmt"
	"slices"
)

// SagaTurn is one measured stretch of sagas.
type SagaTurn struct {
	What      string  `json:"what"`
	Callers   int     `json:"callers"`
	PerSecond float64 `json:"per_second"` // of steps, or of transfers
	// SyncsPerSecond is how often PostgreSQL synced its log meanwhile, for all databases.
	SyncsPerSecond float64 `json:"wal_syncs_per_second"`
}

// printSagas prints throughput beside the physical limit. Nothing is compared: there is no peer, and no threshold.
func (r *Results) printSagas(out *printer) {
	out.printf("\nSagas and two-phase commit, closed loop, in process. Median (least … most) of %d turns. The disk syncs %.0f pages a second, one after the other.\n",
		r.Options["saga_pairs"], r.Fsyncs)
	out.printf("%-38s %8s %28s %18s %14s\n", "", "callers", "a second", "log syncs/s", "syncs each")
	for _, what := range []string{sagaTurn, crossSaga, crossTwoPC} {
		for _, callers := range sagaLoads() {
			var rates, syncs []float64
			for _, t := range r.Sagas {
				if t.What == what && t.Callers == callers {
					rates, syncs = append(rates, t.PerSecond), append(syncs, t.SyncsPerSecond)
				}
			}
			if len(rates) == 0 {
				continue
			}
			slices.Sort(rates)
			slices.Sort(syncs)
			rate, sync := rates[len(rates)/2], syncs[len(syncs)/2]
			out.printf("%-38s %8d %28s %18.0f %14.2f\n", what, callers, fmt.Sprintf("%.0f (%.0f … %.0f)", rate, rates[0], rates[len(rates)-1]), sync, sync/rate)
		}
	}
}
