package lock

import (
	"cmp"
	"slices"
	"time"
)

// Waiter is a request that waits, as the graph sees it.
type Waiter struct {
	ID    string
	Owner string
	Keys  []string
	// Ticket is the request's place in the order of asking: smaller is older. No two are equal.
	Ticket int64
	Since  time.Time // when it began to wait, for people: the graph does not look at it
}

// Edge says that owner From waits for owner To because of Key, which To holds, or which To asked for before.
type Edge struct {
	From, To, Key string
}

// Deadlock is a cycle of owners and the request to be refused for it.
type Deadlock struct {
	// Victim is the ID of the youngest request among those that make the cycle.
	Victim string
	// Cycle names the owners, each once: each waits for the next, the last for the first, and the first is the victim's.
	Cycle []string
	// Keys are what they wait for: Keys[i] is held by the owner after Cycle[i].
	Keys []string
}

// maxBehind bounds how many earlier requests for one key a request is compared with. Those before them are reached
// through them.
const maxBehind = 64

// Graph is who waits for whom, at one instant. It is pure and not safe for concurrent use.
//
// A request waits for the holders of its keys, and for the earlier requests that want one of its keys too. An earlier
// request whose owner waits for this request's own owner, directly or through others, is not waited for but overtaken:
// therefore every cycle is made of keys that are held, and none of the order of asking.
type Graph struct {
	holders map[string]string // key to owner
	waiters []Waiter          // by ticket
	blocked []bool            // by the order of asking, index as in waiters
	held    []link            // from a waiter to the holder of one of its keys
	queued  []link            // from a waiter to an earlier one's owner
	next    graph             // of all of these
}

// graph is which owners each owner waits for.
type graph map[string][]string

// link is an edge of one waiter.
type link struct {
	Edge

	waiter int
}

// NewGraph builds the graph of who holds which key, and who waits. Keys held by nobody are absent from holders.
func NewGraph(holders map[string]string, waiters []Waiter) *Graph {
	g := &Graph{holders: holders, waiters: slices.Clone(waiters), next: graph{}}
	slices.SortFunc(g.waiters, func(a, b Waiter) int { return cmp.Compare(a.Ticket, b.Ticket) })
	g.blocked = make([]bool, len(g.waiters))
	for i, w := range g.waiters {
		for _, k := range w.Keys {
			// An owner may ask twice for one key, from two places of one program: that is waiting, and no deadlock.
			if to, ok := holders[k]; ok && to != w.Owner {
				g.held = append(g.held, link{Edge{From: w.Owner, To: to, Key: k}, i})
				g.next[w.Owner] = append(g.next[w.Owner], to)
			}
		}
	}
	g.enqueue()
	return g
}

// enqueue adds the waiting for earlier requests, oldest request first.
func (g *Graph) enqueue() {
	behind := map[string][]int{} // key to the waiters seen so far
	waitedFor := map[string]bool{}
	for _, l := range g.held {
		waitedFor[l.To] = true
	}
	for i, w := range g.waiters {
		for _, k := range w.Keys {
			line := behind[k]
			for n := len(line) - 1; n >= max(0, len(line)-maxBehind); n-- {
				earlier := g.waiters[line[n]].Owner
				if earlier == w.Owner {
					g.blocked[i] = true
					continue
				}
				if waitedFor[w.Owner] && g.next.path(earlier, w.Owner) != nil {
					continue
				}
				g.blocked[i] = true
				g.queued = append(g.queued, link{Edge{From: w.Owner, To: earlier, Key: k}, i})
				g.next[w.Owner] = append(g.next[w.Owner], earlier)
				waitedFor[earlier] = true
			}
			behind[k] = append(line, i)
		}
	}
}

