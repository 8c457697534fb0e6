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

// long is a term that no test waits for.
const long = 10 * time.Minute

func (s *suite) candidate(b lock.Backend, name, who string, ttl time.Duration) *lock.Election {
	s.Helper()
	e, err := lock.NewElection(lock.New(b, lock.LockerOptions{}), name, lock.ElectionOptions{Candidate: who, TTL: ttl})
	if err != nil {
		s.Fatal(err)
	}
	return e
}

// elections: candidates of two processes lead one after the other, in the order in which they stood. Each resignation
// hands over at once, though terms last for long, and who looks on sees the terms grow. As a process that the machine did
// not let say that it is alive loses its place, the order has more than one try.
func (s *suite) elections() {
	a, _ := s.open()
	b, _ := s.open()
	var leaders []string
	for range count(3, 1) {
		if leaders = s.succession(a, b); slices.IsSorted(leaders) {
			return
		}
	}
	s.Errorf("elected in the order %q", leaders)
}

// succession lets four candidates of two processes stand, has each leader resign, and returns their order.
func (s *suite) succession(a, b lock.Backend) (leaders []string) {
	s.Helper()
	backends := []lock.Backend{a, b}
	name := key("leader")
	watching := s.candidate(a, name, "nobody", long)
	if l, err := watching.Leader(s.ctx()); err != nil || l.Term != 0 {
		s.Fatalf("before the first: %+v, %v", l, err)
	}
	type won struct {
		who  string
		term *lock.Term
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
		var w won
		select {
		case w = <-wins:
		case <-time.After(patience):
			s.Fatalf("nobody was elected after %q", leaders)
		}
		if w.err != nil {
			s.Fatalf("%s: %v", w.who, w.err)
		}
		if slices.Contains(leaders, w.who) || w.term.Number() <= last {
			s.Fatalf("elected: %s in term %d, after %q and term %d", w.who, w.term.Number(), leaders, last)
		}
		leaders, last = append(leaders, w.who), w.term.Number()
		l, err := watching.Leader(s.ctx())
		if err != nil || l.Candidate != w.who || l.Term != w.term.Number() || l.Since.IsZero() {
			s.Errorf("seen: %+v, %v; want %s in term %d", l, err, w.who, w.term.Number())
		}
		if err := w.term.Context().Err(); err != nil {
			s.Errorf("term %d is over: %v", w.term.Number(), err)
		}
		if err := w.term.Resign(s.ctx()); err != nil {
			s.Error(err)
		}
		if !errors.Is(context.Cause(w.term.Context()), lock.ErrReleased) {
			s.Errorf("cause after resigning: %v", context.Cause(w.term.Context()))
		}
	}
	return leaders
}

// observed: who looks on sees each leader, and nobody in between, and terms only grow.
func (s *suite) observed() {
	b, _ := s.open()
	name := key("leader")
	e := s.candidate(b, name, "me", long)
	ctx, cancel := context.WithCancel(s.ctx())
	defer cancel()
	seen := make(chan lock.Leader)
	var watching sync.WaitGroup
	watching.Go(func() {
		defer close(seen)
		for l, err := range e.Observe(ctx) {
			if err != nil {
				s.Error(err)
				return
			}
			select {
			case seen <- l:
			case <-ctx.Done():
				return
			}
		}
	})
	var last int64
	for range 3 {
		if l := <-seen; l.Term != 0 {
			s.Fatalf("seen %+v, want nobody", l)
		}
		t, err := e.Campaign(s.ctx())
		if err != nil {
			s.Fatal(err)
		}
		if l := <-seen; l.Term != t.Number() || l.Candidate != "me" || l.Term <= last {
			s.Fatalf("seen %+v after term %d, want term %d", l, last, t.Number())
		}
		last = t.Number()
		if err := t.Resign(s.ctx()); err != nil {
			s.Fatal(err)
		}
	}
	cancel()
	watching.Wait()
}

// leading: candidates that run for ever lead in turns, one at a time and in growing terms, and a leader that dies is
// replaced in time.
func (s *suite) leading() {
	const ttl = 700 * time.Millisecond
	name := key("leader")
	doomed, stop := s.openSilent()
	dead, err := s.candidate(doomed, name, "dead", ttl).Campaign(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.ctx())
	defer cancel()
	var inside atomic.Int32
	var last atomic.Int64
	last.Store(dead.Number())
	terms := make(chan time.Time)
	var all sync.WaitGroup
	for i := range 3 {
		b, _ := s.open()
		e := s.candidate(b, name, fmt.Sprint("candidate ", i), ttl)
		all.Go(func() {
			e.Run(ctx, func(term context.Context, number int64) {
				if inside.Add(1) != 1 {
					s.Error("two lead at once")
				}
				if before := last.Swap(number); before >= number {
					s.Errorf("term %d after %d", number, before)
				}
				select {
				case terms <- time.Now():
				case <-term.Done():
				}
				inside.Add(-1)
			})
		})
	}
	died := time.Now()
	stop()
	first := <-terms
	if took := first.Sub(died); took > ttl+replacement() {
		s.Errorf("replaced after %s", took)
	}
	if !errors.Is(context.Cause(dead.Context()), lock.ErrLost) {
		s.Errorf("the dead one's cause: %v", context.Cause(dead.Context()))
	}
	for range count(4, 100) {
		<-terms
	}
	cancel()
	all.Wait()
	// Who was elected as it was told to stop has resigned.
	s.release(s.acquire(lock.New(s.backend(), lock.LockerOptions{}), lock.Options{Wait: patience}, name))
}
