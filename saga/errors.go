package saga

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// Errors that callers get.
var (
	// ErrBadTransition is returned when an operator acts on a saga that has ended, or can't be compensated any more.
	ErrBadTransition = errors.New("the saga has ended, or is past the point of no return")
	// ErrOtherSaga is returned when a saga is started under the id of one with another name, protocol or input.
	ErrOtherSaga = errors.New("the id is that of another saga")
	// ErrTooManyRuns is returned when a process runs as many sagas as it may.
	ErrTooManyRuns = errors.New("this process runs as many sagas as it may")
	// ErrClosed is returned by a service that was closed.
	ErrClosed = errors.New("the service is closed")
	// ErrUnknownDefinition is returned for a saga whose definition this process doesn't have.
	ErrUnknownDefinition = errors.New("there is no definition of that name")
)

// Errors of participants and the log.
var (
	// ErrTwoPhaseUnavailable is returned by a database that takes no prepared transactions.
	ErrTwoPhaseUnavailable = errors.New("the database takes no prepared transactions (max_prepared_transactions is 0, or its engine has none): set it above 0 and restart the database, or use compensated steps")
	// ErrTransactionEnded is returned by a branch whose function has ended the branch's transaction itself. Nothing is prepared. What
	// the function had written before it committed stays, and is of no transaction.
	ErrTransactionEnded = errors.New("the branch's function has ended its transaction, which only its caller may: remove its COMMIT or ROLLBACK")
	// ErrNotPrepared is returned when a transaction that was decided to commit is neither prepared nor committed: the database
	// has lost it, in a failover to a server that lacks its last commits, or somebody has ended it by hand.
	ErrNotPrepared = errors.New("a transaction that was decided to commit is neither prepared nor committed")
	// ErrCancelled is returned when the decision to commit comes after an operator's to compensate.
	ErrCancelled = errors.New("an operator has cancelled the saga")
	// ErrLeaseLost is the cause with which the context of a step ends whose saga may be going on elsewhere.
	ErrLeaseLost = errors.New("the saga's lease was lost")
	// errUndoRefused keeps a compensation that refuses from being taken for one that was done.
	errUndoRefused = errors.New("a compensation must not refuse")
	// errBadResult keeps a result from being altered in the log.
	errBadResult = errors.New("the result is not UTF-8")
)

// NotFoundError is returned when a saga is named that does not exist.
type NotFoundError struct{ ID uuid.UUID }

func (e *NotFoundError) Error() string { return fmt.Sprintf("there is no saga %s", e.ID) }

// FencedError is returned when the log is written in a term that is over.
type FencedError struct {
	ID   uuid.UUID
	Term int64 // that the log is in
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("saga %s has gone on in term %d", e.ID, e.Term)
}
