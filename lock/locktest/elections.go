package locktest

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// long is a term that no test waits for.
const long = 10 * time.Minute

func (s *suite) candidate(b lock.Backend, name, who string, ttl time.Duration) *lock.Election {
	s.Helper()
	e, err := lock.NewElection(lock.New(b, lock.LockerOptions{}), name, lock.ElectionOptions{Candidate: who, TTL: ttl})
	testwait.Must(s.TB, err)
	return e
}

// elections: four candidates of two processes lead one after the other, in the order in which they stood. Each resignation
// hands over at once, though terms last for long, and Leader shows the terms grow.
func (s *suite) elections() {
	a, _ := s.process()
	b, _ := s.process()
	sorted(s, func() []string { return s.succession(a, []lock.Backend{a, b}) })
}

// succession lets candidates stand, has each leader resign, and returns their order.
func (s *suite) succession(a lock.Backend, backends []lock.Backend) (leaders []string) {
	s.Helper()
	name := key("leader")
	watching := s.candidate(a, name, "nobody", long)
	if l, err := watching.Leader(s.ctx()); err != nil || l.Term != 0 {
		s.Fatalf("before the first: %+v, %v", l, err)
	}
	type won struct {
		who  string
		term *lock.Held
		err  error
	}
	const n = 4
	wins := make(chan won, n)
	for i := range n {
		who := fmt.Sprint("candidate ", i)
		e := s.candidate(backends[i%2], name, who, long)
		go func() {
			t, err := e.Campaign(s.ctx())
			wins <- won{who, t, err}
		}()
		s.eventually("the candidate stands", func() bool {
			l, err := watching.Leader(s.ctx())
			return err == nil && l.Term != 0 && s.waiting(a, name) == i
		})
	}
	var last int64
	for range n {
		w := <-wins
		if w.err != nil {
			s.Fatalf("%s: %v, after %q", w.who, w.err, leaders)
		}
		number := w.term.Token(name)
		if slices.Contains(leaders, w.who) || number <= last {
			s.Fatalf("elected: %s in term %d, after %q and term %d", w.who, number, leaders, last)
		}
		leaders, last = append(leaders, w.who), number
		if l, err := watching.Leader(s.ctx()); err != nil || l.Candidate != w.who || l.Term != number || l.Since.IsZero() {
			s.Errorf("seen: %+v, %v; want %s in term %d", l, err, w.who, number)
		}
		s.is("an elected leader's context", w.term.Context().Err(), nil)
		s.is("resign", w.term.Release(s.ctx()), nil)
		s.is("cause after resigning", context.Cause(w.term.Context()), lock.ErrReleased)
	}
	return leaders
}

// observed: Observe shows each leader, and nobody in between, and terms only grow.
func (s *suite) observed() {
	b, _ := s.process()
	name := key("leader")
	e := s.candidate(b, name, "me", long)
	seen, stop := iter.Pull2(e.Observe(s.ctx()))
	defer stop()
	var last int64
	for range 3 {
		if l, err, _ := seen(); err != nil || l.Term != 0 {
			s.Fatalf("seen %+v, %v, want nobody", l, err)
		}
		t, err := e.Campaign(s.ctx())
		testwait.Must(s.TB, err)
		if l, err, _ := seen(); err != nil || l.Term != t.Token(name) || l.Candidate != "me" || l.Term <= last {
			s.Fatalf("seen %+v, %v after term %d, want term %d", l, err, last, t.Token(name))
		}
		last = t.Token(name)
		s.release(t)
	}
}

// leading: candidates that run for ever lead in turns, one at a time and in growing terms, and a leader that dies is
// replaced in time.
func (s *suite) leading() {
	testpromise.Check(s.TB, "lock-after-death", s.lead)
}

// lead returns how long after its TTL a dead leader was replaced.
func (s *suite) lead() time.Duration {
	s.Helper()
	const ttl = 700 * time.Millisecond
	name := key("leader")
	doomed, stop := s.h.OpenDoomed()
	dead, err := s.candidate(doomed, name, "dead", ttl).Campaign(s.Context())
	testwait.Must(s.TB, err)
	ctx, cancel := context.WithCancel(s.ctx())
	defer cancel()
	var mu sync.Mutex
	var ended func() error // why the term of who leads has ended, nil between two
	last := dead.Token(name)
	begin := func(term context.Context, number int64) {
		mu.Lock()
		defer mu.Unlock()
		// Where the process stood still, who was elected later may get here before the last one has left. But terms never overlap.
		both, late := ended != nil && ended() == nil, number <= last
		if term.Err() == nil {
			if both {
				s.Error("two lead at once")
			}
			if late {
				s.Errorf("term %d after %d", number, last)
			}
		}
		if !late {
			ended, last = term.Err, number
		}
	}
	end := func(number int64) {
		mu.Lock()
		defer mu.Unlock()
		if number == last {
			ended = nil
		}
	}
	terms := make(chan time.Time)
	var all sync.WaitGroup
	for i := range 3 {
		b, _ := s.process()
		e := s.candidate(b, name, fmt.Sprint("candidate ", i), ttl)
		all.Go(func() {
			e.Run(ctx, func(term context.Context, number int64) {
				begin(term, number)
				defer end(number)
				select {
				case terms <- time.Now():
				case <-term.Done():
				}
			})
		})
	}
	died := time.Now()
	stop()
	took := (<-terms).Sub(died)
	s.is("the dead one's cause", context.Cause(dead.Context()), lock.ErrLost)
	for range testwait.Count(4, 100) {
		<-terms
	}
	cancel()
	all.Wait()
	s.free(s.locker(), name) // A candidate that was elected as it was stopped has resigned.
	return took - ttl
}
