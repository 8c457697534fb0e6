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

// look reads a saga for somebody who waits. It returns [NotFoundError], [ErrClosed], or command.ErrUnavailable for all other
// failures, after which the next look may succeed.
func (s *Service) look(ctx context.Context, id uuid.UUID) (*Saga, error) {
	found, err := s.reads.Do(ctx, struct{}{}, id)
	switch {
	case err == nil && found == nil:
		return nil, &NotFoundError{ID: id}
	case errors.Is(err, groupcommit.ErrClosed):
		return nil, ErrClosed
	case err != nil && !errors.Is(err, command.ErrUnavailable):
		err = command.Unavailable(err)
	}
	return found, err
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
