package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/lock"
)

// job is one run of an operation. What is staged is done, but not saved.
type job[P, R any] struct {
	r     *Runner[P, R]
	state State // as it was saved last
	steps Steps[R]
	call  Call

	results []R    // of the steps that are saved as done, then of those that are staged
	text    []byte // the same as JSON, without brackets
	saved   int    // length of what of text is saved
	sum     hash.Hash
	plain   bool // results are what is read from their JSON
	again   bool // the step that failed in a transaction may succeed in the next one
}

// job reads what of a state is kept in another form while it runs.
func (r *Runner[P, R]) job(s *State, steps Steps[R], token int64, c Call) (*job[P, R], error) {
	j := &job[P, R]{r: r, state: *s, steps: steps, call: c, sum: sha256.New(), plain: plain[R]()}
	if err := json.Unmarshal(s.Results, &j.results); err != nil {
		return nil, &CorruptError{Key: s.Key(), Reason: "its results cannot be read: " + err.Error()}
	}
	j.text = append(j.text, s.results()...)
	j.saved = len(j.text)
	j.sum.Write(j.text)
	j.state.Results = nil
	j.state.Token, j.state.Run = token, uuid.NewString()
	return j, nil
}

// advance does the steps that are left, or undoes those that are done.
func (r *Runner[P, R]) advance(ctx context.Context, s *State, steps Steps[R], token int64, c Call, undo bool) (*Result[R], error) {
	j, err := r.job(s, steps, token, c)
	if err != nil {
		return nil, err
	}
	if err := j.claim(ctx, s.Token, undo); err != nil {
		if j.state.Revision == 0 {
			return nil, err // It was never saved.
		}
		return j.result(), err
	}
	work := j.do
	if undo {
		work = j.undo
	}
	for !j.state.Status.ended() {
		if err := j.batch(ctx, work); err != nil {
			return j.result(), err
		}
	}
	return j.result(), nil
}

// claim saves before anything is done, so that the operation exists, and the run before it is fenced.
func (j *job[P, R]) claim(ctx context.Context, seen int64, undo bool) error {
	if j.state.Token < seen {
		return &FencedError{Key: j.state.Key(), Want: j.state.Head, Seen: Head{Revision: j.state.Revision, Token: seen}}
	}
	next := j.next()
	if undo {
		next.Status = StatusRollingBack
	} else if next.TotalCount == 0 {
		next.Status = StatusCompleted
	}
	j.reach(next)
	return j.save(ctx, next)
}

// reach notes in a save which steps may be done before the next one. Those that are committed with their save are done exactly
// when they are saved.
func (j *job[P, R]) reach(next *State) {
	until := next.CompletedCount
	if next.Status == StatusRunning && !j.r.o.Transactional {
		until = min(until+j.r.o.Every, next.TotalCount)
	}
	next.ReachedCount = max(next.ReachedCount, until)
}

// next is the state of the next save, so far without change.
func (j *job[P, R]) next() *State {
	s := j.state
	s.Revision++
	s.LastUpdateTime = max(s.LastUpdateTime, time.Now().Unix())
	return &s
}

// encode makes a save of a state and of what is done so far.
func (j *job[P, R]) encode(s *State) (*Save, error) {
	sum := sha256.New()
	if c, ok := j.sum.(hash.Cloner); ok { // It is none where GOFIPS140=v1.0.0 is set.
		copied, err := c.Clone()
		if err != nil {
			return nil, fmt.Errorf("checkpoint: copy a digest: %w", err)
		}
		sum = copied
		sum.Write(j.text[j.saved:])
	} else {
		sum.Write(j.text)
	}
	s.Digest = hex.EncodeToString(sum.Sum(nil))
	body, err := s.encode(j.text)
	if err != nil {
		return nil, err
	}
	return &Save{Head: s.Head, Body: body, Ended: s.Status.ended(), TTL: j.r.o.TTL, Replaces: s.replaces}, nil
}

func (j *job[P, R]) save(ctx context.Context, s *State) error {
	began := time.Now()
	save, err := j.encode(s)
	if err == nil {
		err = j.r.store.Save(ctx, s.Key(), save)
	}
	j.report(ctx, save, began, err)
	if err == nil {
		j.keep(s)
	}
	return err
}

// report tells of a save, which is nil where there was none to be made.
func (j *job[P, R]) report(ctx context.Context, save *Save, began time.Time, err error) {
	bytes := 0
	if save != nil {
		bytes = len(save.Body)
	}
	j.r.report(ctx, OpSave, j.state.Key(), bytes, began, err)
}

// keep takes a state as saved that has everything that is staged.
func (j *job[P, R]) keep(s *State) {
	j.sum.Write(j.text[j.saved:])
	j.saved = len(j.text)
	j.state = *s
	j.state.replaces = nil
	if j.call.Progress != nil {
		j.call.Progress(s.progress())
	}
}

// unstage forgets what is not saved.
func (j *job[P, R]) unstage() {
	j.text = j.text[:j.saved]
	j.results = j.results[:j.state.CompletedCount]
}

