package publish

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
)

// thingOf is what an operation works on.
func thingOf(op Op) Thing {
	switch op.(type) {
	case Create:
		return NewPublications
	case CreateTarget:
		return NewTargets
	case CreateAutomation:
		return NewAutomations
	case CreateSubscription:
		return NewSubscriptions
	case RotateSecret, ReplaceCredentials, PauseTarget, ResumeTarget:
		return OneTarget
	case PauseAutomation, ResumeAutomation, CancelAutomation:
		return OneAutomation
	case PauseSubscription, ResumeSubscription, ReplayTopic, DeleteSubscription:
		return OneSubscription
	}
	return OnePublication
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
	// Subscribed is called after a commit that has made or changed subscriptions, or changed their target. It must not block, and may be
	// called concurrently.
	Subscribed func()
	Logger     *slog.Logger
}

// Service executes commands on publications and targets. It is safe for concurrent use.
type Service struct {
	Reader

	store Store
	group *groupcommit.Group[Subject, command.Command[Op], command.Answer]
	o     Options
}

// NewService returns a service that commits through store.
func NewService(store Store, o Options) *Service {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Scheduled == nil {
		o.Scheduled = func(time.Duration) {}
	}
	if o.Subscribed == nil {
		o.Subscribed = func() {}
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

// Create makes a publication, with a [Create], a target, with a [CreateTarget], an automation, with a
// [CreateAutomation], or a subscription, with a [CreateSubscription]. Errors are those of [Service.Execute].
func (s *Service) Create(ctx context.Context, c command.Command[Op]) (command.Answer, error) {
	return s.Execute(ctx, uuid.Nil, c)
}

// Execute decides one command on a publication, a target, an automation or a subscription, commits it, and returns its answer. It returns
// groupcommit.ErrFull, groupcommit.ErrClosed, command.ErrUnavailable, command.ErrUnknownOutcome, or the context's error. A command
// without a Render gets the refusal as the answer's Err, [NotFoundError] among them. It waits for what another session has locked, as
// command.Execute does. A creation needs no id.
func (s *Service) Execute(ctx context.Context, id uuid.UUID, c command.Command[Op]) (command.Answer, error) {
	on := Subject{thingOf(c.Op), id}
	if on.isNew() {
		on.ID = uuid.Nil
	}
	return command.Execute(ctx, c.Key, func() (command.Answer, error) { return s.group.Do(ctx, on, c) })
}

// Close stops taking commands and waits until those already taken are answered.
func (s *Service) Close(ctx context.Context) error { return s.group.Close(ctx) }

// draw is the randomness of jitter and pauses, which needs no secrecy.
func draw(n int64) int64 { return rand.Int64N(n) } //nolint:gosec // As above.

func (s *Service) flush(ctx context.Context, on Subject, batch []command.Command[Op]) (answers []command.Answer, err error) {
	want := Want{Subject: on, Keys: command.Keys(batch)}
	for i := range batch {
		switch op := batch[i].Op.(type) {
		case Create:
			want.Targets = append(want.Targets, op.Target)
		case CreateTarget:
			want.Targets = append(want.Targets, op.Name)
		case CreateAutomation:
			want.Targets, want.Automations = append(want.Targets, op.Target), append(want.Automations, op.Name)
		case CreateSubscription:
			want.Targets, want.Subscriptions = append(want.Targets, op.Target), append(want.Subscriptions, op.Name)
			want.Topics = append(want.Topics, op.Topics...)
		case ReplayTopic:
			want.Topics = append(want.Topics, op.Topic)
		}
	}
	var soon []time.Duration
	err = s.store.Commit(ctx, want, func(u *Unit) error {
		known, err := u.Known, error(nil)
		if on.holdsSecrets() {
			known, err = eachAnswer(known, s.openAnswer)
		}
		if err != nil {
			return err
		}
		keys := idempotency.NewBatch(known)
		answers = command.Decide(batch, keys, func(c command.Command[Op]) (any, error) {
			if u.Blocked != nil {
				return nil, u.Blocked
			}
			made, id, err := s.decide(u, c.Op)
			if _, unaudited := c.Op.(Create); err != nil || unaudited {
				return made, err
			}
			u.Audit = append(u.Audit, command.Audited(c, c.Op.action(), id.String()))
			return made, nil
		})
		u.Fresh, soon = keys.Fresh(), u.soon
		if on.holdsSecrets() {
			u.Fresh, err = eachAnswer(u.Fresh, s.sealAnswer)
		}
		return err
	})
	if absent, ok := errors.AsType[*NotFoundError](err); ok {
		return command.RefuseAll(batch, absent), nil
	}
	if err == nil && (on.Thing == NewSubscriptions || on.Thing == OneSubscription || on.Thing == OneTarget) {
		s.o.Subscribed()
	}
	if err == nil && len(soon) > 0 {
		s.o.Scheduled(slices.Min(soon))
	}
	return answers, err
}

// decide carries one operation out, and returns its result and the id of what it made or changed. A result is a copy where a
// later command of the batch may change the original.
func (s *Service) decide(u *Unit, op Op) (result any, id uuid.UUID, err error) {
	switch op := op.(type) {
	case Create:
		target, err := u.target(op.Target)
		if err != nil {
			return nil, id, err
		}
		made := DecideCreate(op, target, u.NewID(), u.Now, draw)
		u.Made = append(u.Made, made)
		u.note(made)
		return made, made.ID, nil
	case CreateTarget:
		return s.makeTarget(u, op)
	case CreateAutomation:
		target, err := u.target(op.Target)
		switch {
		case err != nil:
			return nil, id, err
		case u.AutomationNames[op.Name]:
			return nil, id, ErrAutomationExists
		}
		made := DecideCreateAutomation(op, target, u.NewID(), u.Now)
		u.AutomationNames[op.Name] = true
		u.MadeAutomations = append(u.MadeAutomations, made)
		return made, made.ID, nil
	case CreateSubscription:
		return makeSubscription(u, op)
	}
	switch {
	case u.Target != nil:
		return s.changeTarget(u, op)
	case u.Automation != nil:
		if err := DecideAutomation(u.Automation, op, u.Now); err != nil {
			return nil, id, err
		}
		return new(*u.Automation), u.Automation.ID, nil
	case u.Subscription != nil:
		return changeSubscription(u, op)
	}
	if err := Decide(u.Publication, op, u.Now, draw); err != nil {
		return nil, id, err
	}
	u.note(u.Publication)
	return new(*u.Publication), u.Publication.ID, nil
}

func makeSubscription(u *Unit, op CreateSubscription) (made any, id uuid.UUID, err error) {
	target, err := u.target(op.Target)
	switch {
	case err != nil:
		return nil, id, err
	case u.SubscriptionNames[op.Name]:
		return nil, id, ErrSubscriptionExists
	}
	s, err := DecideCreateSubscription(op, target, u.Spans, u.NewID(), u.Now)
	if err != nil {
		return nil, id, err
	}
	u.SubscriptionNames[op.Name] = true
	u.MadeSubscriptions = append(u.MadeSubscriptions, s)
	u.FromStart[s.ID] = op.FromStart
	return s, s.ID, nil
}

func changeSubscription(u *Unit, op Op) (changed any, id uuid.UUID, err error) {
	if err := DecideSubscription(u.Subscription, op, u.Spans, u.Now); err != nil {
		return nil, id, err
	}
	switch op := op.(type) {
	case ReplayTopic:
		u.Replays = append(u.Replays, op)
	case ResumeSubscription:
		u.Resumed = true
	}
	return new(*u.Subscription), u.Subscription.ID, nil
}
