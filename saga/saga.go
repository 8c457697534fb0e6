package saga

import (
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

// StuckAfter is how many times in a row a saga may fail before it is shown as stuck. The service goes on trying it.
const StuckAfter = 10

// ReasonCancelled is the reason of a step that an operator has cancelled, ReasonDeadline that of a step, or of a two-phase
// transaction, for which it had become too late, ReasonTwoPhaseUnavailable that of a transaction one of whose databases takes
// no prepared transactions, ReasonTransactionEnded that of one with a branch that returned [ErrTransactionEnded].
const (
	ReasonCancelled           = "cancelled"
	ReasonDeadline            = "deadline_exceeded"
	ReasonTwoPhaseUnavailable = "two_phase_unavailable"
	ReasonTransactionEnded    = "transaction_ended"
)

// StepState is what the log knows of a step or a branch.
type StepState struct {
	Name   string     `json:"name"`
	Status StepStatus `json:"status"`
	Reason string     `json:"reason,omitempty"` // of a refusal
	Result string     `json:"result,omitempty"` // what the step made
	Undone string     `json:"undone,omitempty"` // what its compensation made
	// Attempts is how often the step, or its compensation, has been tried, as far as the log knows: an attempt whose process died is
	// missing. Error is what the last of them failed with, empty where it did not.
	Attempts int    `json:"attempts,omitempty"`
	Error    string `json:"error,omitempty"`
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
	// DeadlineAt is when the way forward ends, by the log's clock; nil: never.
	DeadlineAt *time.Time
	Cancelled  bool // an operator wants it compensated

	Owner uuid.UUID
	// Term grows with each grant of the lease.
	Term int64
	// LeaseExpiresAt is the epoch where the run of the newest term has given the lease up.
	LeaseExpiresAt time.Time
	Version        int64 // grows with each change of the run's
	NextAt         time.Time
	Attempts       int    // that failed in a row
	LastError      string // of the last of them; one that has failed, or was compensated, always has one
	CreatedAt      time.Time
	UpdatedAt      time.Time
	EndedAt        *time.Time

	// Life is the log's incarnation under which the run of a two-phase transaction has begun; nil outside of one. The log does not keep it.
	Life uuid.UUID
	// Pending is the request that made it, while its answer is not decided.
	Pending *idempotency.Request
}

// Stuck reports whether the saga has failed StuckAfter times in a row.
func (s *Saga) Stuck() bool { return s.Status == Pending && s.Attempts >= StuckAfter }

// InDoubt reports whether it is decided to commit, and not yet known to be committed everywhere.
func (s *Saga) InDoubt() bool { return s.Status == Pending && s.Decided != 0 }

// Parked reports whether the run of the newest term has ended and given its lease up: it will write nothing any more.
func (s *Saga) Parked() bool { return !s.LeaseExpiresAt.After(time.Unix(0, 0)) }
