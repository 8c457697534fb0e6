package saga

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Tend renews the leases of the sagas that run here, takes over those that are due, and settles prepared transactions that
// a run has left behind, until ctx ends. Each process of a server does so.
func (s *Service) Tend(ctx context.Context) {
	tick := time.NewTicker(min(s.o.TendEvery, s.o.LeaseTTL/2)) // Half a lease, so that one look may fail.
	defer tick.Stop()
	resolving := make(chan struct{})
	go func() {
		defer close(resolving)
		s.resolveEvery(ctx)
	}()
	defer func() { <-resolving }()
	for {
		if err := s.look(ctx); err != nil && ctx.Err() == nil {
			s.o.Logger.WarnContext(ctx, "sagas were not tended", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.wake:
		}
	}
}

// resolveEvery settles what is left in doubt. It runs beside the leases: a participant that does not answer must not cost
// a saga its lease.
func (s *Service) resolveEvery(ctx context.Context) {
	tick := time.NewTicker(s.o.TendEvery)
	defer tick.Stop()
	for {
		if err := s.Resolve(ctx); err != nil && ctx.Err() == nil {
			s.o.Logger.WarnContext(ctx, "prepared transactions were not looked at", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look renews and claims once.
func (s *Service) look(ctx context.Context) error {
	s.mu.Lock()
	ids := slices.Collect(maps.Keys(s.runs))
	room, closed := MaxWaiting-len(s.runs), s.closed
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.o.LeaseTTL)
	defer cancel()
	// Its own first: a process that stood still for a while goes on where nobody else has.
	if len(ids) > 0 {
		if err := s.store.Renew(ctx, s.owner, ids, s.o.LeaseTTL); err != nil {
			return fmt.Errorf("saga: renew leases: %w", err)
		}
	}
	if closed || room <= 0 {
		return nil
	}
	due, err := s.store.Claim(ctx, s.owner, s.o.LeaseTTL, min(room, claimBatch))
	if err != nil {
		return fmt.Errorf("saga: look for sagas that are due: %w", err)
	}
	for _, saga := range due {
		if saga.Attempts == 0 {
			s.observe(func(o Observer) { o.Resumed(saga.Protocol) })
			s.o.Logger.InfoContext(ctx, "saga resumed", "id", saga.ID, "term", saga.Term)
		}
		s.start(saga) //nolint:contextcheck // A run outlives the look that found it.
	}
	return nil
}

// Resolve settles once the prepared transactions that no run will settle, in every participant. It returns the errors of
// those that could not be asked, after having asked all.
func (s *Service) Resolve(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	var failures []error
	for name, p := range s.o.Participants {
		gids, err := p.InDoubt(ctx, s.o.Coordinator+":")
		if err != nil {
			failures = append(failures, fmt.Errorf("saga: ask %s: %w", name, err))
			continue
		}
		for _, gid := range gids {
			if err := s.resolve(ctx, p, gid); err != nil {
				failures = append(failures, fmt.Errorf("saga: settle %s in %s: %w", gid, name, err))
			}
		}
	}
	return errors.Join(failures...)
}

func (s *Service) resolve(ctx context.Context, p Participant, gid string) error {
	id, term, ok := ParseGID(s.o.Coordinator, gid)
	if !ok {
		return nil // Not one that we could have made.
	}
	// Read after the prepared transaction was seen: what was prepared had its intent in the log before.
	saga, err := s.store.Saga(ctx, id)
	if _, absent := errors.AsType[*NotFoundError](err); absent {
		saga, err = nil, nil
	}
	if err != nil {
		return err
	}
	verdict := DecideInDoubt(saga, term)
	switch verdict {
	case Leave:
		return nil
	case CommitBranch:
		s.mu.Lock()
		_, here := s.runs[id]
		s.mu.Unlock()
		if here {
			return nil // Its run is about to do so.
		}
		err = p.CommitPrepared(ctx, gid)
	case RollbackBranch:
		err = p.RollbackPrepared(ctx, gid)
	}
	if err == nil {
		s.observe(func(o Observer) { o.Resolved(verdict == CommitBranch) })
		s.o.Logger.InfoContext(ctx, "prepared transaction settled", "gid", gid, "committed", verdict == CommitBranch)
	}
	return err
}

// Close takes no more sagas and stops those that run here, each after the step that is under way; others go on with them at
// once. It waits for that up to ctx.
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
		return fmt.Errorf("saga: runs were still under way: %w", ctx.Err())
	}
}
