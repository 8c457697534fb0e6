package publish

import (
	"testing"
	"time"
)

// TestSlowTargetsLeavePlaces has targets come whose attempts never end, until no place is left. Each claims as a worker does.
func TestSlowTargetsLeavePlaces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		all, limit, atLeast int
		together            bool // or one after the other
	}{
		{DefaultConcurrency, firstSlots, 100, true},
		{DefaultConcurrency, firstSlots, 100, false},
		{DefaultConcurrency, DefaultPerTarget, 20, true},
		{DefaultConcurrency, DefaultPerTarget, 30, false},
		{32, firstSlots, 12, true},
		{2, 1, 2, true},
		{1, 1, 1, true},
	} {
		used, targets := 0, 0
		for used < c.all {
			each := share(c.limit, used, c.all)
			claim := portion(c.all-used, c.all)
			if claim < 1 || claim > c.all-used || each < 1 || each > c.limit {
				t.Fatalf("%+v: a claim of %d, %d each, with %d used", c, claim, each, used)
			}
			if !c.together {
				claim = min(each, claim)
			}
			targets += (claim + each - 1) / each
			used += claim
		}
		if targets < c.atLeast {
			t.Errorf("%+v: %d slow targets have every place", c, targets)
		}
	}
	if alone := share(DefaultPerTarget, 0, DefaultConcurrency); alone != DefaultPerTarget {
		t.Errorf("a target that is alone has %d", alone)
	}
}

func TestNextLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit int
		class Class
		took  time.Duration
		want  int
	}{
		{4, Delivered, slowAnswer, 5},
		{32, Delivered, slowAnswer, 32},
		{4, Delivered, time.Millisecond, 4},
		{9, Delivered, time.Millisecond, 8},
		{4, Delivered, longAnswer, 4},
		{9, Delivered, longAnswer, 8},
		{1, Delivered, time.Hour, 2},
		{9, Transient, time.Second, 4},
		{1, Transient, 0, 1},
	} {
		if got := nextLimit(c.limit, firstSlots, DefaultPerTarget, c.class, c.took); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
