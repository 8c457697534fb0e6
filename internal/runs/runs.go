// Package runs keeps the runs of one process. A run works on an object whose lease the process has, in a goroutine of its own.
package runs

import (
	"context"
	"sync"

	"github.com/google/uuid"
)

// Set is the runs of a process. Its mutex guards what is exported, and whatever its user likes to guard with it. The zero
// value is an empty set.
type Set[R comparable] struct {
	sync.Mutex

	Closed bool
	Runs   map[uuid.UUID]R // by the id of the object
	Work   sync.WaitGroup  // the runs, and what its user adds to them
}

// Get returns the run of an object; the zero value: there is none.
func (s *Set[R]) Get(id uuid.UUID) R {
	s.Lock()
	defer s.Unlock()
	return s.Runs[id]
}

// IDs lists the objects with runs.
func (s *Set[R]) IDs() []uuid.UUID {
	s.Lock()
	defer s.Unlock()
	ids := make([]uuid.UUID, 0, len(s.Runs))
	for id := range s.Runs {
		ids = append(ids, id)
	}
	return ids
}

// Start drives a run until that returns, and then closes done. running is called with the number of runs when it changes. A
// closed set starts nothing, closes done and returns false: the lease expires.
func (s *Set[R]) Start(id uuid.UUID, run R, done chan<- struct{}, running func(n int), drive func()) bool {
	s.Lock()
	if s.Closed {
		s.Unlock()
		close(done)
		return false
	}
	if s.Runs == nil {
		s.Runs = map[uuid.UUID]R{}
	}
	// An earlier run here, in a lower term, is fenced; it must not take this one's entry with it.
	s.Runs[id] = run
	n := len(s.Runs)
	s.Work.Add(1)
	s.Unlock()
	running(n)
	go func() {
		defer s.Work.Done()
		drive()
		s.Lock()
		if s.Runs[id] == run {
			delete(s.Runs, id)
		}
		n := len(s.Runs)
		s.Unlock()
		running(n)
		close(done)
	}()
	return true
}

// Close starts no more runs, calls stop, and waits for those that there are, up to ctx.
func (s *Set[R]) Close(ctx context.Context, stop func()) error {
	s.Lock()
	s.Closed = true
	s.Unlock()
	stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Work.Wait()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
