//go:build unix

package explore

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
)

// messages are options of so many threads, one each.
func messages(n int) (all []Option) {
	for i := range n {
		all = append(all, Option{Label: fmt.Sprintf("t%d commit", i), Thread: fmt.Sprintf("t%d", i), Since: n - i, Faults: []Mode{Hold, Lose, Late, Drop}})
	}
	return append(all, Option{Label: "kill s1", Thread: faultThread}, Option{Label: "time 0020ms", Thread: timeThread}, Option{Label: "time 3000ms", Thread: timeThread})
}

func TestInOrder(t *testing.T) {
	options := messages(3)
	if i, mode := (inOrder{}).Choose(1, options); options[i].Label != "t2 commit" || mode != Go {
		t.Errorf("the oldest is let through first, not %s, %s", options[i].Label, mode)
	}
	if i, _ := (inOrder{}).Choose(1, options[3:]); options[3:][i].Label != "time 3000ms" {
		t.Errorf("where nothing is pending, time passes, and not %s", options[3:][i].Label)
	}
}

// TestSeedsDiffer draws schedules from many seeds. Each is drawn twice and is the same; together they have each first message, each
// fault, kills and early time.
func TestSeedsDiffer(t *testing.T) {
	const length = 40
	draw := func(seed uint64) (all []Decision) {
		s := newSeeded(seed, length)
		options := messages(3)
		for step := range length {
			i, mode := s.Choose(step+1, options)
			all = append(all, Decision{options[i].Label, mode})
		}
		return all
	}
	seen := map[string]int{}
	for seed := range uint64(400) {
		all := draw(seed)
		if !slices.Equal(all, draw(seed)) {
			t.Fatalf("seed %d draws two schedules", seed)
		}
		seen["first "+all[0].Label]++
		faults := 0
		for _, d := range all {
			seen[string(d.Mode)]++
			seen[d.Label]++
			if d.Mode != Go && d.Mode != Hold || d.Label == "kill s1" {
				faults++
			}
		}
		seen[strconv.Itoa(faults)+" faults"]++
		if faults > 3 {
			t.Errorf("seed %d has %d faults", seed, faults)
		}
	}
	for _, what := range []string{
		"first t0 commit", "first t1 commit", "first t2 commit", string(Hold), string(Lose), string(Late), string(Drop), "kill s1", "time 0020ms", "0 faults", "3 faults",
	} {
		if seen[what] == 0 {
			t.Errorf("no seed of 400 has: %s", what)
		}
	}
}

// TestPriorities wants a seed of priorities to let one thread go on alone, until a change.
func TestPriorities(t *testing.T) {
	s := newSeeded(0, 1000)
	for seed := uint64(1); !s.priorities || s.changes[2] || s.faults > 0 || s.passing > 0; seed++ {
		s = newSeeded(seed, 1000)
	}
	options := messages(5)
	first, _ := s.Choose(1, options)
	second, _ := s.Choose(2, options)
	s.changes[3] = true
	third, _ := s.Choose(3, options)
	fourth, _ := s.Choose(4, options)
	if first != second || third == second || fourth != third {
		t.Errorf("chosen: %d, %d, after the change %d, %d", first, second, third, fourth)
	}
}

func TestReplayed(t *testing.T) {
	options := messages(3)
	r := &replayed{[]Decision{{"t1 commit", Lose}, {"no longer there", Go}, {"t0 commit", Go}}}
	for step, want := range []Decision{{"t1 commit", Lose}, {"t0 commit", Go}, {"t2 commit", Go}} {
		if i, mode := r.Choose(step+1, options); options[i].Label != want.Label || mode != want.Mode {
			t.Errorf("step %d: %s %s, want %v", step, options[i].Label, mode, want)
		}
	}
}

// TestShrink looks for three decisions of a hundred.
func TestShrink(t *testing.T) {
	var all, needed []Decision
	for i := range 100 {
		all = append(all, Decision{Label: strconv.Itoa(i)})
	}
	for _, i := range []int{7, 48, 71} {
		needed = append(needed, all[i])
	}
	runs := 0
	fails := func(some []Decision) bool {
		runs++
		for _, d := range needed {
			if !slices.Contains(some, d) {
				return false
			}
		}
		return true
	}
	if short := shrink(all, 1000, fails); !slices.Equal(short, needed) {
		t.Errorf("%v", short)
	}
	runs = 0
	if short := shrink(all, 5, fails); runs != 5 || !fails(short) || len(short) == len(all) {
		t.Errorf("%d decisions after %d runs", len(short), runs)
	}
}
