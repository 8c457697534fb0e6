package multidraw

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// The errors of this package. Callers test for them with [errors.Is].
var (
	// ErrBadParameters is returned, inside a [*ParameterError], when parameters break a rule.
	ErrBadParameters = errors.New("bad parameters")
	// ErrOtherParameters is returned when a state belongs to draws of other parameters, another seed or another name.
	ErrOtherParameters = errors.New("the state belongs to other parameters")
	// ErrCorrupt is returned, inside a [*CorruptError], when a saved state contradicts itself. Nothing is changed then.
	ErrCorrupt = errors.New("the saved state is corrupt")
	// ErrLockHeld is returned, inside a [*LockHeldError], when another operation has the lock key.
	ErrLockHeld = errors.New("the lock key is held by another operation")
	// ErrBadTransition is returned when the operation's status does not allow what was asked.
	ErrBadTransition = errors.New("the operation's status does not allow this")
	// ErrFenced is returned, inside a [*FencedError], when a checkpoint came from a process that the operation no longer
	// belongs to.
	ErrFenced = errors.New("the operation belongs to another run")
	// ErrTooManyRuns is returned when the process runs as many operations as it may. Nothing was changed.
	ErrTooManyRuns = errors.New("too many operations are running")
	// ErrNotCompleted is returned when something is asked for that exists once all is drawn.
	ErrNotCompleted = errors.New("the operation is not completed")
	// ErrClosed is returned once the service is closed.
	ErrClosed = errors.New("the multi-draws are closed")
)

// ParameterError says which parameter breaks which rule. It unwraps to [ErrBadParameters].
type ParameterError struct {
	Field  string // such as "prizes[2].weight"
	Reason string
}

func (e *ParameterError) Error() string { return e.Field + " " + e.Reason }

func (e *ParameterError) Unwrap() error { return ErrBadParameters }

func bad(field, format string, args ...any) error {
	return &ParameterError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// CorruptError says what of a saved state can't be true. It unwraps to [ErrCorrupt].
type CorruptError struct{ Reason string }

func (e *CorruptError) Error() string { return ErrCorrupt.Error() + ": " + e.Reason }

func (e *CorruptError) Unwrap() error { return ErrCorrupt }

func corrupt(format string, args ...any) error {
	return &CorruptError{Reason: fmt.Sprintf(format, args...)}
}

// LockHeldError names the operation that has the lock key. It unwraps to [ErrLockHeld].
type LockHeldError struct {
	LockKey string
	Holder  uuid.UUID
}

func (e *LockHeldError) Error() string {
	return fmt.Sprintf("the lock key is held by the multi-draw %s, until that is completed or rolled back", e.Holder)
}

func (e *LockHeldError) Unwrap() error { return ErrLockHeld }

// FencedError says how an operation stands that a checkpoint was refused for. It unwraps to [ErrFenced].
type FencedError struct {
	ID        uuid.UUID
	Term      int64 // of the row; that of the checkpoint was lower, or the rest did not fit
	Status    Status
	Completed int64
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("%v: %s is %s in term %d with %d draws", ErrFenced, e.ID, e.Status, e.Term, e.Completed)
}

func (e *FencedError) Unwrap() error { return ErrFenced }

// NotFoundError is returned when there is no such operation.
type NotFoundError struct{ ID uuid.UUID }

func (e *NotFoundError) Error() string { return fmt.Sprintf("there is no multi-draw %s", e.ID) }
