package main

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tally"
)

// TestTableKeepsEarlierRows writes the table of one commit into that of another.
func TestTableKeepsEarlierRows(t *testing.T) {
	t.Parallel()
	line := func(table, row string) string {
		for l := range strings.Lines(table) {
			if strings.HasPrefix(l, "| `"+row+"` ") {
				return strings.TrimSpace(l)
			}
		}
		return ""
	}
	first := rowsOf(map[string]tally.Count{
		tally.NetworkCut:     {Tries: 500, Acknowledged: 7, Worst: 1500 * time.Millisecond},
		tally.NetworkSlow:    {Tries: 3, Acknowledged: 8, Lost: 1},
		tally.DatabaseKilled: {Failed: 1},
	}, "day one, `aaa`", nil)
	second := rowsOf(map[string]tally.Count{tally.NetworkSlow: {Tries: 4, Acknowledged: 9}}, "day two, `bbb`", earlier(first))
	for row, want := range map[string]string{
		tally.NetworkCut:     "| `network-cut` | clients can't reach one server, or any | 500 | 7 | 0 | 0 | 1.5s | day one, `aaa` |",
		tally.NetworkSlow:    "| `network-slow` | what clients say arrives late at one server, or at all | 4 of 500 | 9 | 0 | 0 | 0s | day two, `bbb` |",
		tally.DatabaseKilled: "| `database-killed` | PostgreSQL is killed, with or without all its processes | 0 of 500, 1 runs failed | 0 | 0 | 0 | 0s | day one, `aaa` |",
		tally.RedisKilled:    "| `redis-killed` | Redis is killed, and comes back without its data | 0 of 300 |  |  |  |  |  |",
	} {
		if got := line(second, row); got != want {
			t.Errorf("%s:\n%s, want\n%s", row, got, want)
		}
	}
	if again := rowsOf(nil, "day three, `ccc`", earlier(second)); again != second {
		t.Errorf("a run of nothing changes the table to\n%s", again)
	}
}
