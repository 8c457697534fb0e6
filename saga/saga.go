package saga

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
)

// Protocol says how the parts of a saga are held together.
type Protocol string

// The protocols.
const (
	Compensated Protocol = "saga"
	TwoPhase    Protocol = "twophase"
)

// Status is the state of a saga; all but pending are final.
type Status string

// The states of a saga.
const (
	Pending        Status = "pending"
	Completed      Status = "completed"
	Failed         Status = "failed"      // nothing has happened
	WasCompensated Status = "compensated" // what had happened was undone
)

// StepStatus is the state of a step or a branch.
type StepStatus string

// The states of a step.
const (
	StepPending     StepStatus = "pending"
	StepDone        StepStatus = "done"
	StepRefused     StepStatus = "refused"
	StepCompensated StepStatus = "compensated"
)

// StuckAfter is how many times in a row a saga may fail to get on before it is shown as stuck. It is tried further.
const StuckAfter = 10

// ReasonCancelled is the reason of a step that an operator has cancelled, ReasonDeadline that of a transaction that could
// not be prepared in time.
const (
	ReasonCancelled = "cancelled"
	ReasonDeadline  = "deadline_exceeded"
)

// StepState is what the log knows of a step or a branch.
type StepState struct {
	Name   string     `json:"name"`
	Status StepStatus `json:"status"`
	Reason string     `json:"reason,omitempty"` // of a refusal
	Result string     `json:"result,omitempty"` // what the step made
	Undone string     `json:"undone,omitempty"` // what its compensation made
}

// Saga is one operation as the log has it.
type Saga struct {
	ID       uuid.UUID
	Number   int64 // the order of lists
	Name     string
	Protocol Protocol
	Input    []byte // what the definition reads, JSON
	Status   Status
	Reason   string // of a failure or compensation
	Steps    []StepState
	Decided  int64 // the term in which a two-phase transaction was decided to commit; 0 before
	// Coordinator begins the identifiers of its prepared branches.
	Coordinator string
	Cancelled   bool // an operator wants it compensated

	Owner          uuid.UUID
	Term           int64
	LeaseExpiresAt time.Time
	Version        int64 // grows with each change of the run's
	NextAt         time.Time
	Attempts       int // that failed in a row
	LastError      string
	CreatedAt      time.Time
	UpdatedAt      time.Time
	EndedAt        *time.Time

	// Pending is the request that made it, while its answer is not decided.
	Pending *idempotency.Request
}

// Stuck reports whether the saga fails to get on.
func (s *Saga) Stuck() bool { return s.Status == Pending && s.Attempts >= StuckAfter }

// Outcome is what became of a step, for ever.
type Outcome struct {
	Refused bool
	Reason  string // of a refusal
	Result  string
}

// Call is one execution of a step.
type Call struct {
	Saga  uuid.UUID
	Step  string
	Input []byte
	// Undo says that the step is to be undone.
	Undo bool
	// Cancel asks for the step's outcome: refused as cancelled, unless it was done, or refused, already.
	Cancel bool
}

// Key is the same for each execution of a step, and another for its compensation.
func (c Call) Key() string {
	if c.Undo {
		return "undo." + c.Step
	}
	return c.Step
}

// Step is a step of a compensated saga. Both functions may be called again after an error, by another process too, and
// must then change nothing a second time. An error says that the outcome is not known.
type Step struct {
	Name string
	Do   func(ctx context.Context, c Call) (Outcome, error)
	// Undo must not refuse; nil where there is nothing to undo.
	Undo func(ctx context.Context, c Call) (Outcome, error)
}

// Participant is a database that can prepare transactions. It is safe for concurrent use.
type Participant interface {
	// CommitPrepared commits a prepared transaction, which may have been committed already.
	CommitPrepared(ctx context.Context, gid string) error
	// RollbackPrepared rolls a prepared transaction back; that there is none is a success.
	RollbackPrepared(ctx context.Context, gid string) error
	// InDoubt lists the prepared transactions whose identifiers begin so.
	InDoubt(ctx context.Context, prefix string) ([]string, error)
}

// Branch is one database's part of a two-phase transaction. Prepare leaves a prepared transaction where it doesn't refuse;
// after an error it may have.
type Branch struct {
	Name        string
	Participant Participant
	Prepare     func(ctx context.Context, c Call, gid string) (Outcome, error)
}

// Plan is how a saga is carried out: by steps, or, with [TwoPhase], by branches in the order in which all sagas prepare.
type Plan struct {
	Steps    []Step
	Branches []Branch
}

// Definition makes plans for the sagas of its name.
type Definition struct {
	Name string
	Plan func(s *Saga) (Plan, error)
}

// Errors.
var (
	// ErrBadTransition is returned when an operator acts on a saga that has ended, or can't be compensated any more.
	ErrBadTransition = errors.New("the saga has ended, or is past the point of no return")
	// ErrTooManyRuns is returned when a process runs as many sagas as it may.
	ErrTooManyRuns = errors.New("this process runs as many sagas as it may")
	// ErrClosed is returned by a service that was closed.
	ErrClosed = errors.New("the service is closed")
	// ErrUnknownDefinition is returned for a saga whose definition this process doesn't have.
	ErrUnknownDefinition = errors.New("there is no definition of that name")
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

// GID names the branch of a two-phase transaction in a term.
func GID(coordinator string, id uuid.UUID, term int64, branch int) string {
	return fmt.Sprintf("%s:%s:%d:%d", coordinator, id, term, branch)
}

// ParseGID reads what [GID] made after the coordinator's part.
func ParseGID(coordinator, gid string) (id uuid.UUID, term int64, ok bool) {
	rest, ok := strings.CutPrefix(gid, coordinator+":")
	parts := strings.Split(rest, ":")
	if !ok || len(parts) != 3 {
		return id, 0, false
	}
	id, err := uuid.Parse(parts[0])
	if err != nil {
		return id, 0, false
	}
	term, err = strconv.ParseInt(parts[1], 10, 64)
	return id, term, err == nil
}

// IDOfGID finds the saga in what [GID] made.
func IDOfGID(gid string) (uuid.UUID, bool) {
	parts := strings.Split(gid, ":")
	if len(parts) < 4 {
		return uuid.UUID{}, false
	}
	id, err := uuid.Parse(parts[len(parts)-3])
	return id, err == nil
}
