package saga

import (
	"cmp"
	"context"
	"encoding/json"
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
	// MaxPause is the longest that a failing saga waits before it is tried again.
	MaxPause = 15 * time.Second
	// DoubtAge is how old a prepared transaction must be of which the log knows nothing before it is ended.
	DoubtAge = 10 * time.Minute
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
	LeaseTTL       time.Duration // 0 means [LeaseTTL]; the same in all processes of one log
	ReconcileEvery time.Duration // 0 means [ReconcileEvery]
	Deadline       time.Duration // 0 means [TwoPhaseDeadline]
	StepTimeout    time.Duration // 0 means [StepTimeout]
	MaxPause       time.Duration // 0 means [MaxPause]
	DoubtAge       time.Duration // 0 means [DoubtAge]
	FenceEvery     time.Duration // 0 means [FenceEvery]
	// Halted returns why prepared transactions must be left as they are, such as [ErrHistoryLost]; may be nil. It is asked each
	// time before some are ended, and must be quick.
	Halted func() error
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
	// undone. 0 means never; it must not be negative.
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

	slots chan struct{}
	wake  chan struct{} // has a value when a saga of this process is due
	reads *groupcommit.Group[struct{}, uuid.UUID, *Saga]

	// The mutex of runs guards what follows, too.
	runs   *runs.Set[*run]
	life   uuid.UUID         // the log's incarnation, as this process knows it
	fences map[string]*fence // by participant
}

// NewService returns a service that keeps its log in store.
func NewService(store Store, o Options) *Service {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
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
	s.runs = runs.New[*run](runs.Options{
		Most: MaxWaiting, Full: ErrTooManyRuns, Closed: ErrClosed, Running: func(n int) { s.observe(func(o Observer) { o.Running(n) }) },
	})
	return s
}

func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// Create makes a saga for a command, runs it, and answers when it has ended, or, with one that is pending, when SyncWait is
// over. A repeat of a request that is still waiting waits too. It returns [ErrTooManyRuns], [ErrClosed],
// command.ErrUnavailable, command.ErrUnknownOutcome, or the context's error. It is for this module's own services; programs
// have [Service.Start] and [Service.Run].
func (s *Service) Create(ctx context.Context, c command.Command[New]) (answer command.Answer, err error) {
	var wait *uuid.UUID // for the saga, whose answer is not decided yet
	id := newID()
	err = s.create(ctx, id, command.KeysOf(c), func(u *Unit) (made *Saga) {
		answer, wait = command.Answer{}, nil
		if made = u.Existing; made == nil { // Else an earlier try was committed and its answer lost: the lease is ours.
			answer, wait = command.Make(&u.Unit, c, id, true, func() (any, string, error) {
				if c.Op.Refusal == nil {
					made = s.decideNew(&c.Op, id, u)
					made.Pending = c.Key
				}
				return made, "", c.Op.Refusal
			})
		}
		if made != nil {
			wait = &made.ID
		}
		return made
	})
	if err == nil && wait != nil {
		return s.await(ctx, *wait, c)
	}
	return answer, err
}

// create runs the transaction that makes a saga, and then the saga that decide returns, whose lease is ours.
func (s *Service) create(ctx context.Context, id uuid.UUID, keys []idempotency.ID, decide func(*Unit) *Saga) error {
	free, err := s.runs.Reserve(true)
	if err != nil {
		return err
	}
	defer free()
	var made *Saga
	g := s.asking(ctx)
	err = s.store.Create(ctx, id, keys, func(u *Unit) { made = decide(u) })
	if err == nil && made != nil {
		s.hit(AfterIntent, 0)
		s.start(made, g) //nolint:contextcheck // A run outlives the request that made it.
	}
	return err
}

// decideNew makes a saga of a request, with a lease for this process.
func (s *Service) decideNew(n *New, id uuid.UUID, u *Unit) *Saga {
	u.Made = decideNew(n, id, s.owner, s.o.LeaseTTL, s.o.Coordinator, u.Now)
	return u.Made
}

// Replay answers a command whose key was decided before; ok is false where it was not.
func (s *Service) Replay(ctx context.Context, c command.Command[New]) (a command.Answer, ok bool, err error) {
	if c.Key == nil {
		return a, false, nil
	}
	keys, err := s.store.Known(ctx, command.KeysOf(c))
	if err != nil || !command.Known(keys, c.Key) {
		return a, false, err
	}
	return command.One(&command.Unit{Keys: keys}, c, "", nil), true, nil // The key is known: nothing is decided.
}

// await waits until a saga has ended, or SyncWait is over, and then decides the answer under the command's key.
func (s *Service) await(ctx context.Context, id uuid.UUID, c command.Command[New]) (command.Answer, error) {
	answered := func(ctx context.Context) (bool, error) {
		found, err := s.look(ctx, id)
		return err == nil && (found.Status != Pending || found.Pending == nil), err
	}
	pending := func(s *Saga) **idempotency.Request { return &s.Pending }
	return s.runs.Answer(ctx, id, s.o.SyncWait, s.o.LeaseTTL, answered, func() (command.Answer, error) {
		return command.Settle(ctx, c, s.store.Known, pending, func(keys []idempotency.ID, settle func(*command.Unit, *Saga)) error {
			return s.store.Update(ctx, id, keys, func(u *Unit) { settle(&u.Unit, u.Saga) })
		})
	})
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
