package multidraw

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/runs"
)

// Times and limits of a service.
const (
	LeaseTTL = 5 * time.Second // after how much silence of its process an operation counts as interrupted
	// ReconcileEvery is how often leases are renewed and expired ones looked for. An operation is therefore interrupted at most
	// LeaseTTL and ReconcileEvery after the last sign of its process, as long as any process looks.
	ReconcileEvery = time.Second
	// SyncWait is how long a caller who did not ask for async waits for the last draw. Then the answer is an operation that
	// is running.
	SyncWait  = 25 * time.Second
	MaxRuns   = 64 // how many operations a process runs at once
	maxSaving = 4  // how many of them save at once, so that they leave connections to others
	// lockedFor is how long a run waits for an operation that another session has locked, before it ends early.
	lockedFor = 20 * time.Second
	// releaseTimeout bounds the note that a run has ended early; the lease's expiry says the same, later.
	releaseTimeout = 3 * time.Second
)

// Observer receives what the service does, for metrics. Its methods must not block and may be called concurrently.
type Observer interface {
	// Saved reports a checkpoint with so many draws, and how long its transaction took.
	Saved(draws int, took time.Duration)
	// Running reports how many operations this process runs now.
	Running(n int)
	// Ended reports the end of a run, or of an operation, by its status: completed, interrupted or rolled_back.
	Ended(status Status)
}

// Options are a service's hooks and limits. All may be zero.
type Options struct {
	Observer Observer
	States   checkpoint.Observer // of what is saved, loaded and rolled back
	Logger   *slog.Logger
	// Committed is called after the commit of each checkpoint, which is the operation's event with that number.
	Committed func(id uuid.UUID, checkpoint int64)
	SyncWait  time.Duration // 0 means [SyncWait]
	LeaseTTL  time.Duration // 0 means [LeaseTTL]
}

// Service makes, runs, resumes and rolls back operations. It is safe for concurrent use. [Service.Reconcile] must run beside it.
type Service struct {
	Reader

	store Store
	o     Options
	grant Grant

	saving chan struct{}
	runs   *runs.Set[struct{}]
}

// NewService returns a service that keeps operations in store.
func NewService(store Store, o Options) *Service {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.SyncWait = cmp.Or(o.SyncWait, SyncWait)
	o.LeaseTTL = cmp.Or(o.LeaseTTL, LeaseTTL)
	s := &Service{
		Reader: store, store: store, o: o, grant: Grant{Owner: newID(), TTL: o.LeaseTTL},
		saving: make(chan struct{}, maxSaving),
	}
	s.runs = runs.New[struct{}](runs.Options{
		Most: MaxRuns, Full: ErrTooManyRuns, Closed: ErrClosed, Running: func(n int) { s.observe(func(o Observer) { o.Running(n) }) },
	})
	return s
}

func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// Create makes an operation. A small one comes back completed. A larger one comes back running with Async, and else when it
// is completed, or when SyncWait is over, whichever is first. A repeat of a request that is still waiting waits too. It
// returns [ErrTooManyRuns], [ErrClosed], command.ErrUnavailable, command.ErrUnknownOutcome, or the context's error.
func (s *Service) Create(ctx context.Context, c command.Command[Op]) (command.Answer, error) {
	op, ok := c.Op.(Create)
	if !ok {
		return command.Answer{}, fmt.Errorf("multidraw: %T does not make an operation", c.Op)
	}
	free, err := s.runs.Reserve(op.Async || op.Count > AtOnce)
	if err != nil {
		return command.Answer{}, err
	}
	defer free()
	seed, err := fairdraw.NewSeed(rand.Reader)
	if err != nil {
		return command.Answer{}, fmt.Errorf("multidraw: choose a seed: %w", err)
	}
	var (
		id     = newID()
		later  = !op.Async && op.Count > AtOnce // The answer is that of the completed operation, if it comes in time.
		answer command.Answer
		made   *Operation
		draws  *Draws
		wait   *uuid.UUID // for the operation, whose answer is not decided yet
		chunks int64      // bytes of those that are saved with it
		began  = time.Now()
	)
	err = s.store.Create(ctx, id, op.LockKey, command.KeysOf(c), func(u *Unit) {
		made = u.Earlier
		if made != nil { // The transaction was committed before: what is left is to run the operation, and to answer.
			draws = drawsOf(made, seed)
		}
		answer, wait = command.Make(&u.Unit, c, id, later, func() (_ any, action string, err error) {
			if made != nil {
				return made, "", nil // Without a key there is no record of it.
			}
			made, draws, err = DecideCreate(&op, id, seed, u.Holder, s.grant, u.Now)
			switch {
			case err != nil:
			case later:
				made.Pending = c.Key
			case !op.Async:
				u.Chunks = DecideAtOnce(made, draws, u.Now)
				made.Seed = &seed
			}
			u.Made, u.Seed = made, seed
			return made, "multidraw.create", err
		})
		if u.Earlier != nil {
			return // They were saved then.
		}
		chunks = 0
		for _, c := range u.Chunks {
			chunks += int64(len(c))
		}
		if later && made != nil {
			wait = &made.ID
		}
	})
	if chunks > 0 {
		s.report(ctx, checkpoint.OpSave, &Operation{ID: id, LockKey: op.LockKey}, chunks, began, err)
	}
	if err != nil {
		return command.Answer{}, err
	}
	if made != nil {
		s.o.Logger.InfoContext(ctx, "multi-draw made", "id", made.ID, "draws", made.Total, "status", string(made.Status), "request_id", c.RequestID)
		s.saved(made)
		if made.Status == StatusRunning && made.Owner == s.grant.Owner && made.Term == firstTerm {
			s.start(made, draws) //nolint:contextcheck // The run outlives the request.
		}
	}
	free()
	if wait != nil {
		return s.await(ctx, *wait, c)
	}
	return answer, nil
}

