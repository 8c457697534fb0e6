//go:build linux

package main

import (
	"bytes"
	"testing"
)

// TestJudgeDraws checks each threshold of draws from both sides.
func TestJudgeDraws(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name                  string
		ranges, prizes, saved float64
		pass                  bool
	}{
		{"all", 100e6, 50e6, 175_000, true},
		{"ranges below", 99e6, 50e6, 175_000, false},
		{"prizes below", 100e6, 49e6, 175_000, false},
		{"saved below", 100e6, 50e6, 174_000, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := &Results{Draws: []DrawTurn{
				{Side: product, Shape: shapeRange, PerSecond: tc.ranges},
				{Side: drawOrigin, Shape: shapeRange, PerSecond: 20e6},
				{Side: product, Shape: shapePrizes, PerSecond: tc.prizes},
				{Side: drawOrigin, Shape: shapePrizes, PerSecond: 10e6},
				{Side: savedServer, Shape: shapeSaved, PerSecond: tc.saved},
			}}
			var out bytes.Buffer
			if got := r.judge(&printer{w: &out}); got != tc.pass {
				t.Errorf("pass is %v, want %v:\n%s", got, tc.pass, out.String())
			}
		})
	}
}

// TestOriginDraws holds the loops that are compared with to what they should draw.
func TestOriginDraws(t *testing.T) {
	t.Parallel()
	for name, float := range map[string]func() float64{"8 bytes": float53, "math/big": float53Big} {
		draw, pick := originRange(float), originPick(float)
		worth := map[int]int{}
		for range 300 {
			if v := draw(); v < drawLow || v > drawHigh {
				t.Fatalf("%s: %d", name, v)
			}
			worth[pick()]++
		}
		if worth[0] < 90 || worth[100] < 70 || worth[10_000]+worth[100_000] > 30 {
			t.Errorf("%s: the prizes were %v", name, worth)
		}
	}
}
