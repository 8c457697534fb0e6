package lock

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

// Margin is the part of a lease that is not trusted: for clocks that do not run equally fast, and for what is done
// between the end of the context and the holder's noticing it.
func Margin(ttl time.Duration) time.Duration { return ttl / 10 }

// keeper renews one lock, and ends its context in time. It is a timer, not a goroutine: most locks are released long before
// anything is to be done, and starting a goroutine would wake a thread for each of them.
type keeper struct {
	*Held

	ttl   time.Duration
	renew bool
	limit time.Time // of the maximum hold; zero: none

	told    atomic.Bool  // a loss was logged
	trusted atomic.Int64 // until when the lease is, in nanoseconds after the start of the grant; whoever asks the context reads it

	turn    chan struct{} // has a value during a look and its renewal
	timer   *time.Timer
	next    time.Time // when to renew
	failing bool      // the last renewal failed
}

const (
	// renewals are tried so often in a TTL, so that one may fail altogether.
	renewals = 3
	// attempts is how often in a TTL a failed renewal is tried again.
	attempts = 20
	// minAttempt is the least time that a renewal is given, though the TTL be short.
	minAttempt = 200 * time.Millisecond
)

// start sets the timer for the first look.
func (k *keeper) start() {
	k.turn <- struct{}{}
	defer func() { <-k.turn }()
	k.trust(k.grant.Start)
	now := time.Now()
	k.lost(now) // This process was stopped, perhaps, before it could see the grant.
	k.timer = time.AfterFunc(k.pause(now), k.look)
}

// trust notes a lease that was asked for then.
func (k *keeper) trust(asked time.Time) {
	k.trusted.Store(int64(asked.Sub(k.grant.Start) + k.ttl - Margin(k.ttl)))
	k.next = asked.Add(k.ttl / renewals)
}

// last is when the context ends at the latest unless the lock is renewed, and why.
func (k *keeper) last() (time.Time, error) {
	trusted := k.grant.Start.Add(time.Duration(k.trusted.Load()))
	if !k.limit.IsZero() && k.limit.Before(trusted) {
		return k.limit, ErrHeldTooLong
	}
	return trusted, ErrUnrenewed
}

// stop ends the looks, after the context has ended, and waits for a renewal that is under way.
func (k *keeper) stop() {
	k.turn <- struct{}{}
	defer func() { <-k.turn }()
	k.timer.Stop()
}

// pause is the time until something is to be done.
func (k *keeper) pause(now time.Time) time.Duration {
	wake, _ := k.last()
	if k.renew && k.next.Before(wake) {
		wake = k.next
	}
	return wake.Sub(now)
}

// look is the last one when the lock is lost or released, or the context has ended under which it was acquired: then the
// lease is left to run out, which is long enough to tidy up, unless it is released before.
func (k *keeper) look() {
	k.turn <- struct{}{}
	defer func() { <-k.turn }()
	now := time.Now()
	if k.lost(now) {
		return
	}
	if k.renew && !now.Before(k.next) {
		k.renewOnce()
		if now = time.Now(); k.lost(now) {
			return
		}
	}
	k.timer.Reset(k.pause(now))
}

// compare ends the context when the lease is over by the clock, though no timer has said so yet, as after the process was
// stopped.
func (k *keeper) compare() { k.lost(time.Now()) }

// lost ends the context when the lease is no longer to be trusted, and reports whether the context has ended.
func (k *keeper) lost(now time.Time) bool {
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
	k.end(cause)                                            // At once, whoever else is about to: the caller must see the end.
	if k.told.Swap(true) || context.Cause(k.ctx) != cause { //nolint:errorlint // The very same one.
		return
	}
	keys := make([]string, 0, len(k.grant.Tokens))
	for key := range k.grant.Tokens {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	k.locker.logger.Warn("lock lost", "id", k.grant.ID, "owner", k.grant.Owner, "keys", keys, "cause", cause)
}

// renewOnce renews, and notes until when the lease is trusted then, and when to renew next.
func (k *keeper) renewOnce() {
	end, _ := k.last()
	// A connection that has silently died is found out soon; a backend that is only slow gets more time after that.
	timeout := k.ttl / renewals
	if !k.failing {
		timeout /= 2
	}
	ctx, cancel := context.WithDeadline(k.ctx, end)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, max(timeout, minAttempt))
	defer cancel()
	// A backend that does not heed its context must not keep the holder from knowing.
	guard := time.AfterFunc(time.Until(end), k.compare)
	defer guard.Stop()
	start := time.Now()
	_, err := k.locker.backend.Renew(ctx, k.grant.ID, k.ttl)
	switch {
	case err == nil:
		k.failing = false
		k.trust(start)
		return
	case errors.Is(err, ErrLost):
		k.lose(ErrLost)
		return
	}
	k.locker.logger.Debug("lock renewal failed, and is tried again", "id", k.grant.ID, "error", err)
	k.failing = true
	k.next = start.Add(k.ttl / attempts) // A call that has used up its time is no reason to wait any longer.
}
