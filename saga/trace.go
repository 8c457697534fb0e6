package saga

import "context"

// Phase is what is done with a step or a branch.
type Phase string

// The phases: the first two are those of a compensated saga's steps, the others those of a two-phase transaction's branches.
const (
	PhaseDo      Phase = "do"
	PhaseUndo    Phase = "undo"
	PhasePrepare Phase = "prepare"
	PhaseCommit  Phase = "commit"
)

// Trace begins the trace of one execution of a step or a branch, which runs under the context that it returns; end is called
// with what came of it. It must not block.
type Trace func(ctx context.Context, p Phase, c Call) (step context.Context, end func(Outcome, error))

// traced runs f under a trace where somebody wants one. Where f is nil, nothing is done and there is nothing to tell.
func (s *Service) traced(ctx context.Context, p Phase, c Call, f func(context.Context, Call) (Outcome, error)) (Outcome, error) {
	if s.o.Trace == nil || f == nil {
		return s.execute(ctx, c, f)
	}
	ctx, end := s.o.Trace(ctx, p, c)
	out, err := s.execute(ctx, c, f)
	end(out, err)
	return out, err
}

// traceCommit is traced for the commit of a branch, which has no outcome of its own.
func (s *Service) traceCommit(ctx context.Context, c Call, commit func(ctx context.Context, gid string) error) error {
	if s.o.Trace == nil {
		return commit(ctx, c.GID)
	}
	ctx, end := s.o.Trace(ctx, PhaseCommit, c)
	err := commit(ctx, c.GID)
	end(Outcome{}, err)
	return err
}
