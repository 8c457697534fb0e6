//go:build unix

package explore

import (
	"bytes"
	"cmp"
	"runtime"
	"strconv"
	"sync"
)

// goroutines tells goroutines apart that say the same, by the same functions, at one moment. Their numbers are the machine's choice. What is
// the schedule's is which of them was answered last; where none was yet, the same of those that began them; and of two that one goroutine began,
// which it began first.
type goroutines struct {
	mu       sync.Mutex
	stack    []byte // room for one
	marks    uint64
	answered map[uint64]uint64 // when goroutines were answered last, by their numbers
	parents  map[uint64]uint64
}

func newGoroutines() *goroutines {
	const most = 64 << 10
	return &goroutines{stack: make([]byte, most), answered: map[uint64]uint64{}, parents: map[uint64]uint64{}}
}

// here returns the number of the goroutine that calls it.
func (g *goroutines) here() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	stack := g.stack[:runtime.Stack(g.stack, false)]
	own := numberAfter(stack, "goroutine ")
	if i := bytes.LastIndex(stack, []byte("\ncreated by ")); i >= 0 {
		g.parents[own] = numberAfter(stack[i:], " in goroutine ")
	}
	return own
}

func numberAfter(text []byte, word string) uint64 {
	_, rest, _ := bytes.Cut(text, []byte(word))
	end := bytes.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	n, _ := strconv.ParseUint(string(rest[:end]), 10, 64) // The runtime has written it.
	return n
}

// next returns a mark that is later than all before. The scheduler asks for it.
func (g *goroutines) next() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.marks++
	return g.marks
}

// mark notes that a goroutine was answered.
func (g *goroutines) mark(one, when uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answered[one] = when
}

// last says when a goroutine was answered last, or else the nearest of those that it descends from. The mutex is held.
func (g *goroutines) last(one uint64) uint64 {
	for one != 0 {
		if when := g.answered[one]; when > 0 {
			return when
		}
		one = g.parents[one]
	}
	return 0
}

// lastOf is last for a goroutine that asks for it.
func (g *goroutines) lastOf(one uint64) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last(one)
}

// compare puts two goroutines in the schedule's order.
func (g *goroutines) compare(a, b uint64) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return cmp.Compare(g.last(a), g.last(b))
}
