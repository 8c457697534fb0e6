//go:build unix

package explore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// What a run of the tests may say.
const (
	// seedVariable names the first seed that is run. Alone it names the only one, which is told step by step.
	seedVariable = "FAIRLEAD_SEED"
	// countVariable is how many schedules of each scenario are run.
	countVariable = "FAIRLEAD_SCHEDULES"
	// shrinkVariable bounds the search for a short trace by a number of runs, shrinkTries unless it is set.
	shrinkVariable = "FAIRLEAD_SHRINK"
	shrinkTries    = 150
	// againVariable is how often a seed that fails is run again, and its history compared.
	againVariable = "FAIRLEAD_AGAIN"
	// longRun is how many schedules of each scenario the long tests run, unless another number is asked for.
	longRun = 10_000
	// longAgain is how many of them are run twice.
	longAgain = 200
)

// scenarios are all there are.
func scenarios() map[string]func() Scenario {
	return map[string]func() Scenario{
		"last position": lastPosition,
		"accounts":      accounts,
		"one key":       oneKey,
		"late bids":     lateBids,
		"handlers":      handlers,
		"claims":        claims,
		"locks":         locks,
		"sagas":         sagas,
		"older state":   olderState,
		"older auction": olderAuction,
		"older log":     olderLog,
		"many auctions": manyAuctions,
		"repeated bids": repeatedBids,
	}
}

// number reads a variable.
func number(tb testing.TB, name string) (n uint64, set bool) {
	tb.Helper()
	text, set := os.LookupEnv(name)
	if !set {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return n, true
}

// TestExplored runs the first schedules of each scenario, or as many as are asked for. Some are run again: a seed is one history.
func TestExplored(t *testing.T) {
	for name, scenario := range scenarios() {
		t.Run(name, func(t *testing.T) {
			x := NewExplorer(t, scenario())
			first, one := number(t, seedVariable)
			count := uint64(testwait.Count(1, longRun))
			if n, set := number(t, countVariable); set {
				count, one = n, false
			} else if one {
				count = 1
			}
			steps, tries := 0, shrinkTries
			if n, set := number(t, shrinkVariable); set {
				tries = int(n)
			}
			began := time.Now()
			for seed := first; seed < first+count; seed++ {
				r := x.Seed(seed)
				steps += len(r.Trace)
				if one {
					t.Logf("%s%s", Tell(r.Trace), r.Seen)
				}
				if seed < first+uint64(testwait.Count(1, longAgain)) && r.Err == nil {
					again, seen := x.Seed(seed), []string{r.History()}
					// A long run finds what makes one history in many thousands another; it is no fault of what a short one tests. There, two equal
					// ones are enough, whichever these are.
					for try := 1; try < testwait.Count(4, 1) && !slices.Contains(seen, again.History()); try++ {
						seen = append(seen, again.History())
						again = x.Seed(seed)
					}
					if !slices.Contains(seen, again.History()) {
						t.Fatalf("seed %d is %s", seed, differing(r, again))
					}
				}
				if r.Err != nil {
					if times, _ := number(t, againVariable); times > 0 {
						failed, same := x.Again(seed, r, int(times))
						t.Logf("of %d times more, seed %d failed %d times, with the same history %d times", times, seed, failed, same)
					}
					short := x.Shrink(seed, r.Trace, tries)
					t.Fatalf("%s=%d: %v\nof %d steps, these are enough:\n%s", seedVariable, seed, r.Err, len(r.Trace), Tell(short))
				}
			}
			t.Logf("%d schedules, %d steps, in %v", count, steps, time.Since(began).Round(time.Second/10))
		})
	}
}

// differing tells where two histories part.
func differing(a, b Result) string {
	n := 0
	for n < min(len(a.Trace), len(b.Trace)) && a.Trace[n] == b.Trace[n] {
		n++
	}
	from := max(0, n-10)
	return fmt.Sprintf("one history\n%s%q\n%v\n\nand another\n%s%q\n%v\nwhich part after step %d", Tell(a.Trace[from:min(n+5, len(a.Trace))]), a.Seen, a.Err,
		Tell(b.Trace[from:min(n+5, len(b.Trace))]), b.Seen, b.Err, n)
}

// TestAnOrderIsFound wants something that holds in most orders and not in all: that the buyer who comes first by default gets a
// position. The explorer has to find an order in which it does not, the seed has to find it again each time, and so has the short
// trace.
func TestAnOrderIsFound(t *testing.T) {
	s := lastPosition()
	s.Kills, s.Stall = false, 0
	errUnlucky := errors.New("ann has none of the last two positions")
	s.Check = func(ctx context.Context, _ *World, db *pgx.Conn) error {
		var n int
		if err := db.QueryRow(ctx, `SELECT count(*) FROM purchases WHERE account = 'ann'`).Scan(&n); err != nil {
			return err
		}
		if n == 2 { // She had two before.
			return errUnlucky
		}
		return nil
	}
	x := NewExplorer(t, s)
	for seed := range uint64(200) {
		r := x.Seed(seed)
		if r.Err == nil {
			continue
		}
		if !errors.Is(r.Err, errUnlucky) {
			t.Fatal(r.Err)
		}
		times := testwait.Count(2, 100)
		if failed, same := x.Again(seed, r, times); failed < times || same < times {
			t.Fatalf("seed %d failed %d times of %d, %d with the same history", seed, failed, times, same)
		}
		short := x.Shrink(seed, r.Trace, 8)
		t.Logf("seed %d, of %d steps these are enough:\n%s", seed, len(r.Trace), Tell(short))
		if again := x.Run(seed, &replayed{short}); !errors.Is(again.Err, errUnlucky) || len(short) >= len(r.Trace) {
			t.Errorf("the short trace of %d decisions: %v", len(short), again.Err)
		}
		return
	}
	t.Error("no such order was found")
}
