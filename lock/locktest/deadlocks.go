package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/lock"
)

// breaking is the promise of L4; a short run may be on a machine that does much else.
func breaking() time.Duration { return time.Duration(count(10, 1)) * time.Second }

// rings: each of n owners holds a key and asks for the next one's, spread over as many processes as there may be kinds of.
func (s *suite) rings() {
	lockers := make([]*lock.Locker, 4)
	for i := range lockers {
		lockers[i] = s.locker()
	}
	var worst time.Duration
	rounds := count(1, 72)
	for round := range rounds {
		for n := 2; n <= 8; n++ {
			worst = max(worst, s.ring(lockers, n, round))
		}
	}
	s.Logf("%d rings, broken after %s at most", rounds*7, worst)
}

func (s *suite) ring(lockers []*lock.Locker, n, round int) (took time.Duration) {
	s.Helper()
	keys, owners, held := make([]string, n), make([]string, n), make([]*lock.Held, n)
	at := s.rng.Perm(n)
	by := func(i int) *lock.Locker { return lockers[at[i]%len(lockers)] }
	run := key("ring")
	for i := range n {
		keys[i], owners[i] = key(fmt.Sprint("k", i)), fmt.Sprintf("%s/%d/%d/%d", run, round, n, i)
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
	if first.err == nil {
		s.Fatalf("ring of %d: owner %d was granted what another holds", n, first.i)
	}
	d, ok := errors.AsType[*lock.DeadlockError](first.err)
	if !ok {
		s.Fatalf("ring of %d: %v", n, first.err)
	}
	if took = first.at.Sub(last); took > breaking() {
		s.Errorf("ring of %d: broken after %s", n, took)
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
		s.release(a.held)
		s.release(held[a.i])
	}
	return took
}

// knot: cycles that share owners, by requests for several keys, are broken too, and nobody is told of one without need.
func (s *suite) knot() {
	backend, _ := s.open()
	l := lock.New(backend, lock.LockerOptions{})
	a, b, c := key("a"), key("b"), key("c")
	hold := map[string]*lock.Held{}
	for owner, k := range map[string]string{"A": a, "B": b, "C": c} {
		hold[owner] = s.acquire(l, lock.Options{Owner: owner}, k)
	}
	// B and C wait for A; then A asks for both: two cycles, one request that closes them.
	b1 := s.async(s.ctx(), l, lock.Options{Owner: "B", Wait: patience}, a)
	c1 := s.async(s.ctx(), l, lock.Options{Owner: "C", Wait: patience}, a)
	s.eventually("both are in line", func() bool { return s.waiting(backend, a) == 2 })
	r := s.await(s.async(s.ctx(), l, lock.Options{Owner: "A", Wait: patience}, b, c))
	if d, ok := errors.AsType[*lock.DeadlockError](r.err); !ok || len(d.Cycle) != 2 || d.Cycle[0] != "A" {
		s.Fatalf("A got %v", r.err)
	}
	s.release(hold["A"])
	for _, x := range []<-chan result{b1, c1} {
		go func() {
			r := <-x
			if r.err != nil {
				s.Error(r.err)
				return
			}
			if err := r.held.Release(s.ctx()); err != nil {
				s.Error(err)
			}
		}()
	}
	s.release(s.acquire(l, lock.Options{Wait: patience}, a))
	s.release(hold["B"])
	s.release(hold["C"])
}

// waits counts the requests that had to wait.
type waits struct{ asked, waited atomic.Int64 }

// Asked implements [lock.Observer].
func (w *waits) Asked(_ string, _ lock.Outcome, _ time.Duration, contended bool) {
	w.asked.Add(1)
	if contended {
		w.waited.Add(1)
	}
}

// Ended implements [lock.Observer].
func (*waits) Ended(string, time.Duration, error) {}

// noFalseVictims: owners who take keys one after the other in one order wait for each other, and never in a cycle. It
// goes on until enough have waited, or have asked, where the backend does not tell who waited.
func (s *suite) noFalseVictims() {
	var seen waits
	lockers := make([]*lock.Locker, 2)
	for i := range lockers {
		b, _ := s.open()
		lockers[i] = lock.New(b, lock.LockerOptions{Observer: &seen})
	}
	keys := make([]string, 12)
	for i := range keys {
		keys[i] = key(fmt.Sprint("k", i))
	}
	enough := int64(count(150, 100_000))
	ctx, cancel := context.WithTimeout(s.Context(), time.Duration(count(4, 120))*patience)
	defer cancel()
	var all sync.WaitGroup
	for i := range 16 {
		seed := s.rng.Uint64()
		all.Go(func() {
			rng := newRand(seed)
			for seen.waited.Load() < enough && seen.asked.Load() < 3*enough && !s.Failed() {
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
	s.Logf("%d requests, of which %d had to wait", seen.asked.Load(), seen.waited.Load())
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

// overtaking: who waits for A and is in line for y must not keep A from y.
func (s *suite) overtaking() {
	b, _ := s.open()
	l, other := lock.New(b, lock.LockerOptions{}), s.locker()
	x, y, z := key("x"), key("y"), key("z")
	hx := s.acquire(l, lock.Options{Owner: "A"}, x)
	hz := s.acquire(other, lock.Options{Owner: "B"}, z)
	w := s.async(s.ctx(), other, lock.Options{Owner: "W", Wait: patience}, x, y)
	s.eventually("W is in line", func() bool { return s.waiting(b, x) == 1 })
	// B waits for A through W's place in line; then A asks for B's: not a cycle of what is held.
	hy := s.acquire(l, lock.Options{Owner: "A", Wait: 5 * time.Second}, y)
	s.refused(other, y)
	s.release(hz)
	s.release(hy)
	s.release(hx)
	s.release(s.granted(w))
}

func (s *suite) nested() {
	l := s.locker()
	x, y := key("x"), key("y")
	hx := s.acquire(l, lock.Options{}, x)
	hy, err := l.Acquire(hx.Context(), []string{y}, lock.Options{})
	if err != nil {
		s.Fatal(err)
	}
	if hy.Owner() != hx.Owner() || hx.Owner() == "" {
		s.Errorf("owners %q and %q", hx.Owner(), hy.Owner())
	}
	// Two lines of work that nest in opposing orders.
	u, v := key("u"), key("v")
	hu := s.acquire(l, lock.Options{}, u)
	hv := s.acquire(l, lock.Options{}, v)
	a := s.async(hu.Context(), l, lock.Options{Wait: patience}, v)
	b := s.async(hv.Context(), l, lock.Options{Wait: patience}, u)
	var victim, survivor result
	var victims, rest *lock.Held
	select {
	case victim = <-a:
		victims, rest = hu, hv
		s.release(victims)
		survivor = s.await(b)
	case victim = <-b:
		victims, rest = hv, hu
		s.release(victims)
		survivor = s.await(a)
	}
	if _, ok := errors.AsType[*lock.DeadlockError](victim.err); !ok || survivor.err != nil {
		s.Fatalf("%v and %v", victim.err, survivor.err)
	}
	for _, h := range []*lock.Held{survivor.held, rest, hx, hy} {
		s.release(h)
	}
}
