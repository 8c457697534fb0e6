package wait

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Keeping is a lease that is renewed until nobody needs it any more.
type Keeping struct {
	Since time.Time     // when the lease was asked for
	Life  time.Duration // for how long it is trusted after it was asked for
	First time.Duration // the pause before the first renewal
	Every time.Duration // the pause before the next one
	Retry time.Duration // the pause after one that failed
	// Renew renews it, under a context that ends when the lease is trusted no more. An error that is Lost ends the lease.
	Renew func(ctx context.Context) error
	Lost  error
	// TooLate is the cause of the end when no renewal came through in time.
	TooLate error
}

// Keep renews a lease until stop is called, which waits until the last renewal has ended. The context that it returns ends when
// the lease is lost, and when it is trusted no more by this process's clock, which it compares whenever it is asked, see [Lease].
func Keep(parent context.Context, k Keeping) (ctx context.Context, stop func()) {
	inner, cancel := context.WithCancelCause(parent)
	start := time.Now() // Times since then are monotonic.
	var until atomic.Int64
	trust := func(asked time.Time) { until.Store(int64(asked.Sub(start) + k.Life)) }
	left := func() time.Duration { return time.Duration(until.Load()) - time.Since(start) }
	compare := func() {
		if left() <= 0 {
			cancel(k.TooLate)
		}
	}
	renew := func() (pause time.Duration) {
		asked := time.Now()
		bounded, done := context.WithTimeout(inner, left())
		defer done()
		switch err := k.Renew(bounded); {
		case err == nil:
			trust(asked)
			return k.Every
		case errors.Is(err, k.Lost):
			cancel(err)
		}
		return k.Retry
	}
	trust(k.Since)
	var task sync.WaitGroup
	task.Go(func() {
		for pause := k.First; For(inner, min(pause, left())); pause = renew() {
			if compare(); inner.Err() != nil {
				return
			}
		}
	})
	return Lease(inner, compare), func() {
		cancel(nil)
		task.Wait()
	}
}
