package groupcommit

import (
	"errors"
	"fmt"
)

var (
	// ErrFull is returned when Options.MaxQueue commands already wait on the lane. The command was not
	// queued and never runs.
	ErrFull = errors.New("groupcommit: lane is full")

	// ErrLate is returned when no batch has taken the command for Options.Patience. It never runs.
	ErrLate = errors.New("groupcommit: no batch has taken the command in time")

	// ErrClosed is returned when the group no longer accepts commands, and to commands that were still
	// waiting when Close ran out of time. Unless ErrInFlight matches too, the command never ran.
	ErrClosed = errors.New("groupcommit: group is closed")

	// ErrInFlight is returned, together with the reason, when a caller had to be answered while its
	// command was already in a batch: its context ended (errors.Is matches the context's error as
	// well), or Close gave up on a flush that would not end (errors.Is matches ErrClosed as well). The
	// outcome is unknown to the caller: the command may have run, may still run, or may fail.
	ErrInFlight = errors.New("groupcommit: command is in flight, outcome unknown")

	// ErrResultCount is returned to every command of a batch whose flush reported success with a number of
	// results other than the number of commands. The batch may be committed, so it is never tried again and
	// the outcome is unknown.
	ErrResultCount = errors.New("groupcommit: flush returned a wrong number of results")
)

func inFlight(reason error) error { return fmt.Errorf("%w: %w", ErrInFlight, reason) }

// PanicError is returned when the flush panicked on a batch that held this command alone. A panic on a
// longer batch is a divisible failure and reaches a caller only if it recurs.
type PanicError struct {
	Value any    // what was passed to panic
	Stack []byte // the stack of the panicking goroutine, as runtime/debug.Stack formats it
}

// Error names the panic's value and leaves the stack out, so that it never reaches a user by accident.
func (e *PanicError) Error() string {
	return fmt.Sprintf("groupcommit: flush panicked: %v", e.Value)
}

// Unwrap gives the panic's value if it was an error, else nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
