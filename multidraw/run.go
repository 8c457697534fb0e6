package multidraw

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// place is the right to run one more operation. The zero value is none.
type place struct{ places chan struct{} }

// takePlace is asked before anything is decided, so that what is decided can be run. It gives none where there will be nothing
// to run.
func (s *Service) takePlace(toRun bool) (p place, err error) {
	s.runs.Lock()
	defer s.runs.Unlock()
	switch {
	case s.runs.Closed:
		return p, ErrClosed
	case !toRun:
		return p, nil
	}
	select {
	case s.places <- struct{}{}:
		return place{s.places}, nil
	default:
		return p, ErrTooManyRuns
	}
}

// giveBack does nothing when the place was none, was passed on to a run, or given back before.
func (p *place) giveBack() {
	if p.places != nil {
		<-p.places
		p.places = nil
	}
}

// start runs an operation whose lease this process has been given by a committed transaction. It takes the place over.
func (s *Service) start(p *place, op *Operation, draws *Draws) {
	r := &run{op: op, draws: draws, done: make(chan struct{})}
	kept := *p
	p.places = nil
	if !s.runs.Start(op.ID, r, r.done, s.running, func() {
		defer kept.giveBack()
		s.drive(r)
	}) {
		kept.giveBack()
	}
}

func (s *Service) running(n int) { s.observe(func(o Observer) { o.Running(n) }) }

// drive draws and saves until the operation is completed, or belongs to somebody else, or the service is closed.
func (s *Service) drive(r *run) {
	began := time.Now()
	last, err := Run(s.ctx, r.draws, r.op.State(), func(ctx context.Context, c Chunk) error { return s.save(ctx, r, c) })
	if err == nil {
		s.observe(func(o Observer) { o.Ended(StatusCompleted) })
		s.o.Logger.InfoContext(s.ctx, "multi-draw completed", "id", r.op.ID, "draws", last.Total-r.op.Completed, "took", time.Since(began))
		return
	}
	s.observe(func(o Observer) { o.Ended(StatusInterrupted) })
	s.o.Logger.WarnContext(s.ctx, "multi-draw interrupted", "id", r.op.ID, "completed", last.Completed, "error", err)
	if errors.Is(err, ErrFenced) {
		return
	}
	// Saying so at once spares the next run the wait for the lease.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), releaseTimeout)
	defer cancel()
	err = s.store.Update(ctx, r.op.ID, nil, func(u *Unit) {
		if u.Blocked == nil {
			u.Changed = DecideInterrupt(u.Operation, r.op.Term, u.Now)
		}
	})
	if err != nil {
		s.o.Logger.WarnContext(ctx, "multi-draw: its lease was not given back, and will expire", "id", r.op.ID, "error", err)
	}
}

// save saves a chunk. While another session has locked the operation, it waits outside of its turn, up to a time.
func (s *Service) save(ctx context.Context, r *run, c Chunk) error {
	waiting, cancel := context.WithTimeout(ctx, lockedFor)
	defer cancel()
	for {
		err := s.saveOnce(ctx, r, c)
		blocked, ok := errors.AsType[*command.BlockedError](err)
		if !ok || blocked.Wait(waiting) != nil {
			return err
		}
	}
}

// saveOnce takes its turn among the runs of this process.
func (s *Service) saveOnce(ctx context.Context, r *run, c Chunk) error {
	select {
	case s.saving <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.saving }()
	began := time.Now()
	// What was sent is seen through: giving up in the middle would only make its outcome unknown.
	err := s.store.Checkpoint(context.WithoutCancel(ctx), &Checkpoint{
		ID: r.op.ID, Term: r.op.Term, From: c.First, Chunk: c, TTL: s.o.LeaseTTL,
	})
	if err != nil {
		return err
	}
	s.observe(func(o Observer) { o.Saved(int(c.Next.Completed-c.First), time.Since(began)) })
	s.committed(r.op.ID, c.Next.Checkpoints())
	return nil
}

// saved reports the draws of the transaction that made the operation.
func (s *Service) saved(o *Operation) {
	if o.Checkpoints == 0 {
		return
	}
	s.committed(o.ID, o.Checkpoints)
	s.observe(func(ob Observer) {
		ob.Saved(int(o.Completed), 0)
		ob.Ended(o.Status)
	})
}

func (s *Service) committed(id uuid.UUID, checkpoint int64) {
	if s.o.Committed != nil {
		s.o.Committed(id, checkpoint)
	}
}

// Reconcile renews the leases of the operations that run here, and looks for those whose process is lost, until ctx ends. Each
// process of a server does so.
func (s *Service) Reconcile(ctx context.Context) {
	wait.Every(ctx, min(ReconcileEvery, s.o.LeaseTTL/2), nil, func() { // Half a lease, so that one look may fail.
		if _, err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.o.Logger.WarnContext(ctx, "multi-draws were not reconciled", "error", err)
		}
	})
}

// Sweep does once what [Service.Reconcile] does, and returns how many operations it found interrupted.
func (s *Service) Sweep(ctx context.Context) (int, error) {
	ids := s.runs.IDs()
	ctx, cancel := context.WithTimeout(ctx, s.o.LeaseTTL)
	defer cancel()
	// Its own leases come first: a process that was paused for a while continues unless another has taken over.
	if len(ids) > 0 {
		if err := s.store.Renew(ctx, s.grant.Owner, ids, s.o.LeaseTTL); err != nil {
			return 0, fmt.Errorf("multidraw: renew leases: %w", err)
		}
	}
	lost, err := s.store.Expire(ctx)
	if err != nil {
		return 0, fmt.Errorf("multidraw: look for lost runs: %w", err)
	}
	for _, id := range lost {
		s.observe(func(o Observer) { o.Ended(StatusInterrupted) })
		s.o.Logger.WarnContext(ctx, "multi-draw interrupted: its process is lost", "id", id)
	}
	return len(lost), nil
}

// Close takes no more operations and interrupts those that run here, each after the checkpoint that is under way; they can
// be resumed elsewhere at once. It waits for that up to ctx.
func (s *Service) Close(ctx context.Context) error {
	if err := s.runs.Close(ctx, func() { s.cancel() }); err != nil {
		return fmt.Errorf("multidraw: runs were still under way: %w", err)
	}
	return nil
}
