//go:build linux

package main

import (
	"fmt"
	"slices"
)

// What is required of draws: against the requirement's loop, measured here, and of saved ones against its figure.
const (
	requiredDrawRatio  = 5
	requiredSavedRatio = 5
	// originSavedPerSecond are the draws a second that the requirement's batch was said to make.
	originSavedPerSecond = 35_000
)

// The shapes and the sides of draws.
const (
	shapeRange    = "a range of 1,000,000"
	shapePrizes   = "five prizes"
	shapeSaved    = "a range, saved each 1,000"
	drawOrigin    = "the requirement's loop"
	drawOriginBig = "the requirement's loop, math/big"
	savedServer   = "fairlead, over HTTP, PostgreSQL"
	savedRedis    = "fairlead, library, Redis"
)

// DrawTurn is one measured stretch of draws, by one caller.
type DrawTurn struct {
	Side      string  `json:"side"`
	Shape     string  `json:"shape"`
	PerSecond float64 `json:"per_second"`
}

func (r *Results) pickDraws(side, shape string) []float64 {
	return pick(r.Draws, func(t DrawTurn) bool { return t.Side == side && t.Shape == shape }, func(t DrawTurn) float64 { return t.PerSecond })
}

func (r *Results) printDraws(out *printer) {
	for _, shape := range []string{shapeRange, shapePrizes, shapeSaved} {
		out.printf("\nDraws, %s, one caller. Median (least … most) of %d turns a side.\n", shape, r.Options["draw_pairs"])
		lines := []string{"\tmillions a second\tns each"}
		for _, side := range []string{product, savedServer, savedRedis, drawOrigin, drawOriginBig} {
			rates := r.pickDraws(side, shape)
			if len(rates) == 0 {
				continue
			}
			millions := slices.Clone(rates)
			for i := range millions {
				millions[i] /= 1e6
			}
			lines = append(lines, fmt.Sprintf("%s\t%s\t%.1f", side, spread(millions, "%.2f"), 1e9/median(rates)))
		}
		out.table(lines)
	}
}

func (r *Results) judgeDraws() {
	for _, shape := range []string{shapeRange, shapePrizes} {
		ours := median(r.pickDraws(product, shape))
		r.verdict(fmt.Sprintf("draws a second, %s, against %s", shape, drawOrigin), ours, median(r.pickDraws(drawOrigin, shape)), requiredDrawRatio)
		r.verdict(fmt.Sprintf("draws a second, %s, against %s", shape, drawOriginBig), ours, median(r.pickDraws(drawOriginBig, shape)), 0)
	}
	for _, side := range []string{savedServer, savedRedis} {
		if saved := median(r.pickDraws(side, shapeSaved)); saved > 0 {
			r.verdict(fmt.Sprintf("saved draws a second, %s, against the requirement's %d", side, originSavedPerSecond), saved, originSavedPerSecond, requiredSavedRatio)
		}
	}
}
