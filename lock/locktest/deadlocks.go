package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// rings: each of n owners holds a key and asks for the next one's, spread over four processes.
func (s *suite) rings() {
	lockers := []*lock.Locker{s.locker(), s.locker(), s.locker(), s.locker()}
	testpromise.CheckEach(s.TB, []string{"deadlock"}, func(seen func(string, time.Duration)) {
		for round := range testwait.Count(1, 72) {
			for n := 2; n <= 8; n++ {
				seen("deadlock", s.ring(lockers, n, round))
			}
		}
	})
}

// ring returns how long after the last request the cycle was broken.
func (s *suite) ring(lockers []*lock.Locker, n, round int) time.Duration {
	s.Helper()
	keys, owners, held := newKeys(n), make([]string, n), make([]*lock.Held, n)
	at := s.rng.Perm(n)
	by := func(i int) *lock.Locker { return lockers[at[i]%len(lockers)] }
	run := key("ring")
	for i := range n {
		owners[i] = fmt.Sprintf("%s/%d/%d/%d", run, round, n, i)
		held[i] = s.acquire(by(i), lock.Options{Owner: owners[i]}, keys[i])
	}
	type answer struct {
		result

		i int
	}
	answers := make(chan answer, n)
	var last time.Time
	for _, i := range s.rng.Perm(n) {
		c := s.async(s.ctx(), by(i), lock.Options{Owner: owners[i], Wait: patience}, keys[(i+1)%n])
		last = time.Now()
		go func() { answers <- answer{<-c, i} }()
	}
	first := <-answers
	d, ok := errors.AsType[*lock.DeadlockError](first.err)
	if !ok {
		s.Fatalf("ring of %d: %v", n, first.err)
	}
	want := slices.Concat(owners[first.i:], owners[:first.i])
	if !slices.Equal(d.Cycle, want) {
		s.Errorf("ring of %d: cycle %q, want %q", n, d.Cycle, want)
	}
	// The victim still holds its own, so that nobody else is answered before it lets go.
	s.refused(lockers[0], keys[first.i])
	select {
	case second := <-answers:
		s.Fatalf("ring of %d: a second answer: %v", n, second.err)
	default:
	}
	s.release(held[first.i])
	for range n - 1 {
		a := <-answers
		if a.err != nil {
			s.Fatalf("ring of %d: owner %d: %v", n, a.i, a.err)
		}
		s.release(a.held, held[a.i])
	}
	return first.at.Sub(last)
}

// knot: cycles that share owners, by requests for several keys, are broken too, with no more victims than necessary.
func (s *suite) knot() {
	backend, l := s.process()
	a, b, c := key("a"), key("b"), key("c")
	hold := map[string]*lock.Held{}
	for owner, k := range map[string]string{"A": a, "B": b, "C": c} {
		hold[owner] = s.acquire(l, lock.Options{Owner: owner}, k)
	}
	// B and C wait for A; then A asks for both: two cycles, one request that closes them.
	b1 := s.async(s.ctx(), l, lock.Options{Owner: "B", Wait: patience}, a)
	s.inLine(backend, a, 1)
	c1 := s.async(s.ctx(), l, lock.Options{Owner: "C", Wait: patience}, a)
	s.inLine(backend, a, 2)
	r := s.await(s.async(s.ctx(), l, lock.Options{Owner: "A", Wait: patience}, b, c))
	if d, ok := errors.AsType[*lock.DeadlockError](r.err); !ok || len(d.Cycle) != 2 || d.Cycle[0] != "A" {
		s.Fatalf("A got %v", r.err)
	}
	s.release(hold["A"])
	s.granted(b1)
	s.granted(c1)
	s.free(l, a)
	s.release(hold["B"], hold["C"])
}

// noFalseVictims: owners who take keys one after the other in one order wait for each other, and never in a cycle.
func (s *suite) noFalseVictims() {
	lockers := []*lock.Locker{s.locker(), s.locker()}
	keys := newKeys(12)
	const owners = 16
	rounds := testwait.Count(6, 4000) // of three requests each
	ctx := testwait.Context(s.TB, time.Duration(testwait.Count(4, 120))*patience)
	var all sync.WaitGroup
	for i := range owners {
		seed := s.rng.Uint64()
		all.Go(func() {
			rng := newRand(seed)
			for range rounds {
				if s.Failed() {
					return
				}
				chosen := rng.Perm(len(keys))[:3]
				slices.Sort(chosen)
				if err := s.nest(ctx, lockers[i%2], fmt.Sprint("owner", i), keys, chosen); err != nil {
					s.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// nest takes keys one after the other, and lets them go again.
func (s *suite) nest(ctx context.Context, l *lock.Locker, owner string, keys []string, chosen []int) error {
	if len(chosen) == 0 {
		return nil
	}
	h, err := l.Acquire(ctx, []string{keys[chosen[0]]}, lock.Options{Owner: owner, Wait: lock.Forever})
	if err != nil {
		return err
	}
	return errors.Join(s.nest(ctx, l, owner, keys, chosen[1:]), h.Release(ctx))
}

// overtaking: a request that waits for A and is in line for y must not keep A from y.
func (s *suite) overtaking() {
	b, l := s.process()
	other := s.locker()
	x, y, z := key("x"), key("y"), key("z")
	hx := s.acquire(l, lock.Options{Owner: "A"}, x)
	hz := s.acquire(other, lock.Options{Owner: "B"}, z)
	w := s.async(s.ctx(), other, lock.Options{Owner: "W", Wait: patience}, x, y)
	s.inLine(b, x, 1)
	// A asks for y, which is free, and for which W is in line behind A's own x: no held key closes a cycle, and A overtakes W.
	hy := s.acquire(l, lock.Options{Owner: "A", Wait: 5 * time.Second}, y)
	s.refused(other, y)
	s.release(hz, hy, hx)
	s.granted(w)
}

func (s *suite) nested() {
	l := s.locker()
	x, y := key("x"), key("y")
	hx := s.acquire(l, lock.Options{}, x)
	hy, err := l.Acquire(hx.Context(), []string{y}, lock.Options{})
	testwait.Must(s.TB, err)
	if hy.Owner() != hx.Owner() || hx.Owner() == "" {
		s.Errorf("owners %q and %q", hx.Owner(), hy.Owner())
	}
	// Two lines of work that nest in opposing orders.
	u, v := key("u"), key("v")
	hu, hv := s.acquire(l, lock.Options{}, u), s.acquire(l, lock.Options{}, v)
	a := s.async(hu.Context(), l, lock.Options{Wait: patience}, v)
	b := s.async(hv.Context(), l, lock.Options{Wait: patience}, u)
	var victim result
	select {
	case victim = <-a:
		a, hu, hv = b, hv, hu
	case victim = <-b:
	}
	if _, ok := errors.AsType[*lock.DeadlockError](victim.err); !ok {
		s.Fatalf("the first answer: %v", victim.err)
	}
	s.release(hv) // The victim's.
	s.granted(a)
	s.release(hu, hx, hy)
}
