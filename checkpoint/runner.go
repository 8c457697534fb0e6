package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fairlead-dev/fairlead/lock"
)

// Runner runs operations of one kind. It is safe for concurrent use.
type Runner[P, R any] struct {
	def   Definition[P, R]
	store Store
	locks *lock.Locker
	o     Options
}

// New returns a runner that keeps states in store and runs each operation under a lock on its lock key. Without locks (nil),
// it is up to the caller that an operation has one runner at a time; the store still refuses the saves of all but one. It
// returns a [*ParameterError], or [ErrNoTransactions].
func New[P, R any](def Definition[P, R], store Store, locks *lock.Locker, o Options) (*Runner[P, R], error) {
	o.Every = cmp.Or(o.Every, 1)
	o.TTL = cmp.Or(o.TTL, DefaultTTL)
	def.ResultsName = cmp.Or(def.ResultsName, NameResults)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	_, transacts := store.(Transactor)
	switch {
	case !lock.ValidName(def.Name):
		return nil, invalid("name", "must have 1 to %d characters and no control characters", lock.MaxNameLength)
	case store == nil:
		return nil, invalid("the store", "is needed")
	case def.Open == nil:
		return nil, invalid("open", "is needed")
	case def.ResultsName != NameResults && def.ResultsName != NamePrizeResults:
		return nil, invalid("the name of results", "must be %s or %s", NameResults, NamePrizeResults)
	case o.Every < 1 || o.Every > MaxSteps:
		return nil, invalid("every", "must be from 1 to %d", MaxSteps)
	case o.TTL < time.Millisecond:
		return nil, invalid("ttl", "must be a millisecond or more")
	case o.Transactional && !transacts:
		return nil, ErrNoTransactions
	}
	return &Runner[P, R]{def: def, store: store, locks: locks, o: o}, nil
}

// Load returns the state of an operation, or nil where there is none. It returns a [*CorruptError], which leaves the state as
// it is, or the store's error.
func (r *Runner[P, R]) Load(ctx context.Context, key Key) (s *State, err error) {
	if err = key.Validate(); err == nil {
		s, err = r.load(ctx, key)
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint: load: %w", err)
	}
	return s, nil
}

func (r *Runner[P, R]) load(ctx context.Context, key Key) (s *State, err error) {
	began := time.Now()
	body, err := r.store.Load(ctx, key)
	defer func() { r.report(ctx, OpLoad, key, len(body), began, err) }()
	if err != nil || body == nil {
		return nil, err
	}
	s, err = Decode(body)
	if err == nil && s.Legacy() {
		s.replaces = body
	}
	if c, ok := errors.AsType[*CorruptError](err); ok {
		return nil, &CorruptError{Key: key, Reason: c.Reason}
	}
	if err != nil {
		return nil, err
	}
	if s.LockKey != key.LockKey || (!s.Legacy() && s.ID != key.ID) {
		return nil, &CorruptError{Key: key, Reason: fmt.Sprintf("it is that of %s", s.Key())}
	}
	return s, nil
}

// Delete forgets an operation, whatever its state says, and even where that is corrupt. A run that is under way ends with
// [ErrLost].
func (r *Runner[P, R]) Delete(ctx context.Context, key Key) error {
	err := key.Validate()
	if err == nil {
		began := time.Now()
		err = r.store.Delete(ctx, key)
		r.report(ctx, OpDelete, key, 0, began, err)
	}
	if err != nil {
		return fmt.Errorf("checkpoint: delete: %w", err)
	}
	return nil
}

// Run begins an operation, or goes on with it where it is running, and returns when it is completed, as it does at once
// where it was completed before. With most errors it returns what is done and saved, too. The definition gets the parameters as
// they are read from their JSON, see [Definition].
//
// Errors: [ErrOtherParameters], [ErrBadTransition], [ErrLegacy], a [*ParameterError], a [*StepError], a [*CorruptError], a
// [*ConnectionError], a [*SizeError], a [*FencedError], [ErrLost], the errors of acquiring the lock, and the cause of the
// end of its context.
func (r *Runner[P, R]) Run(ctx context.Context, key Key, parameters P, c Call) (*Result[R], error) {
	return r.under(ctx, "run", key, c, func(ctx context.Context, token int64) (*Result[R], error) {
		text, err := marshal(parameters, parametersLevels)
		if err != nil {
			return nil, &ParameterError{Field: "parameters", Reason: "cannot be written as JSON: " + err.Error(), Err: err}
		}
		if parameters, err = read[P](text); err != nil { // As a resumed run has them.
			return nil, &ParameterError{Field: "parameters", Reason: "cannot be read from their own JSON: " + err.Error(), Err: err}
		}
		seed := NewSeed()
		if c.Seed != nil {
			seed = *c.Seed
		}
		steps, err := r.open(parameters, seed)
		if err != nil {
			return nil, err
		}
		s, err := r.load(ctx, key)
		if err != nil {
			return nil, err
		}
		if s != nil && s.Legacy() && c.Adopt && r.def.Adopt != nil {
			if s, err = r.adopt(key, s, parameters, text, steps.Count(), seed); err != nil {
				return nil, err
			}
		}
		hash := hashOf(r.def.Name, steps.Count(), text)
		what, err := decideRun(s, r.def.Name, hash, c.Seed)
		if err != nil {
			return nil, err
		}
		if what != actCreate {
			return r.goOn(ctx, s, what, token, c, false)
		}
		now := time.Now().Unix()
		s = &State{
			LockKey: key.LockKey, ID: key.ID, Kind: r.def.Name, Status: StatusRunning, Parameters: text, ParametersHash: hash,
			Seed: seed, TotalCount: steps.Count(), StartTime: now, LastUpdateTime: now, Results: []byte("[]"),
			ResultsName: r.def.ResultsName,
		}
		return r.advance(ctx, s, steps, token, c, false)
	})
}

