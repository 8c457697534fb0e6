//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestJudgeTBPerf checks that the better PostgreSQL side of each pair counts, each threshold from both sides, and that a deadlock of
// Fairlead's fails.
func TestJudgeTBPerf(t *testing.T) {
	t.Parallel()
	turn := func(side string, rate float64) TBPerfTurn {
		return TBPerfTurn{TransferTurn: TransferTurn{Side: side, PerSecond: rate, Answers: 1}}
	}
	for _, tc := range []struct {
		name            string
		singly, batches float64
		ours, theirs    int64
		pass            bool
	}{
		{"both", 1600, 5000, 0, 0, true},
		{"singly below", 1599, 5000, 0, 0, false},
		{"batches below", 1600, 4999, 0, 0, false},
		{"a deadlock of ours", 1600, 5000, 1, 0, false},
		{"a deadlock of a peer's", 1600, 5000, 0, 1, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := &Results{Options: map[string]any{"tbperf_pairs": 2, "tbperf_accounts": 10}, TBPerf: TBPerf{Turns: []TBPerfTurn{
				turn(tbperfSinglyName, tc.singly), turn(tbperfBatchesName, tc.batches), turn(tbperfForUpdate, 200), turn(tbperfAtomic, 100),
				turn(tbperfAtomic, 400), turn(tbperfForUpdate, 100), turn(tbperfBatchesName, 2*tc.batches), turn(tbperfSinglyName, 2*tc.singly),
			}, Deadlocks: map[string]int64{tbperfSinglyName: tc.ours, tbperfAtomic: tc.theirs}}}
			var out bytes.Buffer
			p := &printer{w: &out}
			r.printTBPerf(p)
			if got := r.judge(p); got != tc.pass {
				t.Fatalf("pass is %v, want %v:\n%s", got, tc.pass, out.String())
			}
			if failed := strings.Contains(out.String(), "FAIL"); failed == tc.pass {
				t.Fatalf("the printed verdict contradicts the returned one:\n%s", out.String())
			}
		})
	}
}
