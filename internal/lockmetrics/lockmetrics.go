// Package lockmetrics is what the metrics of locks have in common, whoever collects them.
package lockmetrics

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Most is how many classes a table keeps apart: names that programs choose. A program that makes a class of each key, by mistake, must not fill the memory of
// whoever collects its metrics.
const Most = 100

// Other is the class of those beyond [Most].
const Other = "other"

// Seconds are the buckets of waits and holds, from a millisecond to an hour. There is a bound at 30 s, which an alert is about.
func Seconds() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 45, 60, 300, 1800, 3600}
}

// Table has a value for each class of locks. Reading it costs no lock and no allocation. It is safe for concurrent use.
type Table[T any] struct {
	value func(class string) T

	mu   sync.Mutex
	made atomic.Pointer[map[string]T] // never changed, but replaced
}

// New returns a table which asks value for the value of each class, once, with those of some classes.
func New[T any](value func(class string) T, classes ...string) *Table[T] {
	t := &Table[T]{value: value}
	t.made.Store(&map[string]T{})
	for _, class := range classes {
		t.Of(class)
	}
	return t
}

// Of returns the value of a class, and that of [Other] where there are too many.
func (t *Table[T]) Of(class string) T {
	if v, ok := (*t.made.Load())[class]; ok {
		return v
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	made := *t.made.Load()
	if _, ok := made[class]; !ok && len(made) >= Most {
		class = Other
	}
	if v, ok := made[class]; ok {
		return v
	}
	next := maps.Clone(made)
	next[class] = t.value(class)
	t.made.Store(&next)
	return next[class]
}
