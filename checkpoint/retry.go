package checkpoint

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// How often and when a store tries again.
const (
	// Retries is how often what failed for a passing reason is tried again before it is reported.
	Retries = 3
	// attemptTimeout bounds one try.
	attemptTimeout = 5 * time.Second
	firstBackoff   = 50 * time.Millisecond
	maxBackoff     = 2 * time.Second
)

// errNoAnswer is the cause of the end of a save that outlived its caller's context. It is the store's failure, not the caller's wish.
var errNoAnswer = errors.New("the store did not answer in time after the caller had given up")

// Try is for those who write a [Store]: it calls try until it succeeds, or fails for good: with an error of this package, with
// one for which passing is false, or [Retries] times more. Other errors than those of this package are returned inside a
// [*ConnectionError]; the end of ctx is returned as its error.
func Try(ctx context.Context, op string, key Key, passing func(error) bool, try func(ctx context.Context) error) error {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = firstBackoff, maxBackoff
	attempts := 0
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		attempts++
		bounded, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		err := try(bounded)
		if err != nil && (ours(err) || !passing(err)) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxTries(1+Retries), backoff.WithMaxElapsedTime(0))
	if permanent, ok := errors.AsType[*backoff.PermanentError](err); ok {
		err = permanent.Err
	}
	switch {
	case err == nil || ours(err):
		return err
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), errNoAnswer):
		return context.Cause(ctx)
	}
	return &ConnectionError{Op: op, Key: key, Attempts: attempts, Err: err}
}

// ours reports errors that say what a store has found, and not that it has failed.
func ours(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrFenced) || errors.Is(err, ErrLost) || errors.Is(err, ErrConnection)
}
