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

// trace begins a trace where one is wanted.
func (s *Service) trace(ctx context.Context, p Phase, c Call) (context.Context, func(Outcome, error)) {
	if s.o.Trace == nil {
		return ctx, func(Outcome, error) {}
	}
	return s.o.Trace(ctx, p, c)
}

// traced executes f under a trace. Where f is nil, there is nothing to do or trace.
func (s *Service) traced(ctx context.Context, p Phase, c Call, f func(context.Context, Call) (Outcome, error)) (Outcome, error) {
	if f == nil {
		return Outcome{}, nil
	}
	ctx, end := s.trace(ctx, p, c)
	out, err := s.execute(ctx, c, f)
	end(out, err)
	return out, err
}
