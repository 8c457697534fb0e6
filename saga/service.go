package saga

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/runs"
)

// Times and limits of a service.
const (
	// LeaseTTL is after how much silence of its process a saga is taken over by another.
	LeaseTTL = 4 * time.Second
	// ReconcileEvery is how often leases are renewed and sagas that are due looked for.
	ReconcileEvery = time.Second
	// SyncWait is how long a caller waits for the end of a saga. Then the answer is one that is pending.
	SyncWait = 20 * time.Second
	// MaxRuns is how many sagas a process runs at once; more wait for their turn, up to MaxWaiting in all.
	MaxRuns    = 32
	MaxWaiting = 4096
	// TwoPhaseDeadline is how long after its beginning a two-phase transaction that could not be prepared is tried again.
	TwoPhaseDeadline = time.Minute
	// StepTimeout is how long one execution of a step may take.
	StepTimeout = time.Minute
	// MaxPause is the longest that a saga which fails to get on waits before it is tried again.
	MaxPause = 15 * time.Second
	// DoubtAge is how old a prepared transaction must be of which the log knows nothing before it is ended.
	DoubtAge = 10 * time.Minute
	// pollEvery is how often a waiter looks for the answer to a request that another process executes.
	pollEvery = 100 * time.Millisecond
	// releaseTimeout bounds what is done for a run that is being stopped.
	releaseTimeout = 3 * time.Second
	// sweepTimeout bounds the look at the prepared transactions of all participants.
	sweepTimeout = 10 * time.Second
	// claimBatch is how many sagas are taken over at once.
	claimBatch = 64
)

// Observer hears what the service does, for metrics. Its methods must not block and may be called concurrently.
type Observer interface {
	// Ended reports a saga's end, and how long after its intent.
	Ended(p Protocol, s Status, took time.Duration)
	// Retried reports an execution of a step, or an attempt to prepare, that failed.
	Retried(p Protocol)
	// Resumed reports a saga that was taken over from a run that had ended early.
	Resumed(p Protocol)
	// Resolved reports a prepared transaction that its run had left behind.
	Resolved(committed bool)
	// Running reports how many sagas this process runs now.
	Running(n int)
}

// Options are a service's parts and limits. All may be zero but the definitions.
type Options struct {
	Definitions []Definition
	// Participants are all databases that may have prepared transactions of ours, by name.
	Participants map[string]Participant
	// Coordinator begins the identifiers of prepared transactions. It is unique to this log, and the same in each process
	// that works on it.
	Coordinator string
	// Home names the participant that is the log's own database, if any.
	Home           string
	Observer       Observer
	Logger         *slog.Logger
	SyncWait       time.Duration // 0 means [SyncWait]
	LeaseTTL       time.Duration // 0 means [LeaseTTL]
	ReconcileEvery time.Duration // 0 means [ReconcileEvery]
	Deadline       time.Duration // 0 means [TwoPhaseDeadline]
	StepTimeout    time.Duration // 0 means [StepTimeout]
	MaxPause       time.Duration // 0 means [MaxPause]
	DoubtAge       time.Duration // 0 means [DoubtAge]
	FenceEvery     time.Duration // 0 means [FenceEvery]
	// Trace is called for each execution of a step or a branch; may be nil.
	Trace Trace
	// Hit is called at the places where a process may die, see [Place]; may be nil.
	Hit func(Place, int)
}

// Place is a place in a run at which tests let processes die.
type Place int

// The places. The number that comes with one is that of the step or branch.
const (
	AfterIntent   Place = iota // the intent is committed
	AfterStep                  // a step is done, the log doesn't say so
	AfterUndo                  // a step is undone, likewise
	AfterPrepare               // a branch is prepared
	AfterDecision              // the decision is in the log
	AfterCommit                // a branch is committed
)

