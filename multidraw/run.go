package multidraw

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
)

// place is the right to run one more operation. It belongs to one request until a run takes it over.
type place struct {
	s    *Service
	gone bool // given back, or taken over
}

// takePlace is called before anything is decided, so that what is decided can be run. It returns nil when there will be
// nothing to run.
func (s *Service) takePlace(toRun bool) (*place, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, ErrClosed
	case !toRun:
		return nil, nil
	case s.taken >= MaxRuns:
		return nil, ErrTooManyRuns
	}
	s.taken++
	return &place{s: s}, nil
}

// giveBack does nothing for a nil place, and for one that is gone.
func (p *place) giveBack() {
	if p == nil || p.gone {
		return
	}
	p.gone = true
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.taken--
}

// start runs an operation whose lease a committed transaction has given to this process. It takes the place over.
func (s *Service) start(p *place, op *Operation, draws *Draws) {
	r := &run{op: op, draws: draws, done: make(chan struct{})}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		close(r.done)
		return // The lease expires, and the caller gives the place back.
	}
	p.gone = true
	// This replaces an earlier run of a lower term, which is fenced.
	s.runs[op.ID] = r
	n := len(s.runs)
	s.work.Add(1)
	s.mu.Unlock()
	s.observe(func(o Observer) { o.Running(n) })
	go func() {
		defer s.work.Done()
		s.drive(r)
		s.mu.Lock()
		if s.runs[op.ID] == r {
			delete(s.runs, op.ID)
		}
		s.taken--
		n := len(s.runs)
		s.mu.Unlock()
		s.observe(func(o Observer) { o.Running(n) })
		close(r.done)
	}()
}

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
	err = s.store.Update(ctx, r.op.ID, nil, func(u *Unit) { u.Changed = DecideInterrupt(u.Operation, r.op.Term, u.Now) })
	if err != nil {
		s.o.Logger.WarnContext(ctx, "multi-draw: its lease was not given back, and will expire", "id", r.op.ID, "error", err)
	}
}

// save saves a chunk. It takes its turn among the runs of this process.
func (s *Service) save(ctx context.Context, r *run, c Chunk) error {
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

// saved tells of what was drawn in the transaction that made the operation.
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

// Tend renews the leases of the operations that run here, and looks for those whose process is lost, until ctx ends. Each
// process of a server does so.
func (s *Service) Tend(ctx context.Context) {
	tick := time.NewTicker(min(TendEvery, s.o.LeaseTTL/2)) // Half a lease, so that one look may fail.
	defer tick.Stop()
	for {
		if _, err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.o.Logger.WarnContext(ctx, "multi-draws were not tended", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Sweep does once what [Service.Tend] does, and returns how many operations it found interrupted.
func (s *Service) Sweep(ctx context.Context) (int, error) {
	s.mu.Lock()
	ids := slices.Collect(maps.Keys(s.runs))
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.o.LeaseTTL)
	defer cancel()
	// Its own first: a process that stood still for a while goes on where nobody else has.
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
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.work.Wait()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("multidraw: runs were still under way: %w", ctx.Err())
	}
}
