package saga

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
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
		found, err := s.reads.Do(ctx, struct{}{}, id)
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
		case errors.Is(err, groupcommit.ErrClosed):
			return nil, ErrClosed
		case patience > 0 && !missed.IsZero() && time.Since(missed) >= patience:
			return nil, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// lookUp reads sagas for all that wait for them, at once and one read at a time: a thousand callers who each asked for
// themselves would leave no connection to those who do what they wait for. A saga that does not exist is nil.
func (s *Service) lookUp(ctx context.Context, _ struct{}, ids []uuid.UUID) ([]*Saga, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	found, err := s.store.Find(ctx, ids)
	byID := make(map[uuid.UUID]*Saga, len(found))
	for _, saga := range found {
		byID[saga.ID] = saga
	}
	out := make([]*Saga, len(ids))
	for i, id := range ids {
		out[i] = byID[id]
	}
	return out, err
}