// New asks for a saga.
type New struct {
	// ID makes a repeat of the same request find the saga that the first has made; nil: a new one.
	ID       uuid.UUID
	Name     string // of its definition
	Protocol Protocol
	Input    json.RawMessage
	// Steps are the names of the plan's steps or branches; nil: the definition is asked.
	Steps []string
	// Deadline is how long after its beginning the way forward ends: what is not done then is cancelled, what is done is
	// undone. 0 means never.
	Deadline time.Duration
	// Refusal, if any, is the decision: there will be no saga.
	Refusal error
}

// Service makes, runs and resumes sagas. It is safe for concurrent use. [Service.Reconcile] must run beside it.
type Service struct {
	Reader

	store       Store
	o           Options
	owner       uuid.UUID
	definitions map[string]Definition
	names       []string // of the definitions

	slots  chan struct{}
	wake   chan struct{} // has a value when a saga of this process is due
	reads  *groupcommit.Group[struct{}, uuid.UUID, *Saga]
	ctx    context.Context //nolint:containedctx // Ends the runs, whose requests are long over.
	cancel context.CancelFunc

	// The mutex of runs guards what follows, too.
	runs   runs.Set[*run]
	life   uuid.UUID         // the log's incarnation, as this process knows it
	fences map[string]*fence // by participant
}

