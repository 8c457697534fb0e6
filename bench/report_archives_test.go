//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestJudgeArchives checks the threshold from both sides.
func TestJudgeArchives(t *testing.T) {
	t.Parallel()
	for beside, pass := range map[float64]bool{9000: true, 8999: false} {
		r := &Results{
			Options:  map[string]any{"archive_rest": 9, "archive_pairs": 1},
			Archives: []ArchiveTurn{{Transfers: 5, Seconds: 7, Alone: TransferTurn{PerSecond: 10_000}, Beside: TransferTurn{PerSecond: beside}}},
		}
		var out bytes.Buffer
		p := &printer{w: &out}
		r.printArchives(p)
		if got := r.judge(p); got != pass || strings.Contains(out.String(), "%!") {
			t.Errorf("%v beside an archive: pass is %v:\n%s", beside, got, out.String())
		}
	}
}
