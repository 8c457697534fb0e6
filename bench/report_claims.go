//go:build linux

package main

import "fmt"

// What is required of claims against River: items completed, and single items scheduled.
const (
	requiredClaimRatio    = 1
	requiredScheduleRatio = 3
)

// ClaimTurn is one turn of claims: items worked off, or scheduled.
type ClaimTurn struct {
	Side          string  `json:"side"`
	Shape         string  `json:"shape"`
	Done          int64   `json:"done"`
	PerSecond     float64 `json:"per_second"`
	ClientSeconds float64 `json:"client_cpu_s"`
	StoreSeconds  float64 `json:"store_cpu_s"`
}

// medianClaims is the median of a figure of a side's turns in a shape.
func (r *Results) medianClaims(side, shape string, figure func(ClaimTurn) float64) float64 {
	return median(pick(r.Claims, func(t ClaimTurn) bool { return t.Side == side && t.Shape == shape }, figure))
}

func claimRate(t ClaimTurn) float64 { return t.PerSecond }

// claimCost is the processor time an item, in seconds.
func claimCost(t ClaimTurn) float64 { return (t.ClientSeconds + t.StoreSeconds) / float64(t.Done) }

func (r *Results) printClaims(out *printer) {
	for _, shape := range []struct{ name, title string }{
		{shapeWork, "Claims: items that do nothing, claimed and completed in the database"},
		{shapeSchedule, "Schedules: single items, from 64 callers"},
	} {
		out.printf("\n%s. Median (least … most) of %v turns a side.\n", shape.title, r.Options["claim_pairs"])
		lines := []string{"\tper second\tprogram CPU µs each\tPostgreSQL"}
		for _, name := range namesOf(shape.name) {
			figure := func(f func(ClaimTurn) float64) []float64 {
				return pick(r.Claims, func(t ClaimTurn) bool { return t.Side == name && t.Shape == shape.name }, f)
			}
			lines = append(lines, fmt.Sprintf("%s\t%s\t%.1f\t%.1f", name, spread(figure(claimRate), "%.0f"),
				median(figure(func(t ClaimTurn) float64 { return 1e6 * t.ClientSeconds / float64(t.Done) })),
				median(figure(func(t ClaimTurn) float64 { return 1e6 * t.StoreSeconds / float64(t.Done) }))))
		}
		out.table(lines)
	}
}

// judgeClaims adds the verdicts on claims.
func (r *Results) judgeClaims() {
	best := r.bestRiver()
	r.verdict("items claimed and completed a second, against "+best, r.medianClaims(queueFairlead, shapeWork, claimRate),
		r.medianClaims(best, shapeWork, claimRate), requiredClaimRatio)
	r.verdict("processor time an item claimed and completed, against "+best, r.medianClaims(best, shapeWork, claimCost),
		r.medianClaims(queueFairlead, shapeWork, claimCost), 0)
	r.verdict("items scheduled a second, 64 callers, against "+queueRiver, r.medianClaims(queueFairlead, shapeSchedule, claimRate),
		r.medianClaims(queueRiver, shapeSchedule, claimRate), requiredScheduleRatio)
	r.verdict("processor time an item scheduled, against "+queueRiver, r.medianClaims(queueRiver, shapeSchedule, claimCost),
		r.medianClaims(queueFairlead, shapeSchedule, claimCost), 0)
}
