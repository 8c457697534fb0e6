package lottery

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
)

// DefaultStuckAfter is how long a campaign may be drawing before the sweeper finishes its draw.
const DefaultStuckAfter = 10 * time.Minute

// creations is the key of the lane on which campaigns are made. No campaign has this id.
var creations = uuid.Nil //nolint:gochecknoglobals // A constant, but for the type.

// Observer receives what the service does, for metrics. Its methods must not block and may be called concurrently.
type Observer interface {
	// Attempted reports how many purchases were decided by one transaction.
	Attempted(purchases int)
	// LockWait reports how long a transaction waited for its campaign's lock.
	LockWait(d time.Duration)
	// DrawTriggered reports that a transaction set out to draw (rerun: not for the first time), and DrawEnded how its
	// commit went and how long it took from the lane to the commit. The failure is one of [Failures], "" for a draw
	// that is committed.
	DrawTriggered(rerun bool)
	DrawEnded(took time.Duration, failure string)
	// Conflicts reports how many transitions of a campaign's status one transaction refused.
	Conflicts(n int)
	// Watched reports the sweeper's findings: how many campaigns each number of [Watch] is about.
	Watched(stuck, oversold, duplicates, waiting int, overdue time.Duration)
	// RoundTried reports an attempt to get a beacon's round: one of the names of beacon.Failure, or "" for success.
	RoundTried(failure string)
}

// Options are a service's hooks and limits.
type Options struct {
	Lanes      groupcommit.Options
	StuckAfter time.Duration  // 0 means [DefaultStuckAfter]
	Beacon     *BeaconOptions // nil: campaigns are drawn instantly
	Witnesses  int            // of the public log, that are asked
	Observer   Observer
	Logger     *slog.Logger
	// Committed receives, after each transaction that sold or drew, the number of the campaign's last event: sales are
	// numbered from 1, and the draw comes after the last of them. Of two transactions that commit one behind the other, the later may
	// be told of first. It delays the campaign's next transaction, so it must not block.
	Committed func(campaign uuid.UUID, last int64)
}

// Service executes commands on campaigns. It is safe for concurrent use.
type Service struct {
	Reader

	store Store
	group *groupcommit.Group[uuid.UUID, command.Command[Op], command.Answer]
	o     Options
}

// While one batch is being committed, another may begin, so that the database does not wait for this process. The store then
// decides on the state that the earlier batch will leave.
const (
	overlap    = 1
	minOverlap = 8
)

// lanesBusy is how many campaigns may be committed to at a time. Most of their transactions are pipelined and take no connection of the
// pool; the store bounds the others.
const lanesBusy = 64

// NewService returns a service that commits through store.
func NewService(store Store, o Options) *Service {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.StuckAfter = cmp.Or(o.StuckAfter, DefaultStuckAfter)
	s := &Service{Reader: store, store: store, o: o}
	lanes := o.Lanes
	lanes.MaxLanesBusy = cmp.Or(lanes.MaxLanesBusy, lanesBusy)
	lanes.Overlap, lanes.MinOverlap = overlap, minOverlap
	lanes.Divisible = func(err error) bool { return !command.Undividable(err) }
	s.group = groupcommit.New(s.flush, lanes)
	s.group.Admit(store.Await)
	return s
}

// Create makes a campaign with a fresh secret seed. Errors are those of [Service.Execute].
func (s *Service) Create(ctx context.Context, c command.Command[Op]) (command.Answer, error) {
	op, ok := c.Op.(Create)
	if !ok {
		return command.Answer{}, fmt.Errorf("lottery: %T does not create a campaign", c.Op)
	}
	seed, err := fairdraw.NewSeed(rand.Reader)
	if err != nil {
		return command.Answer{}, fmt.Errorf("lottery: choose a seed: %w", err)
	}
	op.Seed = seed
	if op.Asked = s.o.Witnesses; s.o.Beacon != nil {
		op.Chain = &s.o.Beacon.Chain
	}
	c.Op = op
	return command.Execute(ctx, c.Key, func() (command.Answer, error) { return s.group.Do(ctx, creations, c) })
}

// Execute decides one command on a campaign, commits it together with its neighbours, and returns its answer. It returns
// groupcommit.ErrFull, groupcommit.ErrClosed, command.ErrUnavailable, command.ErrUnknownOutcome, or the context's error.
func (s *Service) Execute(ctx context.Context, campaign uuid.UUID, c command.Command[Op]) (command.Answer, error) {
	if campaign == creations {
		return command.Answer{}, &CampaignNotFoundError{ID: campaign}
	}
	if _, ok := c.Op.(AskDraw); ok {
		c.Op = AskDraw{Round: s.roundOf(ctx, campaign)}
	}
	return command.Execute(ctx, c.Key, func() (command.Answer, error) { return s.group.Do(ctx, campaign, c) })
}

