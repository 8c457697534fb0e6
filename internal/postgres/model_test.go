package postgres

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// TestMemoryAgainstModel plays two servers against everything that can make what they remember wrong: each other, SQL that
// others wrote, commits that fail, are cut or stay unknown, answers that come late, and a database that goes back to an
// older state while the servers keep their memory.
//
// What happens is drawn from a seed: each kind of step comes as often as [world.steps] says, in any order. Three judges,
// none of whom knows what a server remembers, look at it:
//
//   - While nothing else is under way, the pure cores say from the committed rows what a command must be told.
//   - From time to time and at the end, the audit recomputes every promise of the design from the rows, each auction is
//     played again from its events, and every answer is compared with its record and its one effect.
//   - The database itself has written down when each transaction began, and whether it came by the fast path.
//
// FAIRLEAD_SEED plays a run again, as far as chance was the test's; FAIRLEAD_TORTURE makes it long.
func TestMemoryAgainstModel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, seeded(t))
	w.open()
	steps := w.steps()
	took := map[string]time.Duration{}
	defer func() {
		for _, complaint := range w.complaints {
			t.Error(complaint)
		}
	}()
	for range torture(1, 60) {
		var deck []string
		for _, name := range slices.Sorted(maps.Keys(steps)) {
			deck = append(deck, slices.Repeat([]string{name}, steps[name].times)...)
		}
		w.rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		for _, name := range deck {
			began := time.Now()
			steps[name].run()
			took[name] += time.Since(began)
			if t.Failed() {
				t.Logf("that was: %s", name)
				w.check()
				return
			}
		}
	}
	w.check()
	t.Logf("%d commands; what left the fast path: %v and %v", len(w.ops), w.servers[0].seen, w.servers[1].seen)
	for _, name := range slices.Sorted(maps.Keys(took)) {
		t.Logf("%s took %v", name, took[name])
	}
}
