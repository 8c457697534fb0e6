package lock_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/lock"
)

func waiter(ticket int64, owner string, keys ...string) lock.Waiter {
	return lock.Waiter{ID: fmt.Sprint(owner, ticket), Owner: owner, Keys: keys, Ticket: ticket}
}

func TestGraph(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		holders   map[string]string
		waiters   []lock.Waiter
		edges     []lock.Edge
		grantable []string
		deadlocks []lock.Deadlock
	}{
		"nothing": {},
		"free keys go to the first in line": {
			waiters:   []lock.Waiter{waiter(2, "B", "x"), waiter(1, "A", "x"), waiter(3, "C", "y")},
			edges:     []lock.Edge{{"B", "A", "x"}},
			grantable: []string{"A1", "C3"},
		},
		"a request for two keys holds back those behind it": {
			holders:   map[string]string{"x": "H"},
			waiters:   []lock.Waiter{waiter(1, "A", "x", "y"), waiter(2, "B", "y"), waiter(3, "C", "z")},
			edges:     []lock.Edge{{"A", "H", "x"}, {"B", "A", "y"}},
			grantable: []string{"C3"},
		},
		"whom everybody waits for overtakes": {
			holders:   map[string]string{"x": "A"},
			waiters:   []lock.Waiter{waiter(1, "W", "x", "y"), waiter(2, "A", "y")},
			edges:     []lock.Edge{{"W", "A", "x"}},
			grantable: []string{"A2"},
		},
		"through others, too": {
			holders:   map[string]string{"x": "A", "z": "B"},
			waiters:   []lock.Waiter{waiter(1, "W", "z", "y"), waiter(2, "B", "x"), waiter(3, "A", "y")},
			edges:     []lock.Edge{{"W", "B", "z"}, {"B", "A", "x"}},
			grantable: []string{"A3"},
		},
		"who asks again for its own is no deadlock": {
			holders: map[string]string{"x": "A"},
			waiters: []lock.Waiter{waiter(1, "A", "x"), waiter(2, "A", "x")},
		},
		"a ring": {
			holders:   map[string]string{"x": "A", "y": "B", "z": "C"},
			waiters:   []lock.Waiter{waiter(1, "A", "y"), waiter(3, "B", "z"), waiter(2, "C", "x")},
			edges:     []lock.Edge{{"A", "B", "y"}, {"C", "A", "x"}, {"B", "C", "z"}},
			deadlocks: []lock.Deadlock{{"B3", []string{"B", "C", "A"}, []string{"z", "x", "y"}}},
		},
		"two rings, and one who waits for both": {
			holders: map[string]string{"a": "A", "b": "B", "c": "C", "d": "D"},
			waiters: []lock.Waiter{waiter(1, "A", "b"), waiter(2, "B", "a"), waiter(3, "C", "d"), waiter(4, "D", "c"), waiter(5, "E", "a", "c")},
			edges: []lock.Edge{
				{"A", "B", "b"}, {"B", "A", "a"}, {"C", "D", "d"}, {"D", "C", "c"}, {"E", "A", "a"}, {"E", "C", "c"}, {"E", "B", "a"}, {"E", "D", "c"},
			},
			deadlocks: []lock.Deadlock{{"D4", []string{"D", "C"}, []string{"c", "d"}}, {"B2", []string{"B", "A"}, []string{"a", "b"}}},
		},
		"two cycles that the youngest closes": {
			holders:   map[string]string{"a": "A", "b": "B", "c": "C"},
			waiters:   []lock.Waiter{waiter(1, "B", "a"), waiter(2, "C", "a"), waiter(3, "A", "b", "c")},
			edges:     []lock.Edge{{"B", "A", "a"}, {"C", "A", "a"}, {"A", "B", "b"}, {"A", "C", "c"}},
			deadlocks: []lock.Deadlock{{"A3", []string{"A", "B"}, []string{"b", "a"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := lock.NewGraph(c.holders, c.waiters)
			if got := g.Edges(); !reflect.DeepEqual(got, c.edges) && len(got)+len(c.edges) > 0 {
				t.Errorf("edges %v, want %v", got, c.edges)
			}
			var ids []string
			for _, w := range g.Grantable() {
				ids = append(ids, w.ID)
			}
			if !slices.Equal(ids, c.grantable) {
				t.Errorf("grantable %v, want %v", ids, c.grantable)
			}
			if got := g.Deadlocks(); !reflect.DeepEqual(got, c.deadlocks) {
				t.Errorf("deadlocks %v, want %v", got, c.deadlocks)
			}
		})
	}
}

// world is a state of locks in which each owner waits for one request at most.
type world struct {
	holders map[string]string
	waiters []lock.Waiter
}

func draw(t *rapid.T) world {
	w := world{holders: map[string]string{}}
	owners := rapid.IntRange(1, 7).Draw(t, "owners")
	keys := rapid.IntRange(1, 8).Draw(t, "keys")
	for k := range keys {
		if o := rapid.IntRange(-2, owners-1).Draw(t, "holder"); o >= 0 {
			w.holders[fmt.Sprint("k", k)] = fmt.Sprint("o", o)
		}
	}
	for i, o := range rapid.Permutation([]int{0, 1, 2, 3, 4, 5, 6}[:owners]).Draw(t, "order") {
		var wants []string
		for k := range keys {
			key := fmt.Sprint("k", k)
			if w.holders[key] != fmt.Sprint("o", o) && rapid.IntRange(0, 3).Draw(t, "wants") == 0 {
				wants = append(wants, key)
			}
		}
		if len(wants) > 0 {
			w.waiters = append(w.waiters, waiter(int64(i), fmt.Sprint("o", o), wants...))
		}
	}
	return w
}

// cyclic reports whether owners wait for each other's keys, by removing those who wait for nobody until nothing changes.
func (w world) cyclic() bool {
	left := slices.Clone(w.waiters)
	for {
		n := len(left)
		left = slices.DeleteFunc(left, func(x lock.Waiter) bool {
			return !slices.ContainsFunc(x.Keys, func(k string) bool {
				holder, held := w.holders[k]
				return held && holder != x.Owner && slices.ContainsFunc(left, func(y lock.Waiter) bool { return y.Owner == holder })
			})
		})
		if len(left) == n {
			return n > 0
		}
	}
}

func (w *world) remove(id string) {
	w.waiters = slices.DeleteFunc(slices.Clone(w.waiters), func(x lock.Waiter) bool { return x.ID == id })
}

// waitsFor returns the waiter by which one owner waits for what another holds.
func (w world) waitsFor(from, to string) (lock.Waiter, bool) {
	i := slices.IndexFunc(w.waiters, func(x lock.Waiter) bool {
		return x.Owner == from && slices.ContainsFunc(x.Keys, func(k string) bool { return w.holders[k] == to })
	})
	if i < 0 {
		return lock.Waiter{}, false
	}
	return w.waiters[i], true
}

// TestDeadlocksAreRealAndAllFound compares with an independent search for cycles.
func TestDeadlocksAreRealAndAllFound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := draw(t)
		victims := lock.NewGraph(w.holders, w.waiters).Deadlocks()
		for _, d := range victims {
			if !w.cyclic() {
				t.Fatalf("victim %v without a cycle", d)
			}
			for i, from := range d.Cycle {
				x, ok := w.waitsFor(from, d.Cycle[(i+1)%len(d.Cycle)])
				switch {
				case !ok:
					t.Fatalf("%v: %s does not wait for the next", d, from)
				case i == 0 && x.ID != d.Victim:
					t.Fatalf("%v: the victim is not the first of the cycle", d)
				case w.holders[d.Keys[i]] != d.Cycle[(i+1)%len(d.Cycle)] || !slices.Contains(x.Keys, d.Keys[i]):
					t.Fatalf("%v: %s does not wait for key %s", d, from, d.Keys[i])
				}
			}
			if sorted := slices.Compact(slices.Sorted(slices.Values(d.Cycle))); len(sorted) != len(d.Cycle) {
				t.Fatalf("%v names an owner twice", d)
			}
			w.remove(d.Victim)
		}
		if w.cyclic() {
			t.Fatalf("a cycle is left after %v", victims)
		}
	})
}

