package saga

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// firstPause is how long a saga that failed to get on waits before it is tried again; then twice as long, and so on up to
// the option's limit, always by a half more or less.
const firstPause = 50 * time.Millisecond

func pause(attempts int, most time.Duration) time.Duration {
	const doublings = 20
	d := min(most, firstPause<<min(max(0, attempts-1), doublings))
	return d/2 + rand.N(d) //nolint:gosec // Jitter needs no secrecy.
}

// start runs a saga whose lease this process has been given by a committed transaction.
func (s *Service) start(saga *Saga) {
	r := &run{s: saga, done: make(chan struct{})}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		close(r.done)
		return // The lease expires.
	}
	// An earlier run here, in a lower term, is fenced; it must not take this one's entry with it.
	s.runs[saga.ID] = r
	n := len(s.runs)
	s.work.Add(1)
	s.mu.Unlock()
	s.observe(func(o Observer) { o.Running(n) })
	go func() {
		defer s.work.Done()
		s.drive(r.s)
		s.mu.Lock()
		if s.runs[saga.ID] == r {
			delete(s.runs, saga.ID)
		}
		n := len(s.runs)
		s.mu.Unlock()
		s.observe(func(o Observer) { o.Running(n) })
		close(r.done)
	}()
}

// drive runs a saga until it has ended, has to wait, or belongs to somebody else.
func (s *Service) drive(saga *Saga) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-s.ctx.Done():
		s.park(saga, 0)
		return
	}
	err := s.advance(s.ctx, saga)
	if err == nil {
		s.observe(func(o Observer) { o.Ended(saga.Protocol, saga.Status, time.Since(saga.CreatedAt)) })
		s.o.Logger.DebugContext(s.ctx, "saga ended", "id", saga.ID, "status", string(saga.Status), "reason", saga.Reason)
		return
	}
	if _, fenced := errors.AsType[*FencedError](err); fenced {
		s.o.Logger.InfoContext(s.ctx, "saga goes on elsewhere", "id", saga.ID, "error", err)
		return
	}
	if s.ctx.Err() != nil {
		s.park(saga, 0)
		return
	}
	saga.Attempts++
	saga.LastError = err.Error()
	s.observe(func(o Observer) { o.Retried(saga.Protocol) })
	wait := pause(saga.Attempts, s.o.MaxPause)
	s.o.Logger.WarnContext(s.ctx, "saga did not get on", "id", saga.ID, "attempts", saga.Attempts, "again_in", wait, "error", err)
	s.park(saga, wait)
	time.AfterFunc(wait, s.nudge)
}

// park gives the lease up, so that whoever looks first after the wait goes on.
func (s *Service) park(saga *Saga, wait time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), releaseTimeout)
	defer cancel()
	if err := s.store.Save(ctx, saga, &wait); err != nil {
		s.o.Logger.WarnContext(ctx, "saga: its lease was not given back, and will expire", "id", saga.ID, "error", err)
	}
}

// advance brings a saga to its end. Its errors say that it must be tried again.
func (s *Service) advance(ctx context.Context, saga *Saga) error {
	definition, ok := s.definitions[saga.Name]
	if !ok {
		return fmt.Errorf("%w: %q", ErrUnknownDefinition, saga.Name)
	}
	plan, err := definition.Plan(saga)
	if err != nil {
		return err
	}
	if len(plan.Branches) > 0 {
		return s.transact(ctx, saga, plan.Branches)
	}
	return s.compensated(ctx, saga, plan.Steps)
}

// compensated runs the steps of a saga, and undoes them where one is refused.
func (s *Service) compensated(ctx context.Context, saga *Saga, steps []Step) error {
	if len(steps) != len(saga.Steps) {
		return fmt.Errorf("saga: the log has %d steps, the plan %d", len(saga.Steps), len(steps))
	}
	for {
		todo, i := next(saga)
		if todo == actEnd {
			settle(saga)
			return s.save(ctx, saga)
		}
		call := Call{Saga: saga.ID, Step: steps[i].Name, Input: saga.Input, Undo: todo == actUndo, Cancel: todo == actDo && saga.Cancelled}
		var (
			out Outcome
			err error
		)
		switch {
		case todo == actDo:
			out, err = steps[i].Do(ctx, call)
		case steps[i].Undo != nil:
			out, err = steps[i].Undo(ctx, call)
		}
		if err != nil {
			return fmt.Errorf("saga: step %s: %w", call.Key(), err)
		}
		if todo == actUndo {
			s.hit(AfterUndo, i)
		} else {
			s.hit(AfterStep, i)
		}
		record(saga, todo, i, out)
		if rest, _ := next(saga); rest == actEnd {
			continue // The end is written with the last step.
		}
		if err := s.save(ctx, saga); err != nil {
			return err
		}
	}
}

