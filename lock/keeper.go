package lock

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Margin is the part of a lease that is not trusted: for clocks that do not run equally fast, and for what is done
// between the end of the context and the holder's noticing it.
func Margin(ttl time.Duration) time.Duration { return ttl / 10 }

// keeper renews one lock, and ends its context in time.
type keeper struct {
	*Held

	ttl   time.Duration
	renew bool
	limit time.Time // of the maximum hold; zero: none
}

// run ends when the lock is lost or released, or the context ends under which it was acquired: then the lease is left to
// run out, which is long enough to tidy up, unless it is released before.
func (k *keeper) run() {
	defer close(k.done)
	trusted := k.grant.Start.Add(k.ttl - Margin(k.ttl))
	next := k.grant.Start.Add(k.ttl / 3)
	for !k.lost(trusted) {
		wake := trusted
		if k.renew && next.Before(wake) {
			wake = next
		}
		if !k.limit.IsZero() && k.limit.Before(wake) {
			wake = k.limit
		}
		timer := time.NewTimer(time.Until(wake))
		select {
		case <-k.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if k.renew && !time.Now().Before(next) && !k.lost(trusted) {
			trusted, next = k.renewOnce(trusted)
		}
	}
}

// lost ends the context when the lease is no longer to be trusted, and reports whether the context has ended.
func (k *keeper) lost(trusted time.Time) bool {
	if k.ctx.Err() != nil {
		return true
	}
	now := time.Now()
	switch {
	case !k.limit.IsZero() && !now.Before(k.limit):
		k.lose(ErrHeldTooLong)
	case !now.Before(trusted):
		k.lose(ErrUnrenewed)
	default:
		return false
	}
	return true
}

func (k *keeper) lose(cause error) {
	k.end(cause)
	keys := make([]string, 0, len(k.grant.Tokens))
	for key := range k.grant.Tokens {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	k.locker.logger.Warn("lock lost", "id", k.grant.ID, "owner", k.grant.Owner, "keys", keys, "cause", cause)
}

// renewOnce renews, and returns until when the lease is trusted then, and when to renew next.
func (k *keeper) renewOnce(trusted time.Time) (time.Time, time.Time) {
	ctx, cancel := context.WithDeadline(k.ctx, trusted)
	defer cancel()
	start := time.Now()
	_, err := k.locker.backend.Renew(ctx, k.grant.ID, k.ttl)
	switch {
	case err == nil:
		return start.Add(k.ttl - Margin(k.ttl)), start.Add(k.ttl / 3)
	case errors.Is(err, ErrLost):
		k.lose(ErrLost)
		return start, start
	}
	k.locker.logger.Debug("lock renewal failed, and is tried again", "id", k.grant.ID, "error", err)
	return trusted, time.Now().Add(k.ttl / 20)
}