// batch does work up to the next save, and saves. Work stages what it does in next.
func (j *job[P, R]) batch(ctx context.Context, work func(ctx context.Context, next *State) error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if j.r.o.Transactional {
		return j.batchInTransaction(ctx, work)
	}
	next := j.next()
	failed := work(ctx, next)
	if j.moved(next) {
		// What is done is saved even if the context has ended. Otherwise it would have to be done again.
		saving, cancel := j.outlive(ctx)
		defer cancel()
		if err := j.save(saving, next); err != nil {
			j.unstage()
			return errors.Join(err, failed)
		}
	}
	return j.note(ctx, failed)
}

// moved reports whether work has done anything that is to be saved.
func (j *job[P, R]) moved(next *State) bool {
	return next.CompletedCount > j.state.CompletedCount || next.UndoneCount > j.state.UndoneCount || next.Status != j.state.Status
}

// step calls fn, which does or undoes a step. In a transaction, what it wrote is undone where it fails.
func (j *job[P, R]) step(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	if t, ok := j.r.store.(Transactor); ok && j.r.o.Transactional {
		j.again, err = t.Step(ctx, fn)
		return err
	}
	return fn(ctx)
}

// one does a step. It returns the result as a resumed run has it, and its JSON.
func (j *job[P, R]) one(ctx context.Context, step int) (r R, text []byte, err error) {
	if r, err = j.steps.Do(ctx, step); err != nil {
		return r, nil, err
	}
	if text, err = marshal(r, resultLevels); err != nil {
		return r, nil, fmt.Errorf("its result cannot be written as JSON: %w", err)
	}
	if !j.plain {
		if r, err = read[R](text); err != nil {
			return r, nil, fmt.Errorf("its result cannot be read from its own JSON: %w", err)
		}
	}
	return r, text, nil
}

// do stages steps until the next save is due. It returns the error of the first that failed.
func (j *job[P, R]) do(ctx context.Context, next *State) error {
	until := min(next.CompletedCount+j.r.o.Every, next.TotalCount)
	defer j.reach(next)
	for next.CompletedCount < until {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		var (
			r    R
			text []byte
		)
		err := j.step(ctx, func(ctx context.Context) (err error) {
			r, text, err = j.one(ctx, next.CompletedCount)
			return err
		})
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause // Not the step's fault.
			}
			return &StepError{Step: next.CompletedCount, Err: err}
		}
		if len(j.text) > 0 {
			j.text = append(j.text, ',')
		}
		j.text = append(j.text, text...)
		j.results = append(j.results, r)
		next.CompletedCount++
	}
	if next.CompletedCount == next.TotalCount {
		next.Status = StatusCompleted
	}
	return nil
}

// batchInTransaction commits work and save together. When a step fails, nothing of it remains, and the steps before it are committed.
func (j *job[P, R]) batchInTransaction(ctx context.Context, work func(ctx context.Context, next *State) error) error {
	store, ok := j.r.store.(Transactor)
	if !ok {
		return ErrNoTransactions // New has looked.
	}
	var (
		next  *State
		save  *Save
		own   error // of a step
		began = time.Now()
	)
	failed := store.SaveWith(ctx, j.state.Key(), j.next().Head, func(ctx context.Context) (_ *Save, err error) {
		j.unstage()
		next, save = j.next(), nil
		own = work(ctx, next)
		if cause := context.Cause(ctx); errors.Is(cause, lock.ErrLost) {
			own = cause // Nothing may be saved any more.
			return nil, own
		}
		if own != nil && !j.moved(next) {
			return nil, own
		}
		began = time.Now()
		if save, err = j.encode(next); err != nil {
			return nil, errors.Join(err, own)
		}
		return save, own
	})
	if own == nil || save != nil { // Else nothing was to be saved.
		j.report(ctx, save, began, failed)
	}
	switch {
	case failed != nil:
		j.unstage()
		return j.note(ctx, failed)
	case own != nil && !j.again:
		j.keep(next)
		return j.note(ctx, own)
	}
	j.keep(next) // The step that failed is the first of the next transaction.
	return nil
}

// note keeps a step's error in the state, and returns it.
func (j *job[P, R]) note(ctx context.Context, failed error) error {
	step, ok := errors.AsType[*StepError](failed)
	if !ok {
		return failed
	}
	next := j.next()
	next.fail(step, time.Now())
	saving, cancel := j.outlive(ctx)
	defer cancel()
	if err := j.save(saving, next); err != nil {
		return errors.Join(failed, err)
	}
	return failed
}

// outlive is a context for the save of what is done. It lives on for a while after ctx has ended, unless the lock was lost before.
func (j *job[P, R]) outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	if errors.Is(context.Cause(ctx), lock.ErrLost) {
		return ctx, func() {}
	}
	saving, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		wait.For(saving, saveTimeout)
		cancel(errNoAnswer)
	})
	return saving, func() {
		stop()
		cancel(nil)
	}
}

func (j *job[P, R]) result() *Result[R] {
	s := &j.state
	return &Result[R]{
		Progress: s.progress(),
		Results:  j.results[:s.CompletedCount:s.CompletedCount], Errors: s.Errors, Seed: s.Seed, Parameters: s.Parameters,
		StartedAt: time.Unix(s.StartTime, 0).UTC(), UpdatedAt: time.Unix(s.LastUpdateTime, 0).UTC(),
	}
}
