package publish

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
)

// lane is what the commands of a batch have in common: they make things of one kind, or work on one thing.
type lane struct {
	kind laneKind
	id   uuid.UUID // of the thing; nil where things are made
}

type laneKind int

const (
	laneCreations laneKind = iota
	laneTargetCreations
	laneAutomationCreations
	lanePublication
	laneTarget
	laneAutomation
)

// laneOf is where an operation goes.
func laneOf(op Op) laneKind {
	switch op.(type) {
	case Create:
		return laneCreations
	case CreateTarget:
		return laneTargetCreations
	case CreateAutomation:
		return laneAutomationCreations
	case RotateSecret, ReplaceCredentials, PauseTarget, ResumeTarget:
		return laneTarget
	case PauseAutomation, ResumeAutomation, CancelAutomation:
		return laneAutomation
	}
	return lanePublication
}

// maxBatch keeps the statement of a batch of the largest payloads, 1 MiB each, well below what PostgreSQL takes.
const maxBatch = 128

// While one batch is being committed, the next may be on its way, if it is of some size.
const (
	overlap    = 1
	minOverlap = 8
)

// Options are a service's hooks and limits.
type Options struct {
	Lanes groupcommit.Options
	Vault *Vault // seals the secrets of targets
	// CheckURL returns why nothing would be sent to a new target's URL. It must be pure. May be nil.
	CheckURL func(url string) error
	// Scheduled is called after a commit with the time until something is due, by the database's clock; 0 or less: now. It
	// must not block, and may be called concurrently.
	Scheduled func(in time.Duration)
	Logger    *slog.Logger
}

// Service executes commands on publications and targets. It is safe for concurrent use.
type Service struct {
	Reader

	store Store
	group *groupcommit.Group[lane, command.Command[Op], command.Answer]
	o     Options
}

// NewService returns a service that commits through store.
func NewService(store Store, o Options) *Service {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Scheduled == nil {
		o.Scheduled = func(time.Duration) {}
	}
	s := &Service{Reader: store, store: store, o: o}
	lanes := o.Lanes
	if lanes.MaxBatch <= 0 {
		lanes.MaxBatch = maxBatch
	}
	if lanes.Overlap == 0 {
		// Batches of creations have nothing in common but keys, which the database settles; others wait for a row's lock.
		lanes.Overlap, lanes.MinOverlap = overlap, minOverlap
	}
	lanes.Divisible = func(err error) bool { return !command.Undividable(err) }
	s.group = groupcommit.New(s.flush, lanes)
	return s
}

// Create makes a publication, with a [Create], a target, with a [CreateTarget], or an automation, with a
// [CreateAutomation]. Errors are those of [Service.Execute].
func (s *Service) Create(ctx context.Context, c command.Command[Op]) (command.Answer, error) {
	kind := laneOf(c.Op)
	if kind > laneAutomationCreations {
		return command.Answer{}, fmt.Errorf("publish: %T creates nothing", c.Op)
	}
	return s.group.Do(ctx, lane{kind: kind}, c)
}

// Execute decides one command on a publication, a target or an automation, whatever the operation is one of, commits it,
// and returns its answer. It returns groupcommit.ErrFull, groupcommit.ErrClosed, command.ErrUnavailable,
// command.ErrUnknownOutcome, or the context's error. A command without a Render gets the refusal as the answer's Err,
// [NotFoundError] and its like among them. It waits for what another session has locked, as command.Execute does.
func (s *Service) Execute(ctx context.Context, id uuid.UUID, c command.Command[Op]) (command.Answer, error) {
	kind := laneOf(c.Op)
	if kind <= laneAutomationCreations {
		return command.Answer{}, fmt.Errorf("publish: %T is an operation on nothing that exists", c.Op)
	}
	return command.Execute(ctx, func() (command.Answer, error) { return s.group.Do(ctx, lane{kind: kind, id: id}, c) })
}

// Close stops taking commands and waits until those already taken are answered.
func (s *Service) Close(ctx context.Context) error { return s.group.Close(ctx) }

// draw is the randomness of jitter and pauses, which needs no secrecy.
func draw(n int64) int64 { return rand.Int64N(n) } //nolint:gosec // As above.

