package checkpoint

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/lock"
)

// Steps are the steps of one operation, made ready.
type Steps[R any] interface {
	// Count is how many steps there are, up to [MaxSteps]; the same each time for the same parameters.
	Count() int
	// Do does a step, from 0, and returns its result. For the same parameters, seed and number it returns the same result
	// each time. Steps are done in order, one at a time. It may be asked for a step again that was not saved.
	Do(ctx context.Context, step int) (R, error)
}

// Undoer are [Steps] that have effects.
type Undoer[R any] interface {
	// Undo undoes a step, from the last that is done to the first. It may be asked again to undo what is undone already, which
	// must do nothing.
	Undo(ctx context.Context, d Done[R]) error
}

// Done is a step that is to be undone.
type Done[R any] struct {
	Step int
	// Result is what the step returned, where it is certain that it was done.
	Result R
	// Certain is false for a step that may have been done just before the operation was interrupted, but was not saved.
	Certain bool
}

// Definition is a kind of operation.
//
// Parameters P and results R go through [encoding/json], in the first run as in a resumed one: steps, roll-back and callers see
// what [json.Unmarshal] reads from what [json.Marshal] writes. So a number in a field of type any is a float64, and a field that
// JSON leaves out is zero. Text that is not UTF-8 is refused, and so is what can't be read back, such as parameters with more than
// 9,999 levels of arrays and objects, and results with more than 9,998: among the parameters with a [*ParameterError], before
// anything is done, and in a result with a [*StepError].
type Definition[P, R any] struct {
	// Name tells kinds apart: a state of one kind is none of another. It is kept in each state.
	Name string
	// Open makes the steps ready for parameters and a seed. Its error becomes a [*ParameterError], as do nil steps without an error.
	Open func(parameters P, seed Seed) (Steps[R], error)
	// ResultsName is what results are called in the state's JSON: [NameResults], also when it is empty, or [NamePrizeResults].
	ResultsName string
	// Pure says that the steps have no effects. Then [Runner.Rollback] also ends an operation that another program saved, whose
	// parameters nobody knows, see [State.Legacy].
	Pure bool
	// Adopt returns why the results of an operation that another program saved can't be those of these parameters, or nil.
	// Without it such an operation is never gone on with, see [Call.Adopt].
	Adopt func(parameters P, results []R) error
}

// Times that options have by default.
const (
	// DefaultTTL is for how long a state is kept after its last save.
	DefaultTTL = time.Hour
	// saveTimeout is how long the save of what is done may go on after the caller's context has ended.
	saveTimeout = 5 * time.Second
)

// Options of a [Runner]. All may be zero.
type Options struct {
	// Every is how many steps there are between two saves; 0 means 1. A run that is interrupted does up to so many steps again.
	Every int
	// TTL is for how long a state is kept after its last save; 0 means [DefaultTTL].
	TTL time.Duration
	// Transactional runs steps, and their undoing, in the transaction of the save. The store must be a [Transactor]. When a step
	// fails, the steps before it are committed, unless the transaction is lost with its connection.
	Transactional bool
	// Lock says how the lock is acquired. Its MaxHold should be 0.
	Lock     lock.Options
	Logger   *slog.Logger // gets each operation on the state at DEBUG, and failures at ERROR
	Observer Observer
}

// Call is what one call of a [Runner] brings along. All may be zero.
type Call struct {
	// Seed is that of an operation that is made; nil: a new one. Where the operation exists, it must be its own.
	Seed *Seed
	// Progress is called after each save. It must return quickly.
	Progress func(Progress)
	// Token guards the saves where the runner has no locks.
	Token int64
	// Adopt lets [Runner.Run] go on with an operation that another program saved, see [State.Legacy], and binds it to Run's
	// parameters and seed. Results that are there stay, and only the rest follows from the seed.
	Adopt bool
}

// Progress is how far an operation is.
type Progress struct {
	Key       Key
	Status    Status
	Completed int // steps done
	Total     int
	Undone    int
}

// Result is an operation as a call has left it. With an error it is what was saved before.
type Result[R any] struct {
	Progress

	Results []R // of the first Completed steps
	// Parameters are those that the operation was made with, as JSON.
	Parameters json.RawMessage
	// Errors are those that the operation's steps returned, on all runs, the last of them last.
	Errors    []Failure
	Seed      Seed
	StartedAt time.Time
	UpdatedAt time.Time
}

// Partial reports whether some steps are done, and not all.
func (r *Result[R]) Partial() bool { return r.Completed > 0 && r.Completed < r.Total }

// StepKey is a name for a step of an operation that no other step of any operation has, for the idempotency of its effects.
func StepKey(key Key, step int) string { return key.String() + ":" + strconv.Itoa(step) }
