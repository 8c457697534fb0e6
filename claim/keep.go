package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// Defaults of [Claims.Keep] and [Claims.KeepReleasing].
const (
	DefaultStaleAfter = time.Hour
	DefaultSweepEvery = 30 * time.Minute
)

// Parts of the time after which a claim is stale.
const (
	beatsPerLife  = 3
	marginPercent = 10 // of it, in which the worker has stopped and nobody else can have begun
	retryPause    = 100 * time.Millisecond
	releaseLimit  = 500 // rows a statement
)

// minAge is the least time after which a claim may be stale: PostgreSQL takes less for nothing.
const minAge = time.Microsecond

// ErrUnconfirmed is the cause of a context of [Claims.Keep] that ended because no heartbeat came through in time. It wraps
// [ErrLost], although the claim may be there still.
var ErrUnconfirmed = fmt.Errorf("%w: no heartbeat came through in time", ErrLost)

// Keep sends heartbeats for a claim until stop is called. The context that it returns ends when the claim is lost, and
// before it can have gone stale, with a cause that wraps [ErrLost]: do the work under it. Stop waits until the last heartbeat
// has ended; call it before the claim is finished or failed.
//
// A claim is trusted for nine tenths of staleAfter, which is that of those who release stale claims, from when it was asked
// for, or from the start of the last heartbeat that came through, by this process's clock. A claim that is older when Keep is
// called, or whose age is not known ([Claims.Claimed], or a claim made by hand), is confirmed first: Keep waits for one
// heartbeat, and the context has ended when that does not come through. The context compares the clock whenever it is asked,
// so that a process that was stopped meanwhile notices at once; contexts derived from it notice a moment later. A staleAfter
// that is not positive ends it with [ErrBadAge].
func (c *Claims[ID]) Keep(ctx context.Context, db DB, staleAfter time.Duration, claim Claim[ID]) (working context.Context, stop func()) {
	ended := func(cause error) (context.Context, func()) {
		over, end := context.WithCancelCause(ctx)
		end(cause)
		return over, func() {}
	}
	if staleAfter < minAge {
		return ended(fmt.Errorf("%w: %s", ErrBadAge, staleAfter))
	}
	life := staleAfter - staleAfter*marginPercent/100
	beat := func(ctx context.Context) error {
		lost, err := c.Heartbeat(ctx, db, claim)
		if err == nil && len(lost) > 0 {
			err = notHeld(ErrLost, claim)
		}
		return err
	}
	since := claim.since
	if since.IsZero() || time.Since(since) >= life {
		since = time.Now()
		bounded, done := context.WithTimeout(ctx, life)
		defer done()
		switch err := beat(bounded); {
		case errors.Is(err, ErrLost):
			return ended(err)
		case err != nil:
			return ended(ErrUnconfirmed)
		}
	}
	working, end := wait.Keep(ctx, wait.Keeping{
		Since: since, Life: life, Every: staleAfter / beatsPerLife, Retry: min(retryPause, life/beatsPerLife),
		Renew: beat, Lost: ErrLost, TooLate: ErrUnconfirmed,
	})
	return working, func() { end(nil) }
}

// Sweep says how [Claims.KeepReleasing] works.
type Sweep struct {
	StaleAfter time.Duration // age of a claim without heartbeat; 0 means [DefaultStaleAfter]
	Every      time.Duration // 0 means [DefaultSweepEvery]
	Failed     func(error)   // hears of failures, which are retried; may be nil
}

// KeepReleasing releases stale claims now and then every while, until ctx ends. Any number of processes may do so. It returns
// at once, after giving Failed an [ErrBadAge], when one of the times is negative.
func (c *Claims[ID]) KeepReleasing(ctx context.Context, db DB, s Sweep) {
	s.StaleAfter, s.Every = cmp.Or(s.StaleAfter, DefaultStaleAfter), cmp.Or(s.Every, DefaultSweepEvery)
	if s.StaleAfter < minAge || s.Every < 0 {
		if s.Failed != nil {
			s.Failed(fmt.Errorf("%w: %s, every %s", ErrBadAge, s.StaleAfter, s.Every))
		}
		return
	}
	for {
		released, err := c.ReleaseStale(ctx, db, s.StaleAfter, releaseLimit)
		if err != nil && s.Failed != nil && !errors.Is(err, context.Canceled) {
			s.Failed(err)
		}
		if len(released) == releaseLimit {
			continue // There may be more.
		}
		if !wait.For(ctx, s.Every) {
			return
		}
	}
}
