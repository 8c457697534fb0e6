//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/fairlead-dev/fairlead/bench/load"
)

// TestJudgeTails checks each threshold from both sides.
func TestJudgeTails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		p99, p999 float64
		pass      bool
	}{
		{"both", 12, 30, true},
		{"a p99 above six times the p50", 12.1, 30, false},
		{"a p99.9 above fifteen times the p50", 12, 30.1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			turn := func(what string, p99, p999 float64) TailTurn {
				return TailTurn{What: what, TransferTurn: TransferTurn{Answers: 1, P50MS: 2, P99MS: p99, P999MS: p999}, Slowest: []SlowSecond{{At: 7, Vacuum: "of hands"}}}
			}
			r := &Results{Options: map[string]any{}, Tails: []TailTurn{turn(batchBids, 2, 2), turn(batchTransfers, tc.p99, tc.p999)}}
			var out bytes.Buffer
			p := &printer{w: &out}
			r.printTails(p)
			if got := r.judge(p); got != tc.pass || !strings.Contains(out.String(), "of hands") {
				t.Fatalf("pass is %v, want %v:\n%s", got, tc.pass, out.String())
			}
		})
	}
}

// TestSlowestSeconds gives each second its own latencies and what was done in it, slowest first.
func TestSlowestSeconds(t *testing.T) {
	t.Parallel()
	r := &load.Result{}
	var seen []sighting
	for i := range 2 * tailsSlowest {
		h := hdrhistogram.New(1, int64(time.Minute), 3)
		if err := h.RecordValue(int64((i + 1) * int(time.Millisecond))); err != nil {
			t.Fatal(err)
		}
		r.Seconds = append(r.Seconds, h)
		seen = append(seen, sighting{did: Did{WALBytes: float64(i * i)}, used: usage{server: float64(i)}})
	}
	// The last second was not seen to its end.
	slow := slowest(r, seen)
	if len(slow) != tailsSlowest {
		t.Fatalf("%d seconds", len(slow))
	}
	for i, s := range slow {
		at := 2*tailsSlowest - 2 - i
		if s.At != at || s.Due != 1 || s.Did.WALBytes != float64(2*at+1) || s.ServerSeconds != 1 || s.P99MS < float64(at+1) || s.P99MS > float64(at+1)*1.01 {
			t.Errorf("%d: %+v, want second %d", i, s, at)
		}
	}
}
