package saga

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// firstPause is how long a saga that failed to get on waits before it is tried again; then twice as long, and so on up to
// the option's limit, always by a half more or less.
const firstPause = 50 * time.Millisecond

func pause(attempts int, most time.Duration) time.Duration {
	const doublings = 20
	d := min(most, firstPause<<min(max(0, attempts-1), doublings))
	return wait.Jitter(d)
}

// pauseAfter is the pause of a saga that has failed so often to get on. Where that is because its log was started anew, it ends within four times
// FenceEvery, however many attempts there were meanwhile: then the saga goes on at once.
func (s *Service) pauseAfter(err error, attempts int) time.Duration {
	most := s.o.MaxPause
	if errors.Is(err, ErrUnproven) || errors.Is(err, ErrOtherLife) {
		most = min(most, s.o.FenceEvery/fencePauses)
	}
	return pause(attempts, most)
}

// fencePauses is how often a saga tries to get on in FenceEvery, at the least, while its log proves itself.
const fencePauses = 6

// run is one lease of a saga in this process.
type run struct {
	s *Saga
	// began is when the lease was taken, by this process's clock, and lease when it was by the log's: together they tell the
	// log's time without asking.
	began, lease time.Time
	life         uuid.UUID       // in whose name branches are ended, see [grant]
	ctx          context.Context //nolint:containedctx // Ends with the lease, not with a call.
	cancel       context.CancelCauseFunc

	// The service's mutex guards these.
	until  time.Time // when the lease ends, at the earliest
	active bool      // it has its turn
}

// now is the log's time, give or take what its answer took to come here.
func (r *run) now() time.Time { return r.lease.Add(time.Since(r.began)) }

// start runs a saga whose lease this process has been given by a committed transaction, which was begun after g.
func (s *Service) start(saga *Saga, g grant) {
	r := &run{
		s: saga, began: time.Now(), lease: saga.LeaseExpiresAt.Add(-s.o.LeaseTTL),
		life: g.life, until: g.asked.Add(s.o.LeaseTTL),
	}
	if saga.Protocol == TwoPhase {
		saga.Life = g.life
	}
	r.ctx, r.cancel = context.WithCancelCause(s.runs.Context)
	if !s.runs.Start(saga.ID, r, func() {
		defer r.cancel(nil)
		s.drive(r)
	}) {
		r.cancel(ErrClosed)
	}
}

// drive runs a saga until it has ended, has to wait, or belongs to somebody else.
func (s *Service) drive(r *run) {
	saga := r.s
	select {
	case s.slots <- struct{}{}:
	case <-r.ctx.Done():
		s.park(saga, 0)
		return
	}
	s.setActive(r, true)
	err := s.advance(r)
	s.setActive(r, false)
	<-s.slots
	if err == nil {
		s.observe(func(o Observer) { o.Ended(saga.Protocol, saga.Status, r.now().Sub(saga.CreatedAt)) })
		s.o.Logger.DebugContext(r.ctx, "saga ended", "id", saga.ID, "status", string(saga.Status), "reason", saga.Reason)
		return
	}
	_, fenced := errors.AsType[*FencedError](err)
	outlived := saga.Status != Pending && errors.Is(err, ErrOtherLife) // Its end was not taken, and is read again when the lease is over.
	if fenced || outlived || errors.Is(context.Cause(r.ctx), ErrLeaseLost) {
		s.o.Logger.InfoContext(r.ctx, "saga goes on elsewhere", "id", saga.ID, "error", err)
		return
	}
	free := awaitRow(r.ctx, err)
	if s.runs.Context.Err() != nil {
		s.park(saga, 0)
		return
	}
	saga.Attempts++
	saga.LastError = err.Error()
	s.observe(func(o Observer) { o.Retried(saga.Protocol) })
	wait := s.pauseAfter(err, saga.Attempts)
	if free {
		wait = min(wait, firstPause)
	}
	s.o.Logger.WarnContext(r.ctx, "saga did not get on", "id", saga.ID, "attempts", saga.Attempts, "again_in", wait, "error", err)
	s.park(saga, wait)
	time.AfterFunc(wait, s.nudge)
}

// awaitRow waits for a row that another session has locked, where that is why a saga did not get on. It has no turn then, so
// that those that wait keep none from others. It reports whether the row is free.
func awaitRow(ctx context.Context, err error) bool {
	blocked, ok := errors.AsType[*command.BlockedError](err)
	if !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, command.BlockedFor)
	defer cancel()
	return blocked.Wait(ctx) == nil
}

func (s *Service) setActive(r *run, active bool) {
	s.runs.Lock()
	defer s.runs.Unlock()
	r.active = active
}

// park gives the lease up, so that the first process to look after the wait goes on.
func (s *Service) park(saga *Saga, wait time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.runs.Context), releaseTimeout)
	defer cancel()
	if err := s.write(ctx, saga, &wait); err != nil {
		s.o.Logger.WarnContext(ctx, "saga: its lease was not given back, and will expire", "id", saga.ID, "error", err)
	}
}

