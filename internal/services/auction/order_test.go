package auction

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// TestOrderHandsOnAsDecided has transactions decided, some anew, and ended in any order.
func TestOrderHandsOnAsDecided(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var (
			o       order
			entries = make([]entry, rapid.IntRange(1, 8).Draw(rt, "n"))
			id      = uuid.New()
			decided []int
			handed  []int
			want    []int
			ended   = map[int]bool{}
		)
		for step := range 40 {
			i := rapid.IntRange(0, len(entries)-1).Draw(rt, "which")
			if ended[i] {
				continue
			}
			if rapid.Bool().Draw(rt, "decided") && step < 30 {
				o.decided(id, &entries[i])
				decided = append(slices.DeleteFunc(decided, func(d int) bool { return d == i }), i)
				continue
			}
			ended[i] = true
			if rapid.Bool().Draw(rt, "fails") || !slices.Contains(decided, i) {
				o.ended(id, &entries[i], nil)
				decided = slices.DeleteFunc(decided, func(d int) bool { return d == i })
			} else {
				o.ended(id, &entries[i], func() { handed = append(handed, i) })
			}
			for len(decided) > 0 && ended[decided[0]] {
				want, decided = append(want, decided[0]), decided[1:]
			}
			if !slices.Equal(handed, want) {
				rt.Fatalf("handed on %v, want %v", handed, want)
			}
		}
		if len(decided) == 0 && len(o.lines) != 0 {
			rt.Errorf("%d lines are left behind", len(o.lines))
		}
	})
}

// TestOrderUnderConcurrency has each of two auctions' transactions end in goroutines of their own.
func TestOrderUnderConcurrency(t *testing.T) {
	t.Parallel()
	var o order
	var wait sync.WaitGroup
	const n = 500
	for range 2 {
		id := uuid.New()
		handed := make([]int, 0, n) // unguarded: calls for one auction never overlap
		entries := make([]entry, n)
		var ends sync.WaitGroup
		for i := range entries {
			o.decided(id, &entries[i])
		}
		for _, i := range rand.Perm(n) {
			ends.Go(func() { o.ended(id, &entries[i], func() { handed = append(handed, i) }) })
		}
		wait.Go(func() {
			ends.Wait()
			if len(handed) != n || !slices.IsSorted(handed) {
				t.Errorf("handed on %v", handed)
			}
		})
	}
	wait.Wait()
	if len(o.lines) != 0 {
		t.Errorf("%d lines are left behind", len(o.lines))
	}
}
