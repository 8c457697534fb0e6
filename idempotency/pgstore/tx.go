package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
)

// ErrInFlight is returned by [Store.Do] when a handler behind the middleware is executing the same key.
var ErrInFlight = errors.New("pgstore: the key is in flight")

// ErrUnknown is returned by [Store.Do] when the key is parked after a crash.
var ErrUnknown = errors.New("pgstore: the key's outcome is unknown")

// CompleteIn is [idempotency.Store.Complete] in a transaction of yours: the answer is kept if and only if what the
// transaction writes is. Call it last in a handler behind the middleware, with the grant of [idempotency.FromContext], and
// commit. The middleware then answers with what was kept, whatever the handler has written, and even where the handler did
// not learn what became of its commit.
//
// It returns [idempotency.ErrLost] when the execution isn't the one under its key any more; then roll back.
func (s *Store) CompleteIn(ctx context.Context, tx pgx.Tx, g idempotency.Grant, answer idempotency.Response) error {
	_, err := s.in(tx).Complete(ctx, g, answer)
	return err
}

// Do executes fn in a transaction of yours unless its key is answered, and keeps its answer in the same transaction: both
// or neither take effect, with your commit. A transaction that executes the same key at the same time is waited for.
// Replayed tells that the answer is that of an earlier transaction, and fn was not called.
//
// When fn returns an error, nothing is kept and Do returns that error. Roll back after any error of Do's.
//
// It returns [idempotency.ErrKeyReused] when the key stands for another request, [ErrInFlight] and [ErrUnknown] where the
// middleware has the key, and [idempotency.ErrBadOptions] where [Options].Retention is negative. The transaction should be READ COMMITTED; in a stricter one a key that was answered after the
// transaction began makes it fail, to be run again. Transactions with several keys should take them in one order.
func (s *Store) Do(ctx context.Context, tx pgx.Tx, r idempotency.Request, fn func(context.Context) (idempotency.Response, error)) (
	answer idempotency.Response, replayed bool, err error,
) {
	// The lease doesn't matter: nobody sees the row before it is answered.
	terms := idempotency.Terms{Lease: idempotency.DefaultLease, Retention: s.retention}
	e, err := s.in(tx).Begin(ctx, r, terms)
	if err != nil {
		return answer, false, err
	}
	switch e.Phase {
	case idempotency.Answered:
		return e.Response, e.Grant.Execution != r.Execution, nil
	case idempotency.InFlight:
		return answer, false, ErrInFlight
	case idempotency.Unknown:
		return answer, false, ErrUnknown
	case idempotency.Started, idempotency.Absent:
	}
	if answer, err = fn(ctx); err != nil {
		// For a caller who commits all the same, such as one in whose savepoint this ran.
		_, _ = tx.Exec(ctx, s.sql.release, r.ID[:], r.Execution, e.Grant.Fence)
		return idempotency.Response{}, false, err
	}
	answer, err = s.in(tx).Complete(ctx, e.Grant, answer)
	return answer, false, err
}
