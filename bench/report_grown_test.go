//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestJudgeGrown checks each threshold from both sides. Of starts and of answers at rest the longest counts; how long an answer takes behind a load does not.
func TestJudgeGrown(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name                            string
		cost, start, integrity, recount float64
		pass                            bool
	}{
		{"all", 1.29, 2, 1, 10, true},
		{"too costly", 1.31, 2, 1, 10, false},
		{"too slow a start", 1.29, 2.01, 1, 10, false},
		{"too slow a check", 1.29, 2, 1.01, 10, false},
		{"too slow a recount", 1.29, 2, 1, 10.1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			g := Grown{
				Accounts: 2, Entries: 10_000_000, FillSeconds: 1, RecountSeconds: tc.recount,
				StartSeconds: []float64{0.1, tc.start, 0.1}, IntegritySeconds: []float64{tc.integrity, 0.1}, BehindSeconds: []float64{9},
			}
			for _, turn := range []float64{1, 2} { // The machine is half as fast in the second one.
				for _, what := range grownLoads() {
					cost := 1.0
					if what == grownPurchases {
						cost = tc.cost
					}
					for side, seconds := range map[string]float64{grownEmpty: 1, grownFull: cost} {
						g.Turns = append(g.Turns, GrownTurn{what, TransferTurn{Side: side, Answers: 1000, PerSecond: 1, Usage: Usage{ServerSeconds: turn * seconds / 2, StoreSeconds: turn * seconds / 2}}})
					}
				}
			}
			r := &Results{Options: map[string]any{"grown_pairs": 2, "accounts": 1}, Grown: g}
			var out bytes.Buffer
			p := &printer{w: &out}
			r.printGrown(p)
			if got := r.judge(p); got != tc.pass || strings.Contains(out.String(), "%!") {
				t.Errorf("pass is %v, want %v:\n%s", got, tc.pass, out.String())
			}
		})
	}
}
