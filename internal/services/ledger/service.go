package ledger

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
)

// sweepPage is how many expired holds one transaction closes at most. A command on one of their accounts waits for as long
// as that takes.
const sweepPage = 1000

// lane is the key of the ledger's only lane. Transfers touch any two accounts, so accounts cannot each have a lane of their
// own, and one writer that shares its commits is faster than several that wait for each other's rows.
type lane struct{}

// While one batch is being committed, another may begin, so that the database does not wait for this process. The store then
// decides on the state that the earlier batch will leave.
const (
	overlap    = 1
	minOverlap = 8
)

// Service executes commands on the ledger. It is safe for concurrent use.
type Service struct {
	Reader

	store Store
	group *groupcommit.Group[lane, command.Command[Op], command.Answer]
}

// NewService returns a service that commits through store.
func NewService(store Store, o groupcommit.Options) *Service {
	s := &Service{Reader: store, store: store}
	o.Divisible = func(err error) bool { return !command.Undividable(err) }
	o.Overlap, o.MinOverlap = overlap, minOverlap
	s.group = groupcommit.New(s.flush, o)
	s.group.Admit(func(ctx context.Context, _ lane) bool { return store.Await(ctx) })
	s.group.Weigh(func(c command.Command[Op]) int { return weight(c.Op) })
	return s
}

// Execute decides one command, commits it together with its neighbours, and returns its answer. It returns
// groupcommit.ErrFull, groupcommit.ErrClosed, command.ErrUnavailable, command.ErrUnknownOutcome, or the context's error,
// after which the command may still be executed.
func (s *Service) Execute(ctx context.Context, c command.Command[Op]) (command.Answer, error) {
	return command.Execute(ctx, c.Key, func() (command.Answer, error) { return s.group.Do(ctx, lane{}, c) })
}

// ExecuteAll queues commands, to be decided in their order, and returns the function that waits for their outcomes, which are those of
// [Service.Execute].
func (s *Service) ExecuteAll(ctx context.Context, list []command.Command[Op]) (wait func() []command.Listed) {
	return command.ExecuteAll(ctx, list, func(part []command.Command[Op]) func() []command.Listed { return s.group.DoAll(ctx, lane{}, part) })
}

// Close stops taking commands and waits until those already taken are answered.
func (s *Service) Close(ctx context.Context) error { return s.group.Close(ctx) }

// Sweep closes holds whose time is over, a page of them in a transaction, and returns how many it closed. Any number of
// processes may sweep at once: they share the pages. It goes by no lane, as another transaction may lock a hold for long.
func (s *Service) Sweep(ctx context.Context) (int, error) {
	closed := 0
	for {
		page := 0
		found, err := s.store.ExpireHolds(ctx, sweepPage, func(book *Book, due []uuid.UUID) {
			page = 0
			for _, id := range due {
				if book.Expire(id) {
					page++
				}
			}
		})
		if err != nil {
			return closed, fmt.Errorf("ledger: expire holds: %w", err)
		}
		closed += page
		if found < sweepPage || page == 0 {
			return closed, nil
		}
	}
}

func (s *Service) flush(ctx context.Context, _ lane, batch []command.Command[Op]) ([]command.Answer, error) {
	want := Want{Keys: command.Keys(batch)}
	for i := range batch {
		want.Accounts = append(want.Accounts, batch[i].Op.accounts()...)
		if id, ok := HoldOf(batch[i].Op); ok {
			want.Holds = append(want.Holds, id)
		}
		if reference := ReferenceOf(batch[i].Op); reference != "" {
			want.References = append(want.References, reference)
		}
		for _, p := range partsOf(&batch[i]) {
			if !slices.Contains(want.Parts, p) {
				want.Parts = append(want.Parts, p)
			}
		}
	}
	var answers []command.Answer
	err := s.store.Commit(ctx, want, func(u *Unit) {
		answers = command.Decide(batch, u.Keys, func(c command.Command[Op]) (any, error) {
			if reason := u.blocked(&c); reason != nil {
				return nil, reason
			}
			result, err := Decide(u.Book, c.Op)
			u.Refused = u.Refused || err != nil
			if release, ok := c.Op.(ReleaseHold); ok && c.Operator && err == nil {
				u.Audit = append(u.Audit, command.Audited(c, "hold.release", release.Hold.String()))
			}
			return result, err
		})
	})
	return answers, err
}
