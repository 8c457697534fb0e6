package multidraw

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// start runs an operation whose lease this process has been given by a committed transaction.
func (s *Service) start(op *Operation, draws *Draws) {
	s.runs.Start(op.ID, struct{}{}, func() { s.drive(op, draws) })
}

// drive draws and saves until the operation is completed, or belongs to somebody else, or the service is closed.
func (s *Service) drive(op *Operation, draws *Draws) {
	ctx, began := s.runs.Context, time.Now()
	last, err := Run(ctx, draws, op.State(), func(ctx context.Context, c Chunk) error { return s.save(ctx, op, c) })
	if err == nil {
		s.observe(func(o Observer) { o.Ended(StatusCompleted) })
		s.o.Logger.InfoContext(ctx, "multi-draw completed", "id", op.ID, "draws", last.Total-op.Completed, "took", time.Since(began))
		return
	}
	s.observe(func(o Observer) { o.Ended(StatusInterrupted) })
	s.o.Logger.WarnContext(ctx, "multi-draw interrupted", "id", op.ID, "completed", last.Completed, "error", err)
	if errors.Is(err, ErrFenced) {
		return
	}
	// Saying so at once spares the next run the wait for the lease.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	err = s.store.Update(ctx, op.ID, nil, func(u *Unit) {
		u.Changed = DecideInterrupt(u.Operation, op.Term, u.Now)
	})
	if err != nil {
		s.o.Logger.WarnContext(ctx, "multi-draw: its lease was not given back, and will expire", "id", op.ID, "error", err)
	}
}

// save saves a chunk. While another session has locked the operation, it waits outside of its turn, up to a time.
func (s *Service) save(ctx context.Context, op *Operation, c Chunk) (err error) {
	began := time.Now()
	defer func() { s.report(ctx, checkpoint.OpSave, op, int64(len(c.Saved)), began, err) }()
	waiting, cancel := context.WithTimeout(ctx, lockedFor)
	defer cancel()
	for {
		err := s.saveOnce(ctx, op, c)
		blocked, ok := errors.AsType[*command.BlockedError](err)
		if !ok || blocked.Wait(waiting) != nil {
			return err
		}
	}
}

// saveOnce takes its turn among the runs of this process.
func (s *Service) saveOnce(ctx context.Context, op *Operation, c Chunk) error {
	select {
	case s.saving <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.saving }()
	began := time.Now()
	// What was sent is seen through: giving up in the middle would only make its outcome unknown.
	err := s.store.Checkpoint(context.WithoutCancel(ctx), &Checkpoint{
		ID: op.ID, Term: op.Term, From: c.First, Chunk: c, TTL: s.o.LeaseTTL,
	})
	if err != nil {
		return err
	}
	s.observe(func(o Observer) { o.Saved(int(c.Next.Completed-c.First), time.Since(began)) })
	s.committed(op.ID, c.Next.Checkpoints())
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
	var failures wait.News
	wait.Every(ctx, min(ReconcileEvery, s.o.LeaseTTL/2), nil, func() { // Half a lease, so that one look may fail.
		if _, err := s.Sweep(ctx); ctx.Err() == nil && failures.Is(err) {
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
	lost, err := s.store.Expire(ctx, s.o.LeaseTTL)
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
	if err := s.runs.Close(ctx, nil); err != nil {
		return fmt.Errorf("multidraw: runs were still under way: %w", err)
	}
	return nil
}
