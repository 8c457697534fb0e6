package saga

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
)

// Start makes a saga and runs it in the background; it returns when the intent is in the log. Where there is one of this id
// already, it returns that one, so that a request can be repeated until it succeeds; [ErrOtherSaga] says that it has another
// name, protocol or input. Other errors: [ErrUnknownDefinition], [ErrTooManyRuns], [ErrClosed], and those of [Store]; after
// an unknown outcome the same id tells. An input that is no JSON, a negative deadline and a plan that can't be executed are
// refused.
func (s *Service) Start(ctx context.Context, n New) (*Saga, error) {
	if n.ID == uuid.Nil {
		n.ID = newID()
	}
	n.Protocol = cmp.Or(n.Protocol, Compensated)
	if n.Input == nil {
		n.Input = json.RawMessage("null")
	}
	if !json.Valid(n.Input) {
		return nil, errors.New("saga: start: the input is no JSON")
	}
	if n.Deadline < 0 {
		return nil, fmt.Errorf("saga: start: the deadline is negative: %s", n.Deadline)
	}
	if _, err := s.definition(n.Name); err != nil {
		return nil, fmt.Errorf("saga: start: %w", err)
	}
	if n.Steps == nil {
		plan, err := s.plan(&Saga{ID: n.ID, Name: n.Name, Protocol: n.Protocol, Input: n.Input})
		if err != nil {
			return nil, fmt.Errorf("saga: start: %w", err)
		}
		n.Steps = plan.names()
	}
	if err := checkNames(n.Steps); err != nil {
		return nil, fmt.Errorf("saga: start: %w", err)
	}
	var (
		result  *Saga
		refusal error
	)
	err := s.create(ctx, n.ID, nil, func(u *Unit) (made *Saga) {
		result, refusal = u.Existing, nil
		switch {
		case result == nil:
			made = s.decideNew(&n, n.ID, u)
			result = new(*made) // The run goes on changing its own.
			result.Steps = slices.Clone(made.Steps)
		case result.Name != n.Name || result.Protocol != n.Protocol || !bytes.Equal(result.Input, n.Input):
			refusal = ErrOtherSaga
		}
		return made
	})
	if err = errors.Join(err, refusal); err != nil {
		return nil, fmt.Errorf("saga: start %s: %w", n.ID, err)
	}
	return result, nil
}

// Wait waits until a saga has ended, in whatever process, and returns it. It returns [NotFoundError], or the context's error.
func (s *Service) Wait(ctx context.Context, id uuid.UUID) (ended *Saga, err error) {
	err = s.runs.Wait(ctx, id, 0, func(ctx context.Context) (bool, error) {
		found, err := s.look(ctx, id)
		if err == nil && found.Status != Pending {
			ended = found
		}
		return ended != nil, err
	})
	return ended, err
}

// Run is Start, and then Wait.
func (s *Service) Run(ctx context.Context, n New) (*Saga, error) {
	started, err := s.Start(ctx, n)
	if err != nil {
		return nil, err
	}
	return s.Wait(ctx, started.ID)
}

// Retry lets a pending saga be tried at once, and forgets that it is stuck. It returns [ErrBadTransition] when the saga has
// ended, or [NotFoundError].
func (s *Service) Retry(ctx context.Context, id uuid.UUID) (*Saga, error) {
	return s.operate(ctx, id, Retry)
}

// Compensate lets a pending saga be given up: a step that is not done is cancelled, those that are done are undone. A step
// whose outcome is not known is asked for it first; a saga of which every step turns out to be done has completed. It
// returns [ErrBadTransition] when the saga has ended, or is decided to commit, or [NotFoundError].
func (s *Service) Compensate(ctx context.Context, id uuid.UUID) (*Saga, error) {
	return s.operate(ctx, id, Compensate)
}

func (s *Service) operate(ctx context.Context, id uuid.UUID, act Act) (*Saga, error) {
	a, err := s.Execute(ctx, id, command.Command[Act]{Op: act})
	if err = errors.Join(err, a.Err); err != nil {
		return nil, fmt.Errorf("saga: operate on %s: %w", id, err)
	}
	found, _ := a.Result.(*Saga)
	return found, nil
}

// Act is what an operator may do to a pending saga.
type Act int

// The acts. Both are safe at any time: a retry changes nothing a second time, and a saga is compensated only where each
// step's outcome is known.
const (
	Retry Act = iota
	Compensate
)

// Execute decides an operator's act on a saga. Result: *[Saga]. Errors are those of [Service.Create]. It waits for a saga that
// another session has locked, as command.Execute does.
func (s *Service) Execute(ctx context.Context, id uuid.UUID, c command.Command[Act]) (command.Answer, error) {
	defer s.nudge()
	return command.ExecuteOn(ctx, c, s.store.Known, func() (answer command.Answer, err error) {
		err = s.store.Update(ctx, id, command.KeysOf(c), func(u *Unit) {
			answer = command.One(&u.Unit, c, id.String(), func() (any, string, error) {
				if c.Op == Compensate {
					return u.Saga, "saga.compensate", decideCompensate(u.Saga, u.Now)
				}
				return u.Saga, "saga.retry", decideRetry(u.Saga, u.Now)
			})
		})
		if absent, ok := errors.AsType[*NotFoundError](err); ok && c.Render != nil {
			return c.Refuse(absent), nil
		}
		return answer, err
	})
}