// Edges lists who waits for whom, oldest request first, each pair of owners once a key. A request waits for who holds a key, and for those
// before it in the line, of which the nearest maxBehind are listed.
func (g *Graph) Edges() []Edge {
	links := slices.Concat(g.held, g.queued)
	slices.SortStableFunc(links, func(a, b link) int { return cmp.Compare(a.waiter, b.waiter) })
	seen := make(map[Edge]bool, len(links))
	out := make([]Edge, 0, len(links))
	for _, l := range links {
		if !seen[l.Edge] {
			seen[l.Edge] = true
			out = append(out, l.Edge)
		}
	}
	return out
}

// Grantable lists the requests that are to be granted now, oldest first: all their keys are free, and nobody is before
// them. What one of them takes is no longer free for those after it.
func (g *Graph) Grantable() []Waiter {
	var out []Waiter
	taken := map[string]bool{}
	for i, w := range g.waiters {
		if g.blocked[i] || slices.ContainsFunc(w.Keys, func(k string) bool { _, held := g.holders[k]; return held || taken[k] }) {
			continue
		}
		for _, k := range w.Keys {
			taken[k] = true
		}
		out = append(out, w)
	}
	return out
}

// Deadlocks finds victims enough to break every cycle. Each cycle is that of the requests that are left when the victims
// before it are gone.
func (g *Graph) Deadlocks() []Deadlock {
	var out []Deadlock
	links := slices.Clone(g.held)
	for {
		d, victim, ok := youngest(g.waiters, links)
		if !ok {
			return out
		}
		out = append(out, d)
		links = slices.DeleteFunc(links, func(l link) bool { return l.waiter == victim })
	}
}

// youngest finds the youngest request that is part of a cycle, and a shortest cycle that it is part of. links are by waiter.
func youngest(waiters []Waiter, links []link) (d Deadlock, victim int, ok bool) {
	next := cyclic(links)
	for _, l := range slices.Backward(links) {
		if ok && l.waiter != victim {
			break
		}
		// Of several cycles of one request, that of its first link is named.
		if cycle := next.path(l.To, l.From); cycle != nil {
			d, victim, ok = Deadlock{Victim: waiters[l.waiter].ID, Cycle: append([]string{l.From}, cycle...)}, l.waiter, true
		}
	}
	d.Keys = keys(links, d.Cycle)
	return d, victim, ok
}

// keys are those for which each owner of a cycle waits for the next, by the youngest of its requests that do.
func keys(links []link, cycle []string) []string {
	out := make([]string, len(cycle))
	for _, l := range links {
		if i := slices.Index(cycle, l.From); i >= 0 && cycle[(i+1)%len(cycle)] == l.To {
			out[i] = l.Key
		}
	}
	return out
}

// cyclic is the graph of some links without the owners that are in no cycle for sure: those who wait for nobody, and those
// who wait for such owners alone. Mostly nothing is left of it.
func cyclic(links []link) graph {
	next, waits, behind, free := graph{}, map[string]int{}, graph{}, []string{}
	for _, l := range links {
		waits[l.From]++
		behind[l.To] = append(behind[l.To], l.From)
	}
	for owner := range behind {
		if waits[owner] == 0 {
			free = append(free, owner)
		}
	}
	for n := 0; n < len(free); n++ {
		for _, owner := range behind[free[n]] {
			if waits[owner]--; waits[owner] == 0 {
				free = append(free, owner)
			}
		}
	}
	for _, l := range links {
		if waits[l.From] > 0 && waits[l.To] > 0 {
			next[l.From] = append(next[l.From], l.To)
		}
	}
	return next
}

// path is a shortest way from one owner to another, the last left out; nil where there is none.
func (next graph) path(from, to string) (way []string) {
	before := map[string]string{}
	line := []string{from}
	for n := 0; n < len(line); n++ {
		for _, owner := range next[line[n]] {
			if _, seen := before[owner]; !seen {
				before[owner] = line[n]
				line = append(line, owner)
			}
		}
		if at, ok := before[to]; ok {
			for ; at != from; at = before[at] {
				way = append(way, at)
			}
			way = append(way, from)
			slices.Reverse(way)
			return way
		}
	}
	return nil
}