// ExecuteAll queues commands on one campaign, to be decided in their order, and returns the function that waits for their outcomes,
// which are those of [Service.Execute]. None of them creates a campaign or asks for a draw.
func (s *Service) ExecuteAll(ctx context.Context, campaign uuid.UUID, list []command.Command[Op]) (wait func() []command.Listed) {
	if campaign == creations {
		return func() []command.Listed { return command.RefuseListed(list, &CampaignNotFoundError{ID: campaign}) }
	}
	return command.ExecuteAll(ctx, list, func(part []command.Command[Op]) func() []command.Listed { return s.group.DoAll(ctx, campaign, part) })
}

// Close stops taking commands and waits until those already taken are answered.
func (s *Service) Close(ctx context.Context) error { return s.group.Close(ctx) }

// Sweep finishes the draws of campaigns that have been drawing for too long, and returns how many it finished. Any number
// of processes may sweep at once.
func (s *Service) Sweep(ctx context.Context) (int, error) {
	w, err := s.Watch(ctx, s.o.StuckAfter)
	if err != nil {
		return 0, fmt.Errorf("lottery: look for stuck draws: %w", err)
	}
	if s.o.Observer != nil {
		s.o.Observer.Watched(len(w.Stuck), w.Oversold, w.Duplicates, w.Waiting, w.Overdue)
	}
	finished := 0
	var failures []error
	for _, id := range w.Stuck {
		a, err := s.Execute(ctx, id, command.Command[Op]{Op: FinishDraw{StuckAfter: s.o.StuckAfter}})
		if err = errors.Join(err, a.Err); err != nil {
			failures = append(failures, fmt.Errorf("lottery: finish the draw of %s: %w", id, err))
			continue
		}
		if a.Result == true {
			finished++
			s.o.Logger.WarnContext(ctx, "stuck draw finished", "campaign", id)
		}
	}
	return finished, errors.Join(failures...)
}

func (s *Service) flush(ctx context.Context, campaign uuid.UUID, batch []command.Command[Op]) ([]command.Answer, error) {
	if campaign == creations {
		return s.flushCreations(ctx, batch)
	}
	var (
		start   = time.Now()
		answers []command.Answer
		ops     = make([]Op, len(batch))
		done    work // of the last run of the transaction
	)
	for i := range batch {
		ops[i] = batch[i].Op
	}
	want := Want{
		Keys: command.Keys(batch), Buyers: buyers(ops),
		Plan: func(c *Campaign, inv *Inventory) Need { return Plan(c, inv, ops) },
	}
	err := s.store.Commit(ctx, campaign, want, func(u *Unit) {
		drewBefore := done.drawn != nil
		done = work{state: u.State, waited: u.Waited}
		if u.Blocked != nil {
			answers = command.Decide(batch, u.Keys, func(command.Command[Op]) (any, error) { return nil, u.Blocked })
			return
		}
		if s.o.Observer != nil && u.Waited > 0 {
			s.o.Observer.LockWait(u.Waited)
		}
		if s.o.Beacon != nil {
			u.State.Lead = s.o.Beacon.Lead
		}
		answers = command.Decide(batch, u.Keys, func(c command.Command[Op]) (any, error) {
			status, drawn := u.State.Campaign.Status, u.State.Drawn
			result, err := Decide(u.State, c.Op)
			done.note(status, drawn, c, err)
			_, asks := c.Op.(AskDraw) // Often it only asks for what is there.
			if action := c.Op.action(); err == nil && action != "" && (!asks || drawn != u.State.Drawn) {
				u.Audit = append(u.Audit, command.Audited(c, action, campaign.String()))
			}
			return result, err
		})
		if done.drawn != nil && s.o.Observer != nil {
			s.o.Observer.DrawTriggered(drewBefore)
		}
	})
	if notFound, ok := errors.AsType[*CampaignNotFoundError](err); ok {
		return command.RefuseAll(batch, notFound), nil
	}
	s.report(ctx, campaign, len(batch), done, time.Since(start), err)
	return answers, err
}

// flushCreations decides a batch of the lane that only Create enters.
func (s *Service) flushCreations(ctx context.Context, batch []command.Command[Op]) (answers []command.Answer, err error) {
	accounts := make([]string, len(batch))
	for i := range batch {
		op, _ := batch[i].Op.(Create)
		accounts[i] = op.Beneficiary
	}
	err = s.store.Create(ctx, accounts, command.Keys(batch), func(u *Unit) {
		answers = command.Decide(batch, u.Keys, func(c command.Command[Op]) (any, error) {
			op, _ := c.Op.(Create)
			made, err := DecideCreate(u.Creation, op)
			if err != nil {
				return nil, err
			}
			u.Audit = append(u.Audit, command.Audited(c, op.action(), made.ID.String()))
			return made, nil
		})
	})
	return answers, err
}
