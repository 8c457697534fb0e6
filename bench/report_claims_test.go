//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestJudgeClaims checks that River's best counts, and each threshold from both sides.
func TestJudgeClaims(t *testing.T) {
	t.Parallel()
	turn := func(side, shape string, rate float64) ClaimTurn {
		return ClaimTurn{Side: side, Shape: shape, Done: 1, PerSecond: rate, ClientSeconds: 1, StoreSeconds: 1}
	}
	for _, tc := range []struct {
		name           string
		work, schedule float64
		pass           bool
	}{
		{"both", 300, 300, true},
		{"fewer items than the best River", 299, 300, false},
		{"fewer schedules", 300, 299, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := &Results{Options: map[string]any{"claim_pairs": 1}, Claims: []ClaimTurn{
				turn(queueFairlead, shapeWork, tc.work), turn("River, MaxWorkers 200", shapeWork, 100), turn("River, MaxWorkers 1000", shapeWork, 300),
				turn("River, MaxWorkers 2000", shapeWork, 200), turn(queueFairlead, shapeSchedule, tc.schedule), turn(queueRiver, shapeSchedule, 100),
			}}
			var out bytes.Buffer
			p := &printer{w: &out}
			r.printClaims(p)
			if got := r.judge(p); got != tc.pass {
				t.Fatalf("pass is %v, want %v:\n%s", got, tc.pass, out.String())
			}
			if !strings.Contains(out.String(), "against River, MaxWorkers 1000") {
				t.Fatalf("another River was taken for the best:\n%s", out.String())
			}
		})
	}
}
