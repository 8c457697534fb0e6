package checkpoint

// act is what a run has to do with the state that it found.
type act int

const (
	actCreate act = iota // there is none
	actGoOn              // steps, or undoing, are left
	actReturn            // nothing is left; the state says how it ended
)

// decideRun decides what becomes of a request to run an operation with parameters of that hash. It returns [ErrLegacy],
// [ErrOtherParameters], or [ErrBadTransition] where the operation is being rolled back or was.
func decideRun(s *State, kind, hash string, seed *Seed) (act, error) {
	switch {
	case s == nil:
		return actCreate, nil
	case s.Legacy():
		return actReturn, ErrLegacy
	case s.Kind != kind || s.ParametersHash != hash || (seed != nil && *seed != s.Seed):
		return actReturn, ErrOtherParameters
	}
	return decideResume(s, kind)
}

// decideResume decides the same for a request that names no parameters. It returns [ErrNotFound], too.
func decideResume(s *State, kind string) (act, error) {
	switch {
	case s == nil:
		return actReturn, ErrNotFound
	case s.Legacy():
		return actReturn, ErrLegacy
	case s.Kind != kind:
		return actReturn, ErrOtherParameters
	case s.Status == StatusCompleted:
		return actReturn, nil
	case s.Status == StatusRunning:
		return actGoOn, nil
	}
	return actReturn, ErrBadTransition
}

// decideRollback decides what becomes of a request to undo an operation. That it is undone already is no error.
func decideRollback(s *State, kind string) (act, error) {
	switch {
	case s == nil:
		return actReturn, ErrNotFound
	case s.Legacy():
		return actReturn, ErrLegacy
	case s.Kind != kind:
		return actReturn, ErrOtherParameters
	case s.Status == StatusRolledBack:
		return actReturn, nil
	}
	return actGoOn, nil
}