// drawsOf makes ready the draws of an operation whose parameters were validated.
func drawsOf(o *Operation, seed fairdraw.Seed) *Draws {
	d, err := New(seed, o.ID.String(), o.Spec)
	if err != nil {
		panic("multidraw: parameters that were validated are refused: " + err.Error())
	}
	return d
}

// await waits until an operation no longer runs, here or elsewhere, or SyncWait is over, and then decides the answer under the
// command's key.
func (s *Service) await(ctx context.Context, id uuid.UUID, c command.Command[Op]) (command.Answer, error) {
	answered := func(ctx context.Context) (bool, error) {
		o, err := s.store.Operation(ctx, id)
		return err == nil && (o.Status != StatusRunning || o.Pending == nil), err
	}
	pending := func(o *Operation) **idempotency.Request { return &o.Pending }
	return s.runs.Answer(ctx, id, s.o.SyncWait, s.o.LeaseTTL, answered, func() (command.Answer, error) {
		return command.Settle(ctx, c, s.store.Known, pending, func(keys []idempotency.ID, settle func(*command.Unit, *Operation)) error {
			return s.store.Update(ctx, id, keys, func(u *Unit) { settle(&u.Unit, u.Operation) })
		})
	})
}

// Execute decides a [Resume] or [Rollback] of an operation. It returns what [Service.Create] does. It waits for an operation that
// another session has locked, as command.Execute does.
func (s *Service) Execute(ctx context.Context, id uuid.UUID, c command.Command[Op]) (command.Answer, error) {
	return command.ExecuteOn(ctx, c, s.store.Known, func() (command.Answer, error) { return s.execute(ctx, id, c) })
}

func (s *Service) execute(ctx context.Context, id uuid.UUID, c command.Command[Op]) (command.Answer, error) {
	_, resume := c.Op.(Resume)
	free, err := s.runs.Reserve(resume)
	if err != nil {
		return command.Answer{}, err
	}
	defer free()
	var (
		answer command.Answer
		to     *Operation
		seed   fairdraw.Seed
		before *Operation // as an earlier run of the transaction left it, if that was committed after all
		used   loaded
		began  = time.Now()
	)
	err = s.store.Update(ctx, id, command.KeysOf(c), func(u *Unit) {
		to, seed = nil, u.Seed
		if before != nil && before.same(u.Operation) {
			to = u.Operation
		} else {
			used = loaded{}
		}
		answer = command.One(&u.Unit, c, id.String(), func() (any, string, error) {
			if to != nil {
				return to, "", nil // Without a key there is no record of it.
			}
			action, err := s.decide(u, c.Op)
			used = loaded{u.Operation, err}
			if err == nil {
				to, before = u.Operation, new(*u.Operation)
			}
			return to, action, err
		})
	})
	s.reportChange(ctx, id, c.Op, used, began, err)
	if absent, ok := errors.AsType[*NotFoundError](err); ok && c.Render != nil {
		return c.Refuse(absent), nil
	}
	if err != nil || to == nil {
		return answer, err
	}
	s.o.Logger.InfoContext(ctx, "multi-draw changed", "id", id, "status", string(to.Status), "draws", to.Completed, "request_id", c.RequestID)
	if to.Status != StatusRunning {
		s.observe(func(o Observer) { o.Ended(to.Status) })
		return answer, nil
	}
	s.start(to, drawsOf(to, seed)) //nolint:contextcheck // The run outlives the request.
	return answer, nil
}

func (s *Service) decide(u *Unit, op Op) (action string, err error) {
	switch op.(type) {
	case Resume:
		return "multidraw.resume", DecideResume(u.Operation, u.Seed, s.grant, u.Now)
	case Rollback:
		return "multidraw.rollback", DecideRollback(u.Operation, u.Now)
	}
	return "", fmt.Errorf("multidraw: %T is not about an operation that exists", op)
}

func (s *Service) observe(f func(Observer)) {
	if s.o.Observer != nil {
		f(s.o.Observer)
	}
}
