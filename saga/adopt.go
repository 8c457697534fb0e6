package saga

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
)

// Adoption is what came of [Service.Adopt].
type Adoption struct {
	Coordinator string
	// Participants are those that had disowned the log, in order. It is empty where there was nothing to adopt.
	Participants []string
}

// Adopt lets an operator make this log, which is a copy or was restored, the one that ends the coordinator's prepared
// transactions. What its log doesn't know is then ended as always: late, and as the siblings' marks say. It returns
// [ErrCoordinatorActive] when the other incarnation has left a token somewhere a moment ago, and an error when a participant
// could not be asked: nothing has changed then.
//
// It writes once, to the log; the fences follow it, also when the process dies in between, as those of a log that was
// started anew do. Where the other incarnation comes back before they have, neither has all of them and nothing is ended:
// adopt again. Result: [Adoption].
func (s *Service) Adopt(ctx context.Context, c command.Command[struct{}]) (command.Answer, error) {
	seen, refusal, err := s.disowners(ctx)
	if err != nil {
		return command.Answer{}, fmt.Errorf("saga: adopt: %w", err)
	}
	action := ""
	if len(seen) > 0 {
		action = "saga.adopt"
	}
	var answer command.Answer
	err = s.store.Adopt(ctx, seen, command.KeysOf(c), func(u *Unit) {
		answer = command.One(&u.Unit, c, s.o.Coordinator, func() (any, string, error) {
			return Adoption{Coordinator: s.o.Coordinator, Participants: slices.Sorted(maps.Keys(seen))}, action, refusal
		})
	})
	if err != nil {
		return command.Answer{}, err
	}
	s.runs.Lock()
	clear(s.fences)
	s.runs.Unlock()
	s.nudge()
	return answer, nil
}

// disowners finds the participants that have disowned the log, with the tokens that they have instead. The refusal says that
// the log which left one is at work.
func (s *Service) disowners(ctx context.Context) (seen map[string]uuid.UUID, refusal, err error) {
	life, err := s.incarnation(ctx)
	if err != nil {
		return nil, nil, err
	}
	seen = map[string]uuid.UUID{}
	for _, name := range s.Participants() {
		found, err := s.o.Participants[name].Fence(ctx, s.o.Coordinator)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: ask %s: %w", command.ErrUnavailable, name, err)
		}
		if found == nil {
			if life.Copied {
				seen[name] = uuid.Nil
			}
			continue
		}
		known, err := s.store.Knows(ctx, found.Token)
		if err != nil {
			return nil, nil, err
		}
		if known && !life.Copied {
			continue
		}
		if name != s.o.Home && found.Age < fencePatience*s.o.FenceEvery {
			refusal = fmt.Errorf("%w (it was seen by %s %v ago)", ErrCoordinatorActive, name, found.Age.Round(1e7))
		}
		seen[name] = found.Token
	}
	return seen, refusal, nil
}
