// Package runs keeps the runs of one process, and lets requests wait for their ends. A run works on an object whose lease the
// process has, in a goroutine of its own.
package runs

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
)

// pollEvery is how often a waiter looks for the end of a run in another process.
const pollEvery = 100 * time.Millisecond

// Set is the runs of a process, see [New]. Its mutex guards Runs, and whatever its user likes to guard with it.
type Set[R any] struct {
	sync.Mutex

	Runs    map[uuid.UUID]*Run[R] // by the id of the object
	Context context.Context       //nolint:containedctx // Ends the runs, whose requests are long over: when the set is closed.

	o        Options
	cancel   context.CancelFunc
	closed   bool
	reserved int
	work     sync.WaitGroup
}

// Run is a run with what its user keeps of it.
type Run[R any] struct {
	Of   R
	done chan struct{} // closed when the run has ended, for whatever reason
}

// Options are the limits of a [Set].
type Options struct {
	Most    int         // runs at a time
	Full    error       // [Set.Reserve] returns it where there are so many
	Closed  error       // and this once the set is closed
	Running func(n int) // is called with the number of runs when it changes
}

// New returns an empty set.
func New[R any](o Options) *Set[R] {
	s := &Set[R]{Runs: map[uuid.UUID]*Run[R]{}, o: o}
	s.Context, s.cancel = context.WithCancel(context.Background()) //nolint:gosec // Close calls it.
	return s
}

// Reserve keeps room for one more run, so that what is decided afterwards can be run. free gives the room back, when the run has
// started or there will be none; it may be called again. Where there will be nothing to run, Reserve keeps none.
func (s *Set[R]) Reserve(toRun bool) (free func(), err error) {
	s.Lock()
	defer s.Unlock()
	switch {
	case s.closed:
		return nil, s.o.Closed
	case !toRun:
		return func() {}, nil
	case s.room() <= 0:
		return nil, s.o.Full
	}
	s.reserved++
	return sync.OnceFunc(func() {
		s.Lock()
		defer s.Unlock()
		s.reserved--
	}), nil
}

func (s *Set[R]) room() int { return s.o.Most - len(s.Runs) - s.reserved }

// Room is how many more runs there may be.
func (s *Set[R]) Room() int {
	s.Lock()
	defer s.Unlock()
	if s.closed {
		return 0
	}
	return s.room()
}

// IDs lists the objects with runs.
func (s *Set[R]) IDs() []uuid.UUID {
	s.Lock()
	defer s.Unlock()
	return slices.Collect(maps.Keys(s.Runs))
}

// Start runs drive for an object. A closed set starts nothing and returns false: the lease expires.
func (s *Set[R]) Start(id uuid.UUID, of R, drive func()) bool {
	run := &Run[R]{Of: of, done: make(chan struct{})}
	s.Lock()
	if s.closed {
		s.Unlock()
		return false
	}
	// An earlier run here, in a lower term, is fenced; it must not take this one's entry with it.
	s.Runs[id] = run
	n := len(s.Runs)
	s.work.Add(1)
	s.Unlock()
	s.o.Running(n)
	go func() {
		defer s.work.Done()
		drive()
		s.Lock()
		if s.Runs[id] == run {
			delete(s.Runs, id)
		}
		n := len(s.Runs)
		s.Unlock()
		s.o.Running(n)
		close(run.done)
	}()
	return true
}

// Wait waits until look reports that an object has come to its end. It looks when the object's run in this process has ended,
// and else every now and then, because another process may run it. It returns look's error, but [command.ErrUnavailable] only
// when that has lasted for longer than patience; 0 means never.
func (s *Set[R]) Wait(ctx context.Context, id uuid.UUID, patience time.Duration, look func(context.Context) (ended bool, err error)) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var missed time.Time // since when the object can't be read; zero while it can
	for {
		s.Lock()
		run := s.Runs[id]
		s.Unlock()
		if run != nil {
			select {
			case <-run.done:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		asked := time.Now()
		ended, err := look(ctx)
		away := errors.Is(err, command.ErrUnavailable)
		switch {
		case !away:
			missed = time.Time{}
		case missed.IsZero():
			missed = asked
		}
		if ended || err != nil && !away || away && patience > 0 && time.Since(missed) >= patience {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Answer waits for the end of what a request has made, as [Set.Wait] does, up to a time, and then lets settle decide the answer.
func (s *Set[R]) Answer(ctx context.Context, id uuid.UUID, upTo, patience time.Duration, look func(context.Context) (bool, error),
	settle func() (command.Answer, error),
) (command.Answer, error) {
	waiting, cancel := context.WithTimeout(ctx, upTo)
	defer cancel()
	err := s.Wait(waiting, id, patience, look)
	switch {
	case err != nil && ctx.Err() != nil:
		return command.Answer{}, command.UnknownOutcome(ctx.Err())
	case errors.Is(err, command.ErrUnavailable):
		return command.Answer{}, command.UnknownOutcome(err) // A database that is silent for so long tells no more.
	}
	return settle()
}

// Close starts no more runs, ends the context of those that there are, calls stop, which may be nil, and waits for the runs up to
// ctx.
func (s *Set[R]) Close(ctx context.Context, stop func()) error {
	s.Lock()
	s.closed = true
	s.Unlock()
	s.cancel()
	if stop != nil {
		stop()
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.work.Wait()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