// Resume goes on with an operation that is running, and returns what [Runner.Run] does, and [ErrNotFound]. It takes the
// parameters from the state.
func (r *Runner[P, R]) Resume(ctx context.Context, key Key, c Call) (*Result[R], error) {
	return r.existing(ctx, "resume", key, c, decideResume, false)
}

// existing does what decide says with an operation that exists.
func (r *Runner[P, R]) existing(ctx context.Context, verb string, key Key, c Call, decide func(*State, string) (act, error), undo bool) (*Result[R], error) {
	return r.under(ctx, verb, key, c, func(ctx context.Context, token int64) (*Result[R], error) {
		s, err := r.load(ctx, key)
		if err != nil {
			return nil, err
		}
		if s != nil && s.Legacy() && undo && r.def.Pure {
			if s, err = r.bind(key, s, []byte("null"), s.TotalCount, Seed{}); err != nil {
				return nil, err
			}
		}
		what, err := decide(s, r.def.Name)
		if err != nil {
			return nil, err
		}
		return r.goOn(ctx, s, what, token, c, undo)
	})
}

func (r *Runner[P, R]) goOn(ctx context.Context, s *State, what act, token int64, c Call, undo bool) (*Result[R], error) {
	if what == actReturn {
		j, err := r.job(s, nil, token, c)
		if err != nil {
			return nil, err
		}
		return j.result(), nil
	}
	if undo && r.def.Pure {
		return r.advance(ctx, s, nil, token, c, true)
	}
	steps, err := r.reopen(s)
	if err != nil {
		return nil, err
	}
	return r.advance(ctx, s, steps, token, c, undo)
}

func (r *Runner[P, R]) open(parameters P, seed Seed) (Steps[R], error) {
	steps, err := r.def.Open(parameters, seed)
	if err != nil {
		return nil, &ParameterError{Field: "parameters", Reason: err.Error(), Err: err}
	}
	if steps == nil {
		return nil, invalid("open", "returned no steps")
	}
	if n := steps.Count(); n < 0 || n > MaxSteps {
		return nil, invalid("steps", "must be 0 to %d, not %d", MaxSteps, n)
	}
	return steps, nil
}

// reopen makes the steps ready for the parameters that are saved.
func (r *Runner[P, R]) reopen(s *State) (Steps[R], error) {
	parameters, err := read[P](s.Parameters)
	if err != nil {
		return nil, &CorruptError{Key: s.Key(), Reason: "its parameters cannot be read: " + err.Error()}
	}
	steps, err := r.open(parameters, s.Seed)
	if err != nil {
		return nil, err
	}
	if steps.Count() != s.TotalCount {
		return nil, ErrOtherParameters
	}
	return steps, nil
}

// under calls fn under the lock of the key, with its token.
func (r *Runner[P, R]) under(ctx context.Context, verb string, key Key, c Call, fn func(context.Context, int64) (*Result[R], error)) (res *Result[R], err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("checkpoint: %s %s: %w", verb, key, err)
		}
	}()
	if err := key.Validate(); err != nil {
		return nil, err
	}
	if r.locks == nil {
		if c.Token < 0 {
			return nil, invalid("token", "must not be negative")
		}
		return fn(ctx, c.Token)
	}
	held, err := r.locks.Acquire(ctx, []string{key.LockKey}, r.o.Lock)
	if err != nil {
		return nil, err
	}
	defer func() {
		if released := held.Release(ctx); released != nil && err == nil && !errors.Is(released, lock.ErrLost) {
			// What is done is done; the lock expires.
			r.o.Logger.WarnContext(ctx, "checkpoint: the lock was not released", "key", key.String(), "error", released)
		}
	}()
	return fn(held.Context(), held.Token(key.LockKey)) //nolint:contextcheck // Made from ctx by the lock.
}