// NewService returns a service that keeps its log in store.
func NewService(store Store, o Options) *Service {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.SyncWait = cmp.Or(o.SyncWait, SyncWait)
	o.LeaseTTL = cmp.Or(o.LeaseTTL, LeaseTTL)
	o.ReconcileEvery = cmp.Or(o.ReconcileEvery, ReconcileEvery)
	o.Deadline = cmp.Or(o.Deadline, TwoPhaseDeadline)
	o.StepTimeout = cmp.Or(o.StepTimeout, StepTimeout)
	o.MaxPause = cmp.Or(o.MaxPause, MaxPause)
	o.DoubtAge = cmp.Or(o.DoubtAge, DoubtAge)
	o.FenceEvery = cmp.Or(o.FenceEvery, FenceEvery)
	s := &Service{
		Reader: store, store: store, o: o, owner: newID(), definitions: map[string]Definition{}, slots: make(chan struct{}, MaxRuns),
		wake: make(chan struct{}, 1), fences: map[string]*fence{},
	}
	s.reads = groupcommit.New(s.lookUp, groupcommit.Options{Divisible: func(error) bool { return false }})
	for _, d := range o.Definitions {
		s.definitions[d.Name] = d
		s.names = append(s.names, d.Name)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// Create makes a saga for a command, runs it, and answers when it has ended, or, with one that is pending, when SyncWait is
// over. A repeat of a request that is still waiting waits too. It returns [ErrTooManyRuns], [ErrClosed],
// command.ErrUnavailable, command.ErrUnknownOutcome, or the context's error. It is for this module's own services; programs
// have [Service.Start] and [Service.Run].
func (s *Service) Create(ctx context.Context, c command.Command[New]) (command.Answer, error) {
	if err := s.admit(); err != nil {
		return command.Answer{}, err
	}
	cr := creation{s: s, c: c, id: newID()}
	var key *idempotency.ID
	if c.Key != nil {
		key = &c.Key.ID
	}
	g := s.asking(ctx)
	if err := s.store.Create(ctx, cr.id, key, cr.decide); err != nil {
		return command.Answer{}, err
	}
	if cr.made != nil {
		s.hit(AfterIntent, 0)
		s.start(cr.made, g) //nolint:contextcheck // A run outlives the request that made it.
	}
	if cr.wait != nil {
		return s.await(ctx, *cr.wait, c)
	}
	return cr.answer, nil
}

func (s *Service) admit() error {
	s.runs.Lock()
	defer s.runs.Unlock()
	switch {
	case s.runs.Closed:
		return ErrClosed
	case len(s.runs.Runs) >= MaxWaiting:
		return ErrTooManyRuns
	}
	return nil
}

// creation decides on a request for a new saga.
type creation struct {
	s  *Service
	c  command.Command[New]
	id uuid.UUID

	answer command.Answer
	made   *Saga
	wait   *uuid.UUID // for the saga, whose answer is not decided yet
}

func (cr *creation) decide(u *Unit) {
	cr.answer, cr.made, cr.wait = command.Answer{}, nil, nil
	batch := []command.Command[New]{cr.c}
	if u.Existing != nil {
		// An earlier try was committed and its answer lost: the lease is ours.
		cr.made, cr.wait = u.Existing, &u.Existing.ID
		return
	}
	if cr.c.Key != nil && u.Asked != nil && !command.Known(u.Keys, cr.c.Key) {
		if u.Asked.Pending.Fingerprint != cr.c.Key.Fingerprint {
			cr.answer = batch[0].Refuse(idempotency.ErrKeyReused)
			return
		}
		cr.wait = &u.Asked.ID
		return
	}
	if render := cr.c.Render; render != nil {
		// The answer is that of the saga's end; until then the saga itself has the key.
		batch[0].Render = func(result any, err error) command.Rendered {
			if err == nil {
				return command.Rendered{}
			}
			return render(result, err)
		}
	}
	cr.answer = command.Decide(batch, u.Keys, func(c command.Command[New]) (any, error) {
		if c.Op.Refusal != nil {
			return nil, c.Op.Refusal
		}
		made := decideNew(&c.Op, cr.id, cr.s.owner, cr.s.o.LeaseTTL, cr.s.o.Coordinator, u.Now)
		made.Pending = c.Key
		cr.made, cr.wait, u.Made = made, &made.ID, made
		return made, nil
	})[0]
}

// Replay answers a command whose key was decided before; ok is false where it was not.
func (s *Service) Replay(ctx context.Context, c command.Command[New]) (a command.Answer, ok bool, err error) {
	if c.Key == nil {
		return a, false, nil
	}
	keys, err := s.store.Known(ctx, []idempotency.ID{c.Key.ID})
	if err != nil || !command.Known(keys, c.Key) {
		return a, false, err
	}
	return command.Decide([]command.Command[New]{c}, keys, func(command.Command[New]) (any, error) {
		panic("saga: a known key was decided anew")
	})[0], true, nil
}

// await waits until a saga has ended, or SyncWait is over, and then decides the answer under the command's key.
func (s *Service) await(ctx context.Context, id uuid.UUID, c command.Command[New]) (command.Answer, error) {
	waiting, cancel := context.WithTimeout(ctx, s.o.SyncWait)
	defer cancel()
	answered := func(found *Saga) bool { return found.Status != Pending || found.Pending == nil }
	_, err := s.until(waiting, id, s.o.LeaseTTL, answered)
	if err != nil && ctx.Err() != nil {
		return command.Answer{}, command.UnknownOutcome(ctx.Err())
	}
	if errors.Is(err, command.ErrUnavailable) {
		return command.Answer{}, command.UnknownOutcome(err) // Of a log that is silent for so long no more is to be had.
	}
	return s.settle(ctx, id, c)
}

// settle decides what the request that made a saga is answered, unless that is decided already.
func (s *Service) settle(ctx context.Context, id uuid.UUID, c command.Command[New]) (command.Answer, error) {
	batch := []command.Command[New]{c}
	answer, err := command.Execute(ctx, func() (answer command.Answer, err error) {
		err = s.store.Update(ctx, id, command.Keys(batch), func(u *Unit) {
			if u.Blocked != nil {
				answer = blocked(batch, u)
				return
			}
			var changed bool
			answer, changed = command.Settle(c, &u.Saga.Pending, u.Keys, u.Saga)
			u.Changed = u.Changed || changed
		})
		return answer, err
	})
	return answer, command.Begun(err)
}

// blocked answers a command whose saga another session has locked: with the recorded answer, or none.
func blocked[Op any](batch []command.Command[Op], u *Unit) command.Answer {
	return command.Decide(batch, u.Keys, func(command.Command[Op]) (any, error) { return nil, u.Blocked })[0]
}

func (s *Service) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Service) hit(p Place, i int) {
	if s.o.Hit != nil {
		s.o.Hit(p, i)
	}
}

func (s *Service) observe(f func(Observer)) {
	if s.o.Observer != nil {
		f(s.o.Observer)
	}
}
