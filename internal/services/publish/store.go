package publish

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
)

// Unit is what one transaction works on.
type Unit struct {
	Now         time.Time // the database's clock, after the locks
	NewID       func() uuid.UUID
	Publication *Publication       // the one that is locked, where the transaction works on one
	Targets     map[string]*Target // those that exist of the names that were asked for
	// Target and Automation are those that are locked, likewise.
	Target          *Target
	Automation      *Automation
	AutomationNames map[string]bool // those that are taken, of the names that were asked for
	// Made and its like are to be inserted; Tokens by target, in place of what there is.
	Made            []*Publication
	MadeTargets     []*Target
	MadeAutomations []*Automation
	Tokens          map[uuid.UUID]Sealed
	Keys            *idempotency.Batch
	Audit           []command.Audit
	// Known and Fresh stand in for Keys where targets are made: the answers hold secrets and are sealed.
	Known, Fresh []idempotency.Record
	// Blocked is why nothing is locked: another session has locked it. Nothing is written then; the keys tell repeats.
	Blocked *command.BlockedError
}

// Store is what the service needs of a database. Each method but those of [Reader] runs one transaction, calls decide with
// what it locked and loaded, writes what decide changed, and commits; decide is called again with a new unit whenever the
// transaction has to be run again. Errors: command.ErrUnavailable, command.ErrUnknownOutcome, or what the database refused.
type Store interface {
	Reader
	// Create makes publications for the named targets.
	Create(ctx context.Context, targets []string, keys []idempotency.ID, decide func(*Unit)) error
	// CreateTargets makes targets of those names. decide may fail, and nothing is written then.
	CreateTargets(ctx context.Context, names []string, keys []idempotency.ID, decide func(*Unit) error) error
	// Commit works on one publication. It returns [NotFoundError] when there is no such publication.
	Commit(ctx context.Context, id uuid.UUID, keys []idempotency.ID, decide func(*Unit)) error
	// CommitTarget works on one target, as CreateTargets does. It returns [TargetNotFoundError] when there is no such target.
	CommitTarget(ctx context.Context, id uuid.UUID, keys []idempotency.ID, decide func(*Unit) error) error
	// CreateAutomations makes automations of those names for the named targets.
	CreateAutomations(ctx context.Context, names, targets []string, keys []idempotency.ID, decide func(*Unit)) error
	// CommitAutomation works on one automation. It returns [AutomationNotFoundError] when there is no such automation.
	CommitAutomation(ctx context.Context, id uuid.UUID, keys []idempotency.ID, decide func(*Unit)) error
}

// Reader answers questions.
type Reader interface {
	// Automation returns one automation, or [AutomationNotFoundError].
	Automation(ctx context.Context, id uuid.UUID) (*Automation, error)
	// Automations returns up to limit automations with a number above after, in order.
	Automations(ctx context.Context, after int64, limit int) ([]Automation, error)
	// Firings returns up to limit firings of an automation with a number above after, in order, or [AutomationNotFoundError].
	Firings(ctx context.Context, id uuid.UUID, after int64, limit int) ([]Firing, error)
	// Publication returns one publication with its payload, or [NotFoundError].
	Publication(ctx context.Context, id uuid.UUID) (*Publication, error)
	// Publications returns up to limit publications with a number above after, in order, without payloads; of one status
	// unless that is empty.
	Publications(ctx context.Context, status Status, after int64, limit int) ([]Publication, error)
	// Attempts returns up to limit attempts of a publication with a version above after, in order, or [NotFoundError].
	Attempts(ctx context.Context, id uuid.UUID, after int64, limit int) ([]Attempt, error)
	// Target returns one target, or [TargetNotFoundError].
	Target(ctx context.Context, id uuid.UUID) (*Target, error)
	// Targets returns up to limit targets with a number above after, in order.
	Targets(ctx context.Context, after int64, limit int) ([]Target, error)
}

// Claim is the right to make one attempt.
type Claim struct {
	Publication uuid.UUID
	LockID      uuid.UUID
	Version     int64
}

// Work is a claimed publication with all that an attempt needs.
type Work struct {
	Claim

	Target    *Target
	Payload   []byte
	Progress  []byte        // what an earlier attempt has saved, nil when there is none
	Try       int           // of the present run, from 1
	Late      time.Duration // how long it had been due when it was claimed
	ClaimedAt time.Time     // when that was, by the database's clock
}

// Slots say how much a worker can take.
type Slots struct {
	Total   int
	Each    int // how much of one target, but for those that Targets names
	Targets map[uuid.UUID]int
	// Keys name the vault's keys: what is sealed under another one cannot be sent by this process.
	Keys []string
}

// Conclusion is how an attempt ended.
type Conclusion struct {
	Claim
	Verdict
	Result

	Target uuid.UUID
	Slowed bool // whether the target was slowed when the publication was claimed
}

// Queue is what a worker needs of a database. Errors are those of [Store].
type Queue interface {
	// ClaimDue claims publications that are due by the database's clock, as many as there are slots for, for targets that
	// are open now.
	ClaimDue(ctx context.Context, s Slots) ([]*Work, error)
	// NextDue returns how long it is until something is due for a target that has a slot, by the database's clock; ok is
	// false when nothing is scheduled.
	NextDue(ctx context.Context, s Slots) (in time.Duration, ok bool, err error)
	// Heartbeat keeps claims alive and returns those that are lost.
	Heartbeat(ctx context.Context, claims []Claim) (lost []Claim, err error)
	// SaveProgress keeps what an attempt has brought about so far, for the next one. It returns [ErrClaimLost] when the claim
	// is not in force any more.
	SaveProgress(ctx context.Context, c Claim, progress []byte) error
	// Conclude records ends of attempts, and changes the publications of those whose claim is still in force; the others are
	// noted as refused. repace is asked for the new pace of each target that was throttled, or took something while slowed; a
	// target is paused when a verdict says so, unless it was resumed after the attempt had begun.
	// It returns the result recorded for each conclusion, empty where an attempt had ended before.
	Conclude(ctx context.Context, batch []Conclusion, repace func(c *Conclusion, p Pace, now time.Time) Pace) ([]AttemptResult, error)
	// ReleaseStale frees publications whose claim had no heartbeat for age, notes their attempts as lost, and returns how
	// many there were. Those without attempts left have failed.
	ReleaseStale(ctx context.Context, age time.Duration) (int, error)
}