func (s *Service) flush(ctx context.Context, l lane, batch []command.Command[Op]) (answers []command.Answer, err error) {
	switch l.kind {
	case laneCreations:
		return s.flushCreations(ctx, batch)
	case laneTargetCreations:
		return s.flushTargets(ctx, batch)
	case laneAutomationCreations:
		return s.flushAutomations(ctx, batch)
	case laneTarget:
		answers, err = s.flushTarget(ctx, l.id, batch)
	case laneAutomation:
		answers, err = s.flushAutomation(ctx, l.id, batch)
	case lanePublication:
		answers, err = s.flushPublication(ctx, l.id, batch)
	}
	if reason := absence(err); reason != nil {
		return command.RefuseAll(batch, reason), nil
	}
	return answers, err
}

func (s *Service) flushPublication(ctx context.Context, id uuid.UUID, batch []command.Command[Op]) (answers []command.Answer, err error) {
	var soon sooner
	err = s.store.Commit(ctx, id, command.Keys(batch), func(u *Unit) {
		soon = sooner{} // This may be another run of the same batch.
		answers = command.Decide(batch, u.Keys, func(c command.Command[Op]) (any, error) {
			if u.Blocked != nil {
				return nil, u.Blocked
			}
			if err := Decide(u.Publication, c.Op, u.Now, draw); err != nil {
				return nil, err
			}
			soon.note(u.Publication, u.Now)
			u.Audit = append(u.Audit, command.Audited(c, c.Op.action(), u.Publication.ID.String()))
			return new(*u.Publication), nil // A later command of the batch may change it again.
		})
	})
	if err == nil {
		soon.tell(s.o.Scheduled)
	}
	return answers, err
}

// sooner remembers what of a transaction is due first.
type sooner struct {
	any bool
	in  time.Duration
}

func (s *sooner) note(p *Publication, now time.Time) {
	if p.Status != StatusScheduled {
		return
	}
	if in := p.DueAt.Sub(now); !s.any || in < s.in {
		s.any, s.in = true, in
	}
}

func (s *sooner) tell(scheduled func(time.Duration)) {
	if s.any {
		scheduled(s.in)
	}
}

func (s *Service) flushCreations(ctx context.Context, batch []command.Command[Op]) (answers []command.Answer, err error) {
	var (
		names []string
		soon  sooner
	)
	command.Each(batch, func(op Create) { names = append(names, op.Target) })
	err = s.store.Create(ctx, names, command.Keys(batch), func(u *Unit) {
		soon = sooner{}
		answers = command.DecideAs(batch, u.Keys, func(_ command.Command[Op], op Create) (any, error) {
			target := u.Targets[op.Target]
			if target == nil {
				return nil, &TargetNotFoundError{Name: op.Target}
			}
			made := DecideCreate(op, target, u.NewID(), u.Now, draw)
			u.Made = append(u.Made, made)
			soon.note(made, u.Now)
			return made, nil
		})
	})
	if err == nil {
		soon.tell(s.o.Scheduled)
	}
	return answers, err
}

func (s *Service) flushAutomations(ctx context.Context, batch []command.Command[Op]) (answers []command.Answer, err error) {
	var names, targets []string
	command.Each(batch, func(op CreateAutomation) { names, targets = append(names, op.Name), append(targets, op.Target) })
	err = s.store.CreateAutomations(ctx, names, targets, command.Keys(batch), func(u *Unit) {
		answers = command.DecideAs(batch, u.Keys, func(c command.Command[Op], op CreateAutomation) (any, error) {
			target := u.Targets[op.Target]
			switch {
			case target == nil:
				return nil, &TargetNotFoundError{Name: op.Target}
			case u.AutomationNames[op.Name]:
				return nil, ErrAutomationExists
			}
			made := DecideCreateAutomation(op, target, u.NewID(), u.Now)
			u.AutomationNames = with(u.AutomationNames, op.Name, true)
			u.MadeAutomations = append(u.MadeAutomations, made)
			u.Audit = append(u.Audit, command.Audited(c, op.action(), made.ID.String()))
			return made, nil
		})
	})
	return answers, err
}

func (s *Service) flushAutomation(ctx context.Context, id uuid.UUID, batch []command.Command[Op]) (answers []command.Answer, err error) {
	err = s.store.CommitAutomation(ctx, id, command.Keys(batch), func(u *Unit) {
		answers = command.Decide(batch, u.Keys, func(c command.Command[Op]) (any, error) {
			if u.Blocked != nil {
				return nil, u.Blocked
			}
			if err := DecideAutomation(u.Automation, c.Op, u.Now); err != nil {
				return nil, err
			}
			u.Audit = append(u.Audit, command.Audited(c, c.Op.action(), id.String()))
			return new(*u.Automation), nil
		})
	})
	return answers, err
}
