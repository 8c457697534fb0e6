package multidraw

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/internal/command"
)

// report tells the log and the observer of states what was done with the state of an operation, or was not.
func (s *Service) report(ctx context.Context, what checkpoint.Op, o *Operation, bytes int64, began time.Time, err error) {
	key := checkpoint.Key{LockKey: o.LockKey, ID: o.ID.String()}
	checkpoint.Report(ctx, s.o.Logger, s.o.States, what, key, int(bytes), time.Since(began), err)
}

// loaded is a state that a transaction has read in order to change it, and why it did not.
type loaded struct {
	state *Operation
	err   error
}

// reportChange tells of a resumption, which has loaded the state, or of a rollback. There is nothing to tell where the answer was known,
// the operation is absent or in another status, or its row is locked, so that the command waits.
func (s *Service) reportChange(ctx context.Context, id uuid.UUID, op Op, used loaded, began time.Time, err error) {
	what := checkpoint.OpLoad
	if _, ok := op.(Rollback); ok {
		what = checkpoint.OpRollback
	}
	_, blocked := errors.AsType[*command.BlockedError](err)
	switch {
	case blocked || isAbsent(err):
	case err != nil:
		s.report(ctx, what, cmp.Or(used.state, &Operation{ID: id}), 0, began, err)
	case used.state != nil && !errors.Is(used.err, ErrBadTransition):
		s.report(ctx, what, used.state, used.state.size(), began, used.err)
	}
}

func isAbsent(err error) bool {
	_, ok := errors.AsType[*NotFoundError](err)
	return ok
}

// size is how many bytes of draws are saved.
func (o *Operation) size() int64 { return o.Completed * int64(o.Spec.Width()) }

// Operation returns one operation, or [NotFoundError].
func (s *Service) Operation(ctx context.Context, id uuid.UUID) (*Operation, error) {
	began := time.Now()
	o, err := s.store.Operation(ctx, id)
	state, failed := cmp.Or(o, &Operation{ID: id}), err
	if isAbsent(err) {
		failed = nil
	}
	s.report(ctx, checkpoint.OpLoad, state, int64(len(state.Inline)), began, failed)
	return o, err
}

// Saved returns the saved draws from to to (not included) of an operation, as far as there are so many.
func (s *Service) Saved(ctx context.Context, o *Operation, from, to int64) ([]byte, error) {
	began := time.Now()
	draws, err := s.store.Saved(ctx, o, from, to)
	s.report(ctx, checkpoint.OpLoad, o, int64(len(draws)), began, err)
	return draws, err
}
