//go:build linux

package main

import (
	"bytes"
	"testing"
	"time"
)

// TestJudgeMixes checks the thresholds of many targets and of closing rounds from both sides. Of several closings the worst counts.
func TestJudgeMixes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name             string
		rate, p99, pause float64
		pass             bool
	}{
		{"all", 600, 8, 250, true},
		{"too slow", 599, 8, 250, false},
		{"too long a p99", 600, 8.1, 250, false},
		{"too long a pause", 600, 8, 251, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := &Results{
				Options: map[string]any{"mix_pairs": 1},
				Mixes:   []MixTurn{{Mix: mixRaises, PerSecond: 1000, P99MS: 2}, {Mix: mixMany, PerSecond: tc.rate, P99MS: tc.p99}},
				Closings: []ClosingTurn{
					{What: closingAnother, PauseMS: 10}, {What: closingSame, PauseMS: 10}, {What: closingSame, PauseMS: tc.pause}, {What: closingSame, PauseMS: 10},
				},
			}
			var out bytes.Buffer
			p := &printer{w: &out}
			r.printMixes(p)
			if got := r.judge(p); got != tc.pass {
				t.Fatalf("pass is %v, want %v:\n%s", got, tc.pass, out.String())
			}
		})
	}
}

func TestPauses(t *testing.T) {
	t.Parallel()
	var p pauses
	at := func(ms int, counts bool) { p.note(time.UnixMilli(int64(ms)), counts) }
	at(1000, true) // Nothing came before it.
	at(1500, false)
	at(1700, true)
	at(1800, true)
	if p.longest != 200*time.Millisecond {
		t.Fatalf("the longest pause is %s", p.longest)
	}
}
