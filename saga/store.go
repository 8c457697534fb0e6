package saga

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
)

// Unit is what one transaction on the log works on.
type Unit struct {
	idempotency.Unit

	Existing *Saga // has the id already; may be nil
	Made     *Saga // is written where it is set
	// Saga is the one that is locked. Where Changed is set, what an operator and an answer change of it is written: Pending,
	// Cancelled, NextAt, Attempts.
	Saga *Saga
}

// Store is the durable log. Create and Update run one transaction, call decide with what it locked and loaded, write what
// decide changed, and commit; decide is called again with a new unit whenever the transaction has to be run again. Errors:
// command.ErrUnavailable, command.ErrUnknownOutcome, or what the database refused.
type Store interface {
	Reader
	Lineage
	// Create makes a saga with an id. There is one key or none.
	Create(ctx context.Context, id uuid.UUID, keys []idempotency.ID, decide func(*Unit)) error
	// Update works on one saga. It returns [NotFoundError] when there is no such saga. It may wait for another session that has
	// locked the saga, or return a command.BlockedError.
	Update(ctx context.Context, id uuid.UUID, keys []idempotency.ID, decide func(*Unit)) error
	// Save writes what a run has changed of a saga, makes its version one greater, and reads whether it was cancelled. It
	// returns a [FencedError] unless the log is in the saga's term and version, or has just this change already, and
	// [ErrCancelled] instead of a decision to commit what was cancelled. What a saga with a Life decides, or ends with, is only written under
	// that incarnation of the log; else Save returns [ErrOtherLife]. It may return a command.BlockedError where another
	// session has locked the saga. With park, the lease is given up, and the saga is
	// due again after that time.
	Save(ctx context.Context, s *Saga, park *time.Duration) error
	// Claim takes up to limit pending sagas of these names that are due and that nobody has a lease of, each in a new term.
	Claim(ctx context.Context, owner uuid.UUID, names []string, ttl time.Duration, limit int) ([]*Saga, error)
	// Renew renews the leases of sagas that run in a process, and returns those that it has renewed.
	Renew(ctx context.Context, owner uuid.UUID, ids []uuid.UUID, ttl time.Duration) ([]uuid.UUID, error)
	// Ended returns up to limit sagas that ended longer ago than age, by the log's clock, oldest first, without those to be
	// spared.
	Ended(ctx context.Context, age time.Duration, spare []uuid.UUID, limit int) ([]uuid.UUID, error)
	// Delete deletes those of these sagas that have ended and that nobody else is deleting at this moment, and returns how
	// many these were.
	Delete(ctx context.Context, ids []uuid.UUID) (int, error)
}

// Query selects sagas for a list.
type Query struct {
	Name   string      // of the definition; empty: of all
	Status Status      // empty: any
	Stuck  bool        // only stuck ones
	IDs    []uuid.UUID // unless it is nil: only these
	After  int64       // those with greater numbers alone, in their order
	Before int64       // unless it is 0: those with smaller numbers alone, newest first
	Limit  int
}

// Reader answers questions about sagas.
type Reader interface {
	// Saga returns one saga, or [NotFoundError].
	Saga(ctx context.Context, id uuid.UUID) (*Saga, error)
	// Find returns the sagas with these ids that exist, in no order.
	Find(ctx context.Context, ids []uuid.UUID) ([]*Saga, error)
	// Sagas lists sagas in the order of their numbers, or backwards.
	Sagas(ctx context.Context, q Query) ([]*Saga, error)
	// Known returns the decided answers to keys.
	Known(ctx context.Context, keys []idempotency.ID) (*idempotency.Batch, error)
}
