//go:build linux

package main

import (
	"bytes"
	"math"
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
		name            string
		peak, p99, p999 float64
		pass            bool
	}{
		{"all", 2, 12, 30, true},
		{"a p50 above that at the peak", 1.9, 12, 30, false},
		{"a p99 above six times the p50", 2, 12.1, 30, false},
		{"a p99.9 above fifteen times the p50", 2, 12, 30.1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			turn := func(what string, peak, p99, p999 float64) TailTurn {
				return TailTurn{What: what, PeakP50: peak, TransferTurn: TransferTurn{Answers: 1, P50MS: 2, P99MS: p99, P999MS: p999}, Slowest: []SlowSecond{{At: 7, Vacuum: "of hands"}}}
			}
			r := &Results{Options: map[string]any{}, Tails: []TailTurn{turn(batchBids, 2, 2, 2), turn(batchTransfers, tc.peak, tc.p99, tc.p999)}}
			var out bytes.Buffer
			p := &printer{w: &out}
			r.printTails(p)
			if got := r.judge(p); got != tc.pass || !strings.Contains(out.String(), "of hands") {
				t.Fatalf("pass is %v, want %v:\n%s", got, tc.pass, out.String())
			}
		})
	}
}

// TestSlowestSeconds lets latencies grow twice, in one second and over three, and falls back in between.
func TestSlowestSeconds(t *testing.T) {
	t.Parallel()
	latencies := []int{2, 2, 50, 40, 30, 20, 2, 2, 10, 20, 30, 25, 2, 90} // The last second was not seen to its end.
	r := &load.Result{}
	var seen []sighting
	for i, latency := range latencies {
		h := hdrhistogram.New(1, int64(time.Minute), 3)
		if err := h.RecordValue(int64(latency * int(time.Millisecond))); err != nil {
			t.Fatal(err)
		}
		r.Seconds = append(r.Seconds, h)
		at := sighting{did: Did{WALBytes: float64(i)}, used: usage{server: float64(i)}, busy: float64(2 * i), waiting: float64(3 * i)}
		if i == 9 {
			at.vacuum = "a table"
		}
		seen = append(seen, at)
	}
	slow := slowest(r, seen)
	if len(slow) != 2 {
		t.Fatalf("%d seconds: %+v", len(slow), slow)
	}
	for i, want := range []struct {
		at, from int
		vacuum   string
	}{{2, 1, ""}, {10, 7, "a table"}} {
		s, long := slow[i], float64(want.at-want.from+1)
		if s.At != want.at || s.From != want.from || s.Due != 1 || s.Vacuum != want.vacuum || s.Did.WALBytes != long || s.ServerSeconds != long ||
			s.BusySeconds != 2*long || s.DiskSeconds != 3*long || math.Abs(s.P99MS-float64(latencies[want.at])) > 0.5 {
			t.Errorf("%d: %+v, want %+v", i, s, want)
		}
	}
	if slowest(r, seen[:1]) != nil {
		t.Error("a second that was not seen to its end is told")
	}
}
