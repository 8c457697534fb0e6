package checkpoint

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead-dev/fairlead/lock"
)

// The errors of this package. Callers test for them with [errors.Is].
var (
	// ErrCorrupt is returned, inside a [*CorruptError], when a saved state cannot be read or contradicts itself. It stays as
	// it is.
	ErrCorrupt = errors.New("the saved state is corrupt")
	// ErrConnection is returned, inside a [*ConnectionError], when the store could not be reached, or did not do what it was
	// asked, as often as it was asked.
	ErrConnection = errors.New("the store of saved states failed")
	// ErrInvalid is returned, inside a [*ParameterError], when parameters or names break a rule. Nothing was changed.
	ErrInvalid = errors.New("invalid parameters")
	// ErrOtherParameters is returned when an operation exists under the id, with other parameters, another seed, or of another
	// kind. Nothing was changed.
	ErrOtherParameters = errors.New("the operation exists with other parameters")
	// ErrFenced is returned, inside a [*FencedError], when the operation belongs to another run now.
	ErrFenced = errors.New("the operation belongs to another run")
	// ErrLost is returned when the state that a run saved is gone: deleted, expired, or forgotten by the store. It is not
	// written anew.
	ErrLost = errors.New("the saved state is gone")
	// ErrLegacy is returned when the state was written by a program that did not bind it to its parameters, and the call was not
	// told to adopt it, or needs parameters that nobody knows. It stays as it is.
	ErrLegacy = errors.New("the saved state is not bound to its parameters")
	// ErrTooLarge is returned, inside a [*SizeError], when a state would pass [MaxBytes]. What was saved before stays.
	ErrTooLarge = errors.New("the state is too large")
	// ErrBadTransition is returned when the operation's status does not allow what was asked.
	ErrBadTransition = errors.New("the operation's status does not allow this")
	// ErrNotFound is returned when an operation is to go on, or to be rolled back, that the store does not know.
	ErrNotFound = errors.New("there is no such operation")
	// ErrNoTransactions is returned by [New] when Transactional is asked of a store that has no transactions.
	ErrNoTransactions = errors.New("the store has no transactions")
)

// Severity says who can help when an error comes.
type Severity string

// The severities.
const (
	// SeverityNone is that of no error.
	SeverityNone Severity = "none"
	// SeverityTransient errors pass: trying the same again later may help.
	SeverityTransient Severity = "transient"
	// SeverityCaller errors stay until the caller asks for something else.
	SeverityCaller Severity = "caller"
	// SeverityStep errors are those of the operation's own steps. Once their reason is gone the operation can go on.
	SeverityStep Severity = "step"
	// SeverityCritical errors need a person: what was saved is gone or cannot be trusted.
	SeverityCritical Severity = "critical"
)

// SeverityOf grades any error that this package returns. Errors that it does not know are the steps' own.
func SeverityOf(err error) Severity {
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
	}
	switch {
	case err == nil:
		return SeverityNone
	case is(ErrCorrupt, ErrLost, ErrLegacy):
		return SeverityCritical
	case is(ErrConnection, lock.ErrHeld, lock.ErrLost, lock.ErrTooManyWaiters, ErrFenced):
		return SeverityTransient
	case is(ErrInvalid, ErrOtherParameters, ErrTooLarge, ErrBadTransition, ErrNotFound, ErrNoTransactions, lock.ErrInvalid):
		return SeverityCaller
	}
	return SeverityStep
}

// CorruptError says what of a saved state can't be true. It unwraps to [ErrCorrupt].
type CorruptError struct {
	Key    Key // zero where the state was decoded by itself
	Reason string
}

func (e *CorruptError) Error() string {
	if e.Key == (Key{}) {
		return ErrCorrupt.Error() + ": " + e.Reason
	}
	return fmt.Sprintf("%v: %s: %s", ErrCorrupt, e.Key, e.Reason)
}

// Unwrap gives [ErrCorrupt].
func (e *CorruptError) Unwrap() error { return ErrCorrupt }

func corrupt(format string, args ...any) error {
	return &CorruptError{Reason: fmt.Sprintf(format, args...)}
}

// ConnectionError tells what a store was asked, how often, and how it failed last. It unwraps to [ErrConnection] and to Err.
type ConnectionError struct {
	Op       string // load, save, delete
	Key      Key
	Attempts int
	Err      error
}

func (e *ConnectionError) Error() string {
	return fmt.Sprintf("%v: %s %s, tried %d times: %v", ErrConnection, e.Op, e.Key, e.Attempts, e.Err)
}

// Unwrap gives [ErrConnection], and the last failure.
func (e *ConnectionError) Unwrap() []error { return []error{ErrConnection, e.Err} }

// ParameterError says which parameter breaks which rule. It unwraps to [ErrInvalid], and to Err where a definition refused
// the parameters.
type ParameterError struct {
	Field  string
	Reason string
	Err    error // may be nil
}

func (e *ParameterError) Error() string { return e.Field + " " + e.Reason }

// Unwrap gives [ErrInvalid], and the definition's error.
func (e *ParameterError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrInvalid}
	}
	return []error{ErrInvalid, e.Err}
}

func invalid(field, format string, args ...any) error {
	return &ParameterError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// FencedError says what a save was refused for. It unwraps to [ErrFenced].
type FencedError struct {
	Key  Key
	Want Head // what the save came with
	Seen Head // what the store has
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("%v: %s is at revision %d under token %d, and revision %d came under token %d",
		ErrFenced, e.Key, e.Seen.Revision, e.Seen.Token, e.Want.Revision, e.Want.Token)
}

// Unwrap gives [ErrFenced].
func (e *FencedError) Unwrap() error { return ErrFenced }

// SizeError says how large a state would be. It unwraps to [ErrTooLarge].
type SizeError struct{ Bytes int }

func (e *SizeError) Error() string {
	return fmt.Sprintf("%v: %d bytes, at most %d", ErrTooLarge, e.Bytes, MaxBytes)
}

// Unwrap gives [ErrTooLarge].
func (e *SizeError) Unwrap() error { return ErrTooLarge }

// StepError is returned when a step failed, or the undoing of one. Everything before it is saved, unless the step has ended or
// lost the transaction that it had with the steps before it, see [Options.Transactional].
type StepError struct {
	Step int
	Undo bool
	Err  error
}

func (e *StepError) Error() string {
	verb := "step"
	if e.Undo {
		verb = "undo step"
	}
	return fmt.Sprintf("%s %d: %v", verb, e.Step, e.Err)
}

// Unwrap gives the step's own error.
func (e *StepError) Unwrap() error { return e.Err }
