package leader

import (
	"context"
	"errors"
	"time"
)

// ErrLeaseLost is the cause with which a tenure's context ends when the lease was lost, or might have been. It is also
// returned by a [Lease] that is asked to resign what its caller no longer holds.
var ErrLeaseLost = errors.New("the lease is lost")

// Lease keeps leases by name. Its own clock decides when they expire. Every method honours its context, may be called
// concurrently, and fails rather than hang; an error says nothing about whether the call took effect.
type Lease interface {
	// Acquire takes the lease for ttl if nobody holds it, under a term higher than all before, also for a holder that had
	// it before. Where it is held, by the caller or another, ok is false and wait says for how long it still is; zero
	// means that it is worth trying again at once.
	Acquire(ctx context.Context, name, holder string, ttl time.Duration) (term int64, ok bool, wait time.Duration, err error)
	// Renew lets the lease expire ttl from now, if holder still has it under term; otherwise ok is false.
	Renew(ctx context.Context, name, holder string, term int64, ttl time.Duration) (ok bool, err error)
	// Resign ends the lease at once, if holder still has it under term; otherwise it returns [ErrLeaseLost] and changes
	// nothing. The term stays known.
	Resign(ctx context.Context, name, holder string, term int64) error
}
