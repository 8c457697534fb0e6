package wait

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Keeping is a lease that is renewed until nobody needs it any more.
type Keeping struct {
	Since time.Time     // when the lease was asked for
	Life  time.Duration // for how long it is trusted after it was asked for
	Limit time.Time     // when it ends, renewed or not; zero: there is no limit
	First time.Duration // the pause before the first renewal
	Every time.Duration // from the beginning of a renewal to that of the next one
	Retry time.Duration // the same after a renewal that failed
	// Bound is how long a renewal may take, and half as long as one may take after another has failed. A connection that has
	// silently died is found out soon, and a server that is only slow gets more time after that. 0: until the lease ends.
	Bound time.Duration
	// Renew renews it, under a context that ends when the lease is trusted no more. An error that is Lost ends the lease. Where
	// Renew is nil, the lease is left to end.
	Renew func(ctx context.Context) error
	Lost  error
	// TooLate and AtLimit are the causes of the end when no renewal came through in time, and when the limit is reached.
	TooLate, AtLimit error
	// Ended is called when the lease has ended by itself, once, with the cause. It may be nil.
	Ended func(cause error)
}

// keeper renews one lease, and ends its context in time. It is a timer, not a goroutine: most locks are released long before
// anything is to be done, and starting a goroutine would wake a thread for each of them.
type keeper struct {
	Keeping

	ctx context.Context //nolint:containedctx // Its end is what the holder has to know.
	end context.CancelCauseFunc

	ended   atomic.Bool  // Ended was called
	trusted atomic.Int64 // until when the lease is, in nanoseconds after Since; whoever asks the context reads it

	turn    chan struct{} // has a value during a look and its renewal
	timer   *time.Timer
	next    time.Time // when to renew
	failing bool      // the last renewal failed
}

// Keep renews a lease until stop is called, which ends the context with a cause and waits until the last renewal has ended. The
// context ends when the lease is lost, and when it is trusted no more by this process's clock, which it compares whenever it is
// asked, see [Lease].
func Keep(parent context.Context, lease Keeping) (ctx context.Context, stop func(cause error)) {
	k := &keeper{Keeping: lease, turn: make(chan struct{}, 1)}
	k.ctx, k.end = context.WithCancelCause(parent)
	k.trusted.Store(int64(k.Life))
	k.turn <- struct{}{}
	defer func() { <-k.turn }()
	now := time.Now()
	k.next = now.Add(k.First)
	k.over(now) // This process was stopped, perhaps, before it could see that it has the lease.
	k.timer = time.AfterFunc(k.pause(now), k.look)
	return Lease(k.ctx, k.compare), k.stop
}

func (k *keeper) stop(cause error) {
	k.end(cause)
	k.turn <- struct{}{}
	defer func() { <-k.turn }()
	k.timer.Stop()
}

// last is when the context ends at the latest unless the lease is renewed, and why.
func (k *keeper) last() (time.Time, error) {
	trusted := k.Since.Add(time.Duration(k.trusted.Load()))
	if !k.Limit.IsZero() && k.Limit.Before(trusted) {
		return k.Limit, k.AtLimit
	}
	return trusted, k.TooLate
}

// pause is the time until something is to be done.
func (k *keeper) pause(now time.Time) time.Duration {
	wake, _ := k.last()
	if k.Renew != nil && k.next.Before(wake) {
		wake = k.next
	}
	return wake.Sub(now)
}

// look is the last one when the context has ended, for whatever reason: then the lease is left to run out, which is long enough
// to tidy up.
func (k *keeper) look() {
	k.turn <- struct{}{}
	defer func() { <-k.turn }()
	now := time.Now()
	if k.over(now) {
		return
	}
	if k.Renew != nil && !now.Before(k.next) {
		k.renew()
		if now = time.Now(); k.over(now) {
			return
		}
	}
	k.timer.Reset(k.pause(now))
}

// compare ends the context when the lease is over by the clock, though no timer has said so yet, as after the process was
// stopped.
func (k *keeper) compare() { k.over(time.Now()) }

// over ends the context when the lease is no longer to be trusted, and reports whether the context has ended.
func (k *keeper) over(now time.Time) bool {
	if k.ctx.Err() != nil {
		return true
	}
	last, cause := k.last()
	if now.Before(last) {
		return false
	}
	k.lose(cause)
	return true
}

func (k *keeper) lose(cause error) {
	k.end(cause)                                                                // At once, whoever else is about to: the caller must see the end.
	if !k.ended.Swap(true) && context.Cause(k.ctx) == cause && k.Ended != nil { //nolint:errorlint // The very same one.
		k.Ended(cause)
	}
}

// renew renews, and notes until when the lease is trusted then, and when to renew next.
func (k *keeper) renew() {
	end, _ := k.last()
	ctx, cancel := context.WithDeadline(k.ctx, end)
	defer cancel()
	if k.Bound > 0 {
		bound := k.Bound
		if !k.failing {
			bound /= 2
		}
		ctx, cancel = context.WithTimeout(ctx, bound)
		defer cancel()
	}
	// A renewal that does not heed its context must not keep the holder from knowing.
	guard := time.AfterFunc(time.Until(end), k.compare)
	defer guard.Stop()
	asked := time.Now()
	err := k.Renew(ctx)
	if k.failing = err != nil; errors.Is(err, k.Lost) {
		k.lose(err)
	}
	if k.failing {
		k.next = asked.Add(k.Retry) // A call that has used up its time is no reason to wait any longer.
		return
	}
	k.trusted.Store(int64(asked.Sub(k.Since) + k.Life))
	k.next = asked.Add(k.Every)
}
