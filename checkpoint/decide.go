package checkpoint

// act is what a run has to do with the state that it found.
type act int

const (
	actCreate act = iota // there is none
	actGoOn              // steps, or undoing, are left
	actReturn            // nothing is left; the state says how it ended
)

// known returns why a state can't be gone on with: [ErrNotFound], [ErrLegacy] or [ErrOtherParameters].
func known(s *State, kind string) error {
	switch {
	case s == nil:
		return ErrNotFound
	case s.Legacy():
		return ErrLegacy
	case s.Kind != kind:
		return ErrOtherParameters
	}
	return nil
}

// decideRun decides on a request to run an operation with parameters of that hash. It returns [ErrLegacy],
// [ErrOtherParameters], or [ErrBadTransition] when the operation is being rolled back, or was.
func decideRun(s *State, kind, hash string, seed *Seed) (act, error) {
	if s == nil {
		return actCreate, nil
	}
	what, err := decideResume(s, kind)
	if !s.Legacy() && (s.ParametersHash != hash || (seed != nil && *seed != s.Seed)) {
		return actReturn, ErrOtherParameters
	}
	return what, err
}

// decideResume decides on a request that names no parameters. It returns [ErrNotFound], too.
func decideResume(s *State, kind string) (act, error) {
	if err := known(s, kind); err != nil {
		return actReturn, err
	}
	switch s.Status {
	case StatusCompleted:
		return actReturn, nil
	case StatusRunning:
		return actGoOn, nil
	case StatusRollingBack, StatusRolledBack:
	}
	return actReturn, ErrBadTransition
}

// decideRollback decides on a request to undo an operation. That it is undone already is no error.
func decideRollback(s *State, kind string) (act, error) {
	if err := known(s, kind); err != nil || s.Status == StatusRolledBack {
		return actReturn, err
	}
	return actGoOn, nil
}
