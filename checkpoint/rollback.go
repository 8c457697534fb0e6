package checkpoint

import "context"

// Rollback undoes the steps of an operation that are done, from the last to the first, and returns when all are undone, as it
// does at once where they were before. An interrupted roll-back goes on where it was. The state keeps results, errors and
// times. Steps that are no [Undoer] have nothing to undo.
//
// It returns the errors that [Runner.Resume] does. After a [*StepError] it can be asked for again.
func (r *Runner[P, R]) Rollback(ctx context.Context, key Key, c Call) (*Result[R], error) {
	return r.existing(ctx, "roll back", key, c, decideRollback, r.undo)
}

func (r *Runner[P, R]) undo(ctx context.Context, s *State, steps Steps[R], token int64, c Call) (*Result[R], error) {
	j, err := r.job(s, steps, token, c)
	if err != nil {
		return nil, err
	}
	j.state.Status = StatusRollingBack
	undoer, _ := steps.(Undoer[R])
	if err := j.claim(ctx, s.Token); err != nil {
		return nil, err
	}
	for j.state.Status != StatusRolledBack {
		if err := j.batch(ctx, func(ctx context.Context, next *State) error { return j.undoSteps(ctx, next, undoer) }); err != nil {
			return j.result(), err
		}
	}
	return j.result(), nil
}

func (j *job[P, R]) undoSteps(ctx context.Context, next *State, undoer Undoer[R]) error {
	all := next.ReachedCount
	if undoer == nil {
		next.UndoneCount = all // They have no effects.
	}
	until := min(next.UndoneCount+j.r.o.Every, all)
	for next.UndoneCount < until {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		d := Done[R]{Step: all - 1 - next.UndoneCount}
		if d.Certain = d.Step < next.CompletedCount; d.Certain {
			d.Result = j.results[d.Step]
		}
		if err := undoer.Undo(ctx, d); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return &StepError{Step: d.Step, Undo: true, Err: err}
		}
		next.UndoneCount++
	}
	if next.UndoneCount == all {
		next.Status = StatusRolledBack
	}
	return nil
}
