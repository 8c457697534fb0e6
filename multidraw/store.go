package multidraw

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/idempotency"
)

// Unit is what one transaction works on.
type Unit struct {
	idempotency.Unit

	// Holder is the operation that has the lock key of one that is to be made, nil where it is free. Made, Seed and Chunks are
	// written where Made is set.
	Holder *uuid.UUID
	// Earlier is the operation itself, where an earlier run of the transaction was committed, and the answer to COMMIT lost.
	Earlier *Operation
	Made    *Operation
	Chunks  [][]byte

	Operation *Operation // the one that is locked; it is written where Changed is set

	Seed fairdraw.Seed // that of the operation
}

// Checkpoint is a chunk to be saved, and what the operation's row must say for it to be.
type Checkpoint struct {
	ID    uuid.UUID
	Term  int64
	From  int64 // draws that are saved before
	Chunk Chunk
	TTL   time.Duration // for which the lease is renewed
}

// Store is what the service needs of a database. Create and Update run one transaction, call decide with what it locked and
// loaded, write what decide changed, and commit; decide is called again with a new unit whenever the transaction has to be
// run again. Errors: command.ErrUnavailable, command.ErrUnknownOutcome, or what the database refused.
type Store interface {
	Reader
	// Create makes an operation of that id. There is one key or none.
	Create(ctx context.Context, id uuid.UUID, lockKey string, keys []idempotency.ID, decide func(*Unit)) error
	// Update works on one operation, with its seed. It returns [NotFoundError] when there is no such operation. Where
	// another session has locked the operation, it returns a command.BlockedError.
	Update(ctx context.Context, id uuid.UUID, keys []idempotency.ID, decide func(*Unit)) error
	// Checkpoint saves a chunk, renews the lease, and completes the operation with its last one, all or nothing. It returns
	// a [FencedError] unless the operation is running in that term and goes on where the chunk begins. That the same chunk
	// was saved in that term already is a success. Where another session has locked the operation, it returns a
	// command.BlockedError, and nothing was saved.
	Checkpoint(ctx context.Context, c *Checkpoint) error
	// Renew renews the leases of operations that run in a process.
	Renew(ctx context.Context, owner uuid.UUID, ids []uuid.UUID, ttl time.Duration) error
	// Expire makes every operation interrupted whose lease has expired, and returns those. Leases last for ttl: one that would
	// end later was written by a clock that was ahead, and ends by then. It leaves out what another session has locked.
	Expire(ctx context.Context, ttl time.Duration) ([]uuid.UUID, error)
}

// Reader answers questions about operations.
type Reader interface {
	// Operation returns one operation, or [NotFoundError].
	Operation(ctx context.Context, id uuid.UUID) (*Operation, error)
	// Operations returns up to limit operations with a number above after, in order, without prizes, seed and draws.
	Operations(ctx context.Context, after int64, limit int) ([]Operation, error)
	// Known returns the decided answers to keys.
	Known(ctx context.Context, keys []idempotency.ID) (*idempotency.Batch, error)
	// Saved returns the saved draws from to to (not included) of an operation, as far as there are so many.
	Saved(ctx context.Context, o *Operation, from, to int64) ([]byte, error)
}
