package auction

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
)

// creations is the key of the lane on which auctions are made. No auction has this id.
var creations = uuid.Nil //nolint:gochecknoglobals // A constant, but for the type.

// Observer receives what was committed, for metrics. Its methods must not block and may be called concurrently.
type Observer interface {
	// BidsDecided reports that n bids of one transaction had this outcome.
	BidsDecided(outcome Outcome, n int)
	// RoundsExtended reports how often the bids of one transaction have extended the round.
	RoundsExtended(n int)
	// RoundClosed reports that a round was settled.
	RoundClosed()
}

// Options are a service's hooks and limits.
type Options struct {
	Lanes    groupcommit.Options
	Observer Observer
	Logger   *slog.Logger
	// Committed receives the events of each transaction on an auction after its commit; transactions without events are left
	// out, and so are those whose outcome stayed unknown. It delays the auction's next transactions, so it must not block. It is
	// called concurrently: of two transactions that end together, the later one may be reported first. The events may be kept, but
	// not changed.
	Committed func(auction uuid.UUID, events []Event)
}

// Service executes commands on auctions. It is safe for concurrent use.
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

// lanesBusy is how many auctions may be committed to at a time. Most of their transactions are pipelined and take no connection of the pool;
// the store bounds the others.
const lanesBusy = 64

// NewService returns a service that commits through store.
func NewService(store Store, o Options) *Service {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	s := &Service{Reader: store, store: store, o: o}
	lanes := o.Lanes
	lanes.MaxLanesBusy = cmp.Or(lanes.MaxLanesBusy, lanesBusy)
	lanes.Overlap, lanes.MinOverlap = overlap, minOverlap
	lanes.Divisible = func(err error) bool { return !command.Undividable(err) }
	s.group = groupcommit.New(s.flush, lanes)
	s.group.Admit(store.Await)
	return s
}

// Create makes an auction. Errors are those of [Service.Execute].
func (s *Service) Create(ctx context.Context, c command.Command[Op]) (command.Answer, error) {
	if _, ok := c.Op.(Create); !ok {
		return command.Answer{}, fmt.Errorf("auction: %T does not create an auction", c.Op)
	}
	return command.Execute(ctx, c.Key, func() (command.Answer, error) { return s.group.Do(ctx, creations, c) })
}

// Execute decides one command on an auction, commits it together with its neighbours, and returns its answer. It returns
// groupcommit.ErrFull, groupcommit.ErrClosed, command.ErrUnavailable, command.ErrUnknownOutcome, or the context's error. A
// command without a Render gets the refusal as the answer's Err, [NotFoundError] among them.
func (s *Service) Execute(ctx context.Context, auction uuid.UUID, c command.Command[Op]) (command.Answer, error) {
	if _, ok := c.Op.(Create); ok {
		return command.Answer{}, fmt.Errorf("auction: %T is not an operation on an auction", c.Op)
	}
	if auction == creations {
		return c.Refuse(&NotFoundError{ID: auction}), nil
	}
	if _, ok := c.Op.(CloseRound); ok { // The leader tries again by itself, and has other rounds to close.
		return s.group.Do(ctx, auction, c)
	}
	return command.Execute(ctx, c.Key, func() (command.Answer, error) { return s.group.Do(ctx, auction, c) })
}

// ExecuteAll queues commands on one auction, to be decided in their order, and returns the function that waits for their outcomes,
// which are those of [Service.Execute]. None of them creates an auction.
func (s *Service) ExecuteAll(ctx context.Context, auction uuid.UUID, list []command.Command[Op]) (wait func() []command.Listed) {
	if auction == creations {
		return func() []command.Listed { return command.RefuseListed(list, &NotFoundError{ID: auction}) }
	}
	return command.ExecuteAll(ctx, list, func(part []command.Command[Op]) func() []command.Listed { return s.group.DoAll(ctx, auction, part) })
}

// Close stops taking commands and waits until those already taken are answered.
func (s *Service) Close(ctx context.Context) error { return s.group.Close(ctx) }

func (s *Service) flush(ctx context.Context, auction uuid.UUID, batch []command.Command[Op]) ([]command.Answer, error) {
	if auction == creations {
		return s.flushCreations(ctx, batch)
	}
	var (
		answers []command.Answer
		done    tally
		events  []Event
	)
	err := s.store.Commit(ctx, auction, wanted(batch), func(u *Unit) {
		done = tally{} // This may be another run of the same batch.
		answers = command.Decide(batch, u.Keys, func(c command.Command[Op]) (any, error) {
			if u.Blocked != nil {
				return nil, u.Blocked
			}
			result, err := Decide(u.State, c.Op)
			done.count(c.Op, err)
			if action := c.Op.action(); err == nil && action != "" {
				u.Audit = append(u.Audit, command.Audited(c, action, auction.String()))
			}
			return result, err
		})
		if events = nil; u.Blocked == nil {
			events = u.State.Events
		}
	})
	if notFound, ok := errors.AsType[*NotFoundError](err); ok {
		return command.RefuseAll(batch, notFound), nil
	}
	if err != nil {
		return nil, err
	}
	s.report(ctx, auction, done, events)
	return answers, nil
}

// wanted says what a batch needs.
func wanted(batch []command.Command[Op]) Want {
	want := Want{Keys: command.Keys(batch), Bidders: make([]string, 0, len(batch))}
	var others []Op
	for i := range batch {
		if bid, ok := batch[i].Op.(PlaceBid); ok {
			want.Bidders = append(want.Bidders, bid.Account)
		} else {
			others = append(others, batch[i].Op)
		}
	}
	if others != nil {
		want.Settling = func(s *State) []string { return Settling(s, others) }
	}
	return want
}

// report passes on what was committed: to the log, the observer and [Options].Committed.
func (s *Service) report(ctx context.Context, auction uuid.UUID, done tally, events []Event) {
	extended := 0
	for i := range events {
		switch e := &events[i]; e.Type {
		case EventRoundExtended:
			extended++
		case EventRoundCompleted:
			if s.o.Observer != nil {
				s.o.Observer.RoundClosed()
			}
			if data, ok := e.Data.(RoundCompletedData); ok {
				s.o.Logger.InfoContext(ctx, "round closed", "auction", auction, "round", data.Round, "winners", len(data.Winners))
			}
		case EventAuctionStarted, EventAuctionCompleted, EventAuctionCancelled:
			s.o.Logger.InfoContext(ctx, "auction changed", "auction", auction, "event", string(e.Type))
		case EventBidPlaced, EventRoundStarted, EventBidCarriedOver, EventCountdown:
		}
	}
	if s.o.Observer != nil {
		for outcome, n := range done {
			s.o.Observer.BidsDecided(outcome, n)
		}
		if extended > 0 {
			s.o.Observer.RoundsExtended(extended)
		}
	}
	if s.o.Committed != nil && len(events) > 0 {
		s.o.Committed(auction, events)
	}
}

// flushCreations decides a batch of the lane that only Create enters.
func (s *Service) flushCreations(ctx context.Context, batch []command.Command[Op]) (answers []command.Answer, err error) {
	accounts := make([]string, len(batch))
	for i := range batch {
		op, _ := batch[i].Op.(Create)
		accounts[i] = op.Seller
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
