package checkpoint

import "context"

// Rollback undoes the steps of an operation that are done, from the last to the first, and returns when all are undone, as it
// does at once where they were before. An interrupted roll-back goes on where it was. The state keeps results, errors and
// times. Steps that are no [Undoer] have nothing to undo.
//
// It returns the errors that [Runner.Resume] does. After a [*StepError] it can be asked for again.
func (r *Runner[P, R]) Rollback(ctx context.Context, key Key, c Call) (*Result[R], error) {
	return r.existing(ctx, "roll back", key, c, decideRollback, true)
}

// undo undoes steps until the next save is due. It returns the error of the first that failed.
func (j *job[P, R]) undo(ctx context.Context, next *State) error {
	undoer, _ := j.steps.(Undoer[R])
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
		if err := j.step(ctx, func(ctx context.Context) error { return undoer.Undo(ctx, d) }); err != nil {
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
