package lock

import (
	"cmp"
	"slices"
)

// Waiter is a request that waits, as the graph sees it.
type Waiter struct {
	ID    string
	Owner string
	Keys  []string
	// Ticket is the request's place in the order of asking: smaller is older. No two are equal.
	Ticket int64
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
	next    map[string]map[string]int
}

// link is an edge of one waiter.
type link struct {
	Edge

	waiter int
}

// NewGraph builds the graph of who holds which key, and who waits. Keys held by nobody are absent from holders.
func NewGraph(holders map[string]string, waiters []Waiter) *Graph {
	g := &Graph{holders: holders, waiters: slices.Clone(waiters), next: map[string]map[string]int{}}
	slices.SortFunc(g.waiters, func(a, b Waiter) int { return cmp.Compare(a.Ticket, b.Ticket) })
	g.blocked = make([]bool, len(g.waiters))
	for i, w := range g.waiters {
		for _, k := range w.Keys {
			// An owner may ask twice for one key, from two places of one program: that is waiting, and no deadlock.
			if to, ok := holders[k]; ok && to != w.Owner {
				g.held = append(g.held, link{Edge{From: w.Owner, To: to, Key: k}, i})
				g.connect(w.Owner, to, 1)
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
				if waitedFor[w.Owner] && g.reaches(earlier, w.Owner) {
					continue
				}
				g.blocked[i] = true
				g.queued = append(g.queued, link{Edge{From: w.Owner, To: earlier, Key: k}, i})
				g.connect(w.Owner, earlier, 1)
				waitedFor[earlier] = true
			}
			behind[k] = append(line, i)
		}
	}
}

func (g *Graph) connect(from, to string, n int) {
	if g.next[from] == nil {
		g.next[from] = map[string]int{}
	}
	g.next[from][to] += n
}

// reaches reports whether one owner waits for another, directly or through others.
func (g *Graph) reaches(from, to string) bool {
	seen := map[string]bool{from: true}
	stack := []string{from}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for n := range g.next[at] {
			if n == to {
				return true
			}
			if !seen[n] {
				seen[n] = true
				stack = append(stack, n)
			}
		}
	}
	return false
}

// Edges lists who waits for whom, oldest request first, each pair of owners once a key.
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

// youngest finds the youngest request that is part of a cycle, and a shortest cycle that it is part of.
func youngest(waiters []Waiter, links []link) (Deadlock, int, bool) {
	next := map[string][]string{}
	for _, l := range links {
		next[l.From] = append(next[l.From], l.To)
	}
	component := components(next)
	best := -1
	var edge Edge
	for i, l := range links {
		// Both ends in one component is a cycle through this edge: there are no edges from an owner to itself.
		if component[l.From] == component[l.To] && (best < 0 || l.waiter > links[best].waiter) {
			best, edge = i, links[i].Edge
		}
	}
	if best < 0 {
		return Deadlock{}, 0, false
	}
	w := links[best].waiter
	return Deadlock{Victim: waiters[w].ID, Cycle: append([]string{edge.From}, path(next, edge.To, edge.From)...)}, w, true
}

// path is a shortest way from one owner to another, the last left out.
func path(next map[string][]string, from, to string) []string {
	before := map[string]string{}
	line := []string{from}
	seen := map[string]bool{from: true}
	for len(line) > 0 && !seen[to] {
		at := line[0]
		line = line[1:]
		for _, n := range next[at] {
			if !seen[n] {
				seen[n] = true
				before[n] = at
				line = append(line, n)
			}
		}
	}
	var back []string
	for at := before[to]; ; at = before[at] {
		back = append(back, at)
		if at == from {
			break
		}
	}
	slices.Reverse(back)
	return back
}

// components numbers the strongly connected components, by Tarjan's algorithm (R. Tarjan, Depth-first search and linear
// graph algorithms, 1972), without recursion, because a line of waiters may be long.
func components(next map[string][]string) map[string]int {
	t := tarjan{next: next, index: map[string]int{}, low: map[string]int{}, component: map[string]int{}}
	for _, root := range slices.Sorted(func(yield func(string) bool) {
		for k := range next {
			if !yield(k) {
				return
			}
		}
	}) {
		if _, seen := t.index[root]; !seen {
			t.search(root)
		}
	}
	return t.component
}

type tarjan struct {
	next       map[string][]string
	index, low map[string]int
	component  map[string]int // set once a component is complete
	stack      []string
	complete   int
}

// frame is a visit under way: a node, and how many of its edges have been followed.
type frame struct {
	node string
	edge int
}

func (t *tarjan) enter(node string) frame {
	t.index[node], t.low[node] = len(t.index), len(t.index)
	t.stack = append(t.stack, node)
	return frame{node: node}
}

func (t *tarjan) search(root string) {
	visits := []frame{t.enter(root)}
	for len(visits) > 0 {
		v := &visits[len(visits)-1]
		if v.edge < len(t.next[v.node]) {
			to := t.next[v.node][v.edge]
			v.edge++
			if _, seen := t.index[to]; !seen {
				visits = append(visits, t.enter(to))
			} else if _, done := t.component[to]; !done {
				t.low[v.node] = min(t.low[v.node], t.index[to])
			}
			continue
		}
		node := v.node
		visits = visits[:len(visits)-1]
		if len(visits) > 0 {
			parent := visits[len(visits)-1].node
			t.low[parent] = min(t.low[parent], t.low[node])
		}
		if t.low[node] == t.index[node] {
			t.finish(node)
		}
	}
}

// finish takes a component off the stack.
func (t *tarjan) finish(root string) {
	for {
		node := t.stack[len(t.stack)-1]
		t.stack = t.stack[:len(t.stack)-1]
		t.component[node] = t.complete
		if node == root {
			t.complete++
			return
		}
	}
}
