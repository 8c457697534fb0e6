//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestJudgeLog checks each threshold from both sides.
func TestJudgeLog(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		leaves float64 // a second
		each   float64 // seconds of a bid
		pass   bool
	}{
		{"all", 20_000, 0.01, true},
		{"too few leaves a second", 19_999, 0.01, false},
		{"bids that cost more", 20_000, 0.0103, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			turn := func(side string, each float64) TransferTurn {
				return TransferTurn{Side: side, Answers: 100, Usage: Usage{ServerSeconds: 50 * each, StoreSeconds: 50 * each}}
			}
			r := &Results{
				Options:  map[string]any{"log_rate": 4000.0, "log_pairs": 1, "log_events": 5},
				OpenBids: []TransferTurn{turn(product, tc.each), turn(productBefore, 0.01)},
				Log:      []LogTurn{{Backlog: 5, PerSecond: tc.leaves, StoreSeconds: 1.5e-6}},
			}
			var out bytes.Buffer
			p := &printer{w: &out}
			r.printLog(p)
			if got := r.judge(p); got != tc.pass || !strings.Contains(out.String(), "1.50") || strings.Contains(out.String(), "%!") {
				t.Fatalf("pass is %v, want %v:\n%s", got, tc.pass, out.String())
			}
		})
	}
}