// advance brings a saga to its end. Its errors say that it must be tried again.
func (s *Service) advance(r *run) error {
	plan, err := s.plan(r.s)
	if errors.Is(err, ErrTwoPhaseUnavailable) && r.s.Protocol == TwoPhase && r.s.Decided == 0 {
		// What an earlier term has prepared is left to the resolver.
		r.s.LastError = err.Error()
		return s.abort(r.ctx, r.s, 0, ReasonTwoPhaseUnavailable)
	}
	if err != nil {
		return err
	}
	names := plan.names()
	if len(names) != len(r.s.Steps) {
		return fmt.Errorf("saga: the log has %d steps, the plan %d", len(r.s.Steps), len(names))
	}
	for i, name := range names {
		if r.s.Steps[i].Name != name {
			return fmt.Errorf("saga: step %d is %s in the log, %s in the plan", i, r.s.Steps[i].Name, name)
		}
	}
	if len(plan.Branches) > 0 {
		return s.transact(r, plan.Branches)
	}
	return s.compensated(r, plan.Steps)
}

func (s *Service) definition(name string) (Definition, error) {
	d, ok := s.definitions[name]
	if !ok {
		return d, fmt.Errorf("%w: %q", ErrUnknownDefinition, name)
	}
	return d, nil
}

// plan asks a saga's definition.
func (s *Service) plan(saga *Saga) (p Plan, err error) {
	d, err := s.definition(saga.Name)
	if err != nil {
		return p, err
	}
	err = s.shielded(saga.ID, "the plan of "+saga.Name, func() (err error) {
		p, err = d.Plan(saga)
		return err
	})
	if err == nil {
		err = p.check()
	}
	if err != nil {
		return Plan{}, fmt.Errorf("plan of %q: %w", saga.Name, err)
	}
	return p, nil
}

// errGoexit is the failure of a function that ended its goroutine.
var errGoexit = errors.New("runtime.Goexit was called, as FailNow of package testing does")

// shielded calls a function of the program in a goroutine of its own. A panic or a [runtime.Goexit] there is an error: the one must not
// take down a process that would only meet it again when it is back, the other not end a run whose lease is renewed.
func (s *Service) shielded(id uuid.UUID, what string, f func() error) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				s.o.Logger.Error("saga: a panic", "saga", id, "in", what, "panic", p, "stack", string(debug.Stack()))
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		err = errGoexit
		err = f()
	}()
	<-done
	return err
}

// compensated runs the steps of a saga, and undoes them where one is refused.
func (s *Service) compensated(r *run, steps []Step) error {
	saga := r.s
	for {
		todo, i := next(saga)
		if todo == actEnd {
			settle(saga)
			return s.save(r.ctx, saga)
		}
		call := Call{Saga: saga.ID, Step: steps[i].Name, Input: saga.Input, Term: saga.Term, Undo: todo == actUndo}
		execute, phase := steps[i].Undo, PhaseUndo
		if todo == actDo {
			execute, phase, call.Cancel = steps[i].Do, PhaseDo, stop(saga, r.now())
		}
		out, err := s.traced(r.ctx, phase, call, execute)
		if err != nil {
			saga.Steps[i].tried(err)
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
		if err := s.save(r.ctx, saga); err != nil {
			return err
		}
	}
}

// execute calls a step's function within its time.
func (s *Service) execute(ctx context.Context, c Call, f func(context.Context, Call) (Outcome, error)) (out Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.StepTimeout)
	defer cancel()
	err = s.shielded(c.Saga, "step "+c.Key(), func() (err error) {
		out, err = f(ctx, c)
		return err
	})
	if err == nil && c.Undo && out.Refused {
		err = fmt.Errorf("%w: %s", errUndoRefused, out.Reason)
	}
	if err == nil && !out.Refused && !utf8.ValidString(out.Result) { // The log is JSON, in which it would be another one.
		err = fmt.Errorf("%w: %q", errBadResult, out.Result)
	}
	return out, err
}

func (s *Service) save(ctx context.Context, saga *Saga) error {
	saga.Attempts, saga.LastError = 0, lastError(saga)
	// What was sent is seen through: giving up in the middle would only make its outcome unknown.
	return s.write(context.WithoutCancel(ctx), saga, nil)
}

// write is the store's Save of a record that the store can't refuse for its words.
func (s *Service) write(ctx context.Context, saga *Saga, park *time.Duration) error {
	clean(saga)
	return s.store.Save(ctx, saga, park)
}

