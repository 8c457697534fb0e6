//go:build unix

package explore

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// What a run of the tests may say.
const (
	// seedVariable names the one seed that is run, and told step by step.
	seedVariable = "FAIRLEAD_SEED"
	// countVariable is how many schedules of each scenario are run.
	countVariable = "FAIRLEAD_SCHEDULES"
	// shrinkTries bounds the search for a short trace.
	shrinkTries = 150
)

// scenarios are all there are.
func scenarios() map[string]func() Scenario {
	return map[string]func() Scenario{
		"last position": lastPosition,
		"accounts":      accounts,
		"one key":       oneKey,
		"late bids":     lateBids,
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

// TestExplored runs the first schedules of each scenario, or as many as are asked for.
func TestExplored(t *testing.T) {
	for name, scenario := range scenarios() {
		t.Run(name, func(t *testing.T) {
			x := NewExplorer(t, scenario())
			first, one := number(t, seedVariable)
			count := uint64(testwait.Count(2, 10_000))
			if n, set := number(t, countVariable); set {
				count = n
			}
			if one {
				count = 1
			}
			steps := 0
			for seed := first; seed < first+count; seed++ {
				r := x.Seed(seed)
				steps += len(r.Trace)
				if one {
					t.Logf("%s%s", Tell(r.Trace), r.Seen)
				}
				if r.Err != nil {
					short := x.Shrink(seed, r.Trace, shrinkTries)
					t.Fatalf("%s=%d: %v\nof %d steps, these are enough:\n%s", seedVariable, seed, r.Err, len(r.Trace), Tell(short))
				}
			}
			t.Logf("%d schedules, %d steps", count, steps)
		})
	}
}

// TestASeedIsOneHistory runs seeds again.
func TestASeedIsOneHistory(t *testing.T) {
	x := NewExplorer(t, lastPosition())
	for seed := range uint64(testwait.Count(1, 100)) {
		first := x.Seed(seed)
		for range testwait.Count(1, 10) {
			if again := x.Seed(seed); !again.Same(first) {
				t.Fatalf("seed %d:\n%s%s\n\nthen:\n%s%s", seed, Tell(first.Trace), first.Seen, Tell(again.Trace), again.Seen)
			}
		}
	}
}

// TestAnOrderIsFound wants something that holds in most orders and not in all: that the buyer who comes first by default gets a
// position. The explorer has to find an order in which it does not, the seed has to find it again each time, and so has the short
// trace.
func TestAnOrderIsFound(t *testing.T) {
	s := lastPosition()
	s.Kills = false
	errUnlucky := errors.New("ann has one position alone")
	s.Check = func(ctx context.Context, _ *World, db *pgx.Conn) error {
		var n int
		if err := db.QueryRow(ctx, `SELECT count(*) FROM purchases WHERE account = 'ann'`).Scan(&n); err != nil {
			return err
		}
		if n == 1 {
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
		for again := range testwait.Count(2, 100) {
			if !x.Seed(seed).Same(r) {
				t.Fatalf("seed %d, run %d, is another history", seed, again)
			}
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
