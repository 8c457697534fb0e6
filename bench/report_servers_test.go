//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestJudgeServers checks a threshold from both sides.
func TestJudgeServers(t *testing.T) {
	t.Parallel()
	for rate, pass := range map[float64]bool{750: true, 749: false} {
		r := &Results{Options: map[string]any{"server_pairs": 1}, Servers: []ServersTurn{
			{MixTurn{Mix: "two auctions", PerSecond: 1000}, 1}, {MixTurn{Mix: "two auctions", PerSecond: rate}, 2},
		}}
		var out bytes.Buffer
		p := &printer{w: &out}
		r.printServers(p)
		if got := r.judge(p); got != pass || !strings.Contains(out.String(), "two auctions, two servers that share it") || strings.Contains(out.String(), "%!") {
			t.Errorf("pass is %v, want %v:\n%s", got, pass, out.String())
		}
	}
}
