package saga

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
)

// readTimeout bounds one look at the log for all that wait.
const readTimeout = 10 * time.Second

// until waits until the log says of a saga what is wanted, whoever runs it. It returns command.ErrUnavailable when the log
// could not be read for longer than patience, unless that is 0.
func (s *Service) until(ctx context.Context, id uuid.UUID, patience time.Duration, wanted func(*Saga) bool) (*Saga, error) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var missed time.Time // since when the log can't be read; zero while it can
	for {
		r := s.runs.Get(id)
		if r != nil {
			select {
			case <-r.done:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		asked := time.Now()
		found, err := s.lookUp(ctx, id)
		if !errors.Is(err, command.ErrUnavailable) {
			missed = time.Time{}
		} else if missed.IsZero() {
			missed = asked
		}
		switch {
		case err == nil && found == nil:
			return nil, &NotFoundError{ID: id}
		case err == nil && wanted(found):
			return found, nil
		case errors.Is(err, ErrClosed), patience > 0 && !missed.IsZero() && time.Since(missed) >= patience:
			return nil, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// lookup is one read of the log for all that wait: a thousand callers who each asked for themselves would leave no
// connection to those who do what they wait for.
type lookup struct {
	ids   map[uuid.UUID]struct{}
	done  chan struct{} // closed when the rest is set
	found map[uuid.UUID]*Saga
	err   error
}

// lookUp reads a saga together with those that others wait for; nil: there is none.
func (s *Service) lookUp(ctx context.Context, id uuid.UUID) (*Saga, error) {
	s.runs.Lock()
	if s.runs.Closed {
		s.runs.Unlock()
		return nil, ErrClosed
	}
	l := s.next
	if l == nil {
		l = &lookup{ids: map[uuid.UUID]struct{}{}, done: make(chan struct{})}
		s.next = l
		s.runs.Work.Go(func() { s.read(l) }) //nolint:contextcheck // It reads for others too.
	}
	l.ids[id] = struct{}{}
	s.runs.Unlock()
	select {
	case <-l.done:
		return l.found[id], l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// read waits for the read before it, while more join, and then reads.
func (s *Service) read(l *lookup) {
	defer close(l.done)
	s.reads <- struct{}{}
	defer func() { <-s.reads }()
	s.runs.Lock()
	s.next = nil
	ids := slices.Collect(maps.Keys(l.ids))
	s.runs.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), readTimeout)
	defer cancel()
	found, err := s.store.Find(ctx, ids)
	l.err, l.found = err, make(map[uuid.UUID]*Saga, len(found))
	for _, saga := range found {
		l.found[saga.ID] = saga
	}
}