// transact runs a two-phase transaction in the saga's term.
func (s *Service) transact(r *run, branches []Branch) error {
	saga := r.s
	if err := s.standings(r, branches); err != nil {
		return err
	}
	if saga.Decided == 0 && saga.Term > 1 {
		// What an earlier term has decided, the log may have lost; what it has prepared would be in the way of the next attempt.
		if err := s.settleOlder(r, branches); err != nil {
			return err
		}
	}
	if saga.Decided != 0 {
		return s.commit(r, branches)
	}
	reason := stop(saga, r.now())
	if reason == "" && saga.Attempts > 0 && r.now().Sub(saga.CreatedAt) > s.o.Deadline {
		// A transaction that has only waited for its turn is tried nevertheless. Otherwise a process with a long queue would do
		// nothing but give up.
		reason = ReasonDeadline
	}
	if reason != "" {
		return s.abort(r.ctx, saga, 0, reason)
	}
	for i, b := range branches {
		gid := s.gid(saga, i)
		call := Call{Saga: saga.ID, Step: b.Name, Input: saga.Input, Term: saga.Term, GID: gid}
		out, err := s.traced(r.ctx, PhasePrepare, call, func(ctx context.Context, c Call) (Outcome, error) { return b.Prepare(ctx, c, gid) })
		saga.Steps[i].tried(err)
		if err == nil && !out.Refused {
			saga.Steps[i].Result = out.Result
			s.hit(AfterPrepare, i)
			continue
		}
		if reason := hopeless(err); reason != "" {
			saga.LastError, out, err = fmt.Sprintf("saga: prepare %s: %v", b.Name, err), Refuse(reason), nil
		}
		// Nothing is decided, so nothing is committed. The one that failed may be prepared all the same.
		if err = errors.Join(err, s.rollback(r, branches[:i+1])); err != nil {
			return fmt.Errorf("saga: prepare %s: %w", b.Name, err)
		}
		return s.abort(r.ctx, saga, i, out.Reason)
	}
	saga.Decided = saga.Term
	switch err := s.save(r.ctx, saga); {
	case errors.Is(err, ErrCancelled):
		saga.Decided = 0
		if err := s.rollback(r, branches); err != nil {
			return err
		}
		return s.abort(r.ctx, saga, 0, ReasonCancelled)
	case errors.Is(err, ErrOtherLife):
		saga.Decided = 0
		return err
	case err != nil:
		return err // Decided or not: the next term reads it in the log.
	}
	s.hit(AfterDecision, 0)
	return s.commit(r, branches)
}

// commit commits what the log has decided to commit.
func (s *Service) commit(r *run, branches []Branch) error {
	saga := r.s
	for i, b := range branches {
		gid := GID(saga.Coordinator, saga.ID, saga.Decided, i)
		call := Call{Saga: saga.ID, Step: b.Name, Term: saga.Term, GID: gid}
		ctx, end := s.trace(r.ctx, PhaseCommit, call)
		err := b.Participant.EndPrepared(ctx, gid, true, s.o.Coordinator, r.life)
		if end(Outcome{}, err); err != nil {
			saga.Steps[i].tried(err)
			return fmt.Errorf("saga: commit %s: %w", b.Name, err)
		}
		saga.Steps[i].Error = ""
		saga.Steps[i].Status = StepDone
		s.hit(AfterCommit, i)
	}
	settle(saga)
	return s.save(r.ctx, saga)
}

// abort ends a transaction of which nothing is committed.
func (s *Service) abort(ctx context.Context, saga *Saga, branch int, reason string) error {
	for i := range saga.Steps {
		saga.Steps[i].Result = ""
	}
	saga.Steps[branch].Status, saga.Steps[branch].Reason, saga.Reason = StepRefused, reason, reason
	settle(saga)
	return s.save(ctx, saga)
}

func (s *Service) gid(saga *Saga, branch int) string {
	return GID(saga.Coordinator, saga.ID, saga.Term, branch)
}

// rollback leaves nothing prepared of this term. It does so under a cancelled context too.
func (s *Service) rollback(r *run, branches []Branch) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), sweepTimeout)
	defer cancel()
	var failures []error
	for i, b := range branches {
		r.s.Steps[i].Result = ""
		failures = append(failures, b.Participant.EndPrepared(ctx, s.gid(r.s, i), false, s.o.Coordinator, r.life))
	}
	return errors.Join(failures...)
}

// errLaterTerm ends a run of a log that was restored.
var errLaterTerm = errors.New("saga: a branch is committed whose term the log has lost, and has not reached again")

// settleOlder rolls back what earlier terms have prepared and not decided. Where a branch is committed, its term was decided, and a log
// that was restored has lost it: then it is decided again, and nothing is rolled back. That term may be this one or a later one, because
// the log before the restore went on counting. This run has prepared nothing yet.
func (s *Service) settleOlder(r *run, branches []Branch) error {
	saga := r.s
	for _, b := range branches {
		done, err := b.Participant.Committed(r.ctx, saga.ID)
		if err != nil {
			return err
		}
		for _, gid := range done {
			switch _, term, ok := ParseGID(saga.Coordinator, gid); {
			case ok && term > saga.Term:
				return errLaterTerm // The log counts up to it, by one with each try.
			case ok:
				saga.Decided = term
				return s.save(r.ctx, saga)
			}
		}
	}
	for _, b := range branches {
		found, err := b.Participant.InDoubt(r.ctx, saga.Coordinator+":"+saga.ID.String()+":")
		if err != nil {
			return err
		}
		for _, p := range found {
			if _, term, ok := ParseGID(saga.Coordinator, p.GID); ok && term < saga.Term {
				if err := b.Participant.EndPrepared(r.ctx, p.GID, false, s.o.Coordinator, r.life); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