// TestEverybodyIsServed plays on from a state: an owner that is granted its keys lets go of all it has, once it waits for
// nothing. As long as there is no deadlock, somebody can always go on, so that the order of asking makes none.
func TestEverybodyIsServed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := draw(t)
		for step := 0; len(w.waiters) > 0; step++ {
			if step > 100 {
				t.Fatalf("no end: %+v", w)
			}
			g := lock.NewGraph(w.holders, w.waiters)
			granted := g.Grantable()
			for _, x := range granted {
				for _, k := range x.Keys {
					if owner, held := w.holders[k]; held {
						t.Fatalf("%s was granted %s, which %s has", x.ID, k, owner)
					}
					w.holders[k] = x.Owner
				}
				w.remove(x.ID)
			}
			freed := false
			for k, owner := range w.holders {
				if !slices.ContainsFunc(w.waiters, func(x lock.Waiter) bool { return x.Owner == owner }) {
					delete(w.holders, k)
					freed = true
				}
			}
			if len(granted) > 0 || freed {
				continue
			}
			d := g.Deadlocks()
			if len(d) == 0 {
				t.Fatalf("nobody can go on, and there is no deadlock: %+v, edges %v", w, g.Edges())
			}
			w.remove(d[0].Victim)
		}
	})
}

func FuzzCleanKeys(f *testing.F) {
	f.Add("a", "b")
	f.Add("", "\x00")
	f.Add("\xff", "ä")
	f.Fuzz(func(t *testing.T, a, b string) {
		keys, err := lock.CleanKeys([]string{b, a, b})
		if (err == nil) != (lock.ValidName(a) && lock.ValidName(b)) {
			t.Fatalf("%q, %q: %v", a, b, err)
		}
		if err == nil && (!slices.IsSorted(keys) || !slices.Contains(keys, a) || !slices.Contains(keys, b) || len(keys) > 2) {
			t.Fatalf("%q", keys)
		}
	})
}

// A time that is over is no wait without end, unless it is said to be.
func TestNegativeWait(t *testing.T) {
	t.Parallel()
	for given, want := range map[time.Duration]time.Duration{lock.Forever: lock.Forever, -2: 0, -time.Hour: 0, 0: 0, time.Second: time.Second} {
		r, err := lock.Request{ID: "x", Keys: []string{"k"}, Owner: "o", TTL: time.Second, Wait: given}.Clean()
		if err != nil || r.Wait != want {
			t.Errorf("%v: %v, %v; want %v", given, r.Wait, err, want)
		}
	}
}