func (s *Service) save(ctx context.Context, saga *Saga) error {
	saga.Attempts, saga.LastError = 0, ""
	// What was sent is seen through: giving up in the middle would only make its outcome unknown.
	return s.store.Save(context.WithoutCancel(ctx), saga, nil)
}

// transact runs a two-phase transaction in the saga's term.
func (s *Service) transact(ctx context.Context, saga *Saga, branches []Branch) error {
	if len(branches) != len(saga.Steps) {
		return fmt.Errorf("saga: the log has %d branches, the plan %d", len(saga.Steps), len(branches))
	}
	if saga.Decided != 0 {
		return s.commit(ctx, saga, branches)
	}
	if saga.Term > 1 {
		// What an earlier term has prepared would be in the way of its own next attempt.
		if err := s.rollbackOlder(ctx, saga, branches); err != nil {
			return err
		}
	}
	if saga.Cancelled || time.Since(saga.CreatedAt) > s.o.Deadline {
		reason := ReasonDeadline
		if saga.Cancelled {
			reason = ReasonCancelled
		}
		return s.abort(ctx, saga, 0, reason)
	}
	for i, b := range branches {
		call := Call{Saga: saga.ID, Step: b.Name, Input: saga.Input}
		out, err := b.Prepare(ctx, call, s.gid(saga, i))
		if err == nil && !out.Refused {
			saga.Steps[i].Result = out.Result
			s.hit(AfterPrepare, i)
			continue
		}
		// Nothing is decided, so nothing is committed. The one that failed may be prepared all the same.
		rollbackErr := s.rollback(ctx, saga, branches[:i+1])
		for j := range saga.Steps {
			saga.Steps[j].Result = ""
		}
		if err = errors.Join(err, rollbackErr); err != nil {
			return fmt.Errorf("saga: prepare %s: %w", b.Name, err)
		}
		return s.abort(ctx, saga, i, out.Reason)
	}
	saga.Decided = saga.Term
	if err := s.save(ctx, saga); err != nil {
		return err // Decided or not: the next term reads it in the log.
	}
	s.hit(AfterDecision, 0)
	return s.commit(ctx, saga, branches)
}

// commit commits what the log has decided to commit.
func (s *Service) commit(ctx context.Context, saga *Saga, branches []Branch) error {
	for i, b := range branches {
		gid := GID(saga.Coordinator, saga.ID, saga.Decided, i)
		if err := b.Participant.CommitPrepared(ctx, gid); err != nil {
			return fmt.Errorf("saga: commit %s: %w", b.Name, err)
		}
		saga.Steps[i].Status = StepDone
		s.hit(AfterCommit, i)
	}
	settle(saga)
	return s.save(ctx, saga)
}

// abort ends a transaction of which nothing is committed.
func (s *Service) abort(ctx context.Context, saga *Saga, branch int, reason string) error {
	saga.Steps[branch].Status, saga.Steps[branch].Reason, saga.Reason = StepRefused, reason, reason
	settle(saga)
	return s.save(ctx, saga)
}

func (s *Service) gid(saga *Saga, branch int) string {
	return GID(saga.Coordinator, saga.ID, saga.Term, branch)
}

func (s *Service) rollback(ctx context.Context, saga *Saga, branches []Branch) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepTimeout)
	defer cancel()
	var failures []error
	for i, b := range branches {
		failures = append(failures, b.Participant.RollbackPrepared(ctx, s.gid(saga, i)))
	}
	return errors.Join(failures...)
}

func (s *Service) rollbackOlder(ctx context.Context, saga *Saga, branches []Branch) error {
	for _, b := range branches {
		gids, err := b.Participant.InDoubt(ctx, saga.Coordinator+":"+saga.ID.String()+":")
		if err != nil {
			return err
		}
		for _, gid := range gids {
			if _, term, ok := ParseGID(saga.Coordinator, gid); ok && term < saga.Term {
				if err := b.Participant.RollbackPrepared(ctx, gid); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
