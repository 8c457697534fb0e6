package claim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
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

// ErrUnconfirmed is the cause of a context of [Claims.Keep] that ended because no heartbeat came through in time. It wraps
// [ErrLost], although the claim may be there still.
var ErrUnconfirmed = fmt.Errorf("%w: no heartbeat came through in time", ErrLost)

// Keep sends heartbeats for a claim until stop is called. The context that it returns ends when the claim is lost, and
// before it can have gone stale, with a cause that wraps [ErrLost]: do the work under it. A claim is trusted from the start
// of the last heartbeat that came through, by this process's clock, for nine tenths of staleAfter, which is that of those who
// release stale claims. Stop waits until the last heartbeat has ended; call it before the claim is finished or failed.
func (c *Claims[ID]) Keep(ctx context.Context, db DB, staleAfter time.Duration, claim Claim[ID]) (working context.Context, stop func()) {
	working, cancel := context.WithCancelCause(ctx)
	life := staleAfter - staleAfter*marginPercent/100
	var task sync.WaitGroup
	// How old the claim is by this process's clock isn't known, so that the first heartbeat goes out at once.
	task.Go(func() {
		until := time.Now().Add(life)
		for pause := time.Duration(0); sleep(working, min(pause, time.Until(until))); {
			asked := time.Now()
			if !asked.Before(until) {
				cancel(ErrUnconfirmed)
				return
			}
			bounded, done := context.WithDeadline(working, until)
			lost, err := c.Heartbeat(bounded, db, claim)
			done()
			switch {
			case err != nil:
				pause = min(retryPause, life/beatsPerLife)
			case len(lost) > 0:
				cancel(fmt.Errorf("%w: row %v, version %d", ErrLost, claim.ID, claim.Version))
			default:
				until, pause = asked.Add(life), staleAfter/beatsPerLife
			}
		}
	})
	return working, func() {
		cancel(nil)
		task.Wait()
	}
}

// Sweep says how [Claims.KeepReleasing] works.
type Sweep struct {
	StaleAfter time.Duration // age of a claim without heartbeat; 0 means [DefaultStaleAfter]
	Every      time.Duration // 0 means [DefaultSweepEvery]
	Failed     func(error)   // is told what failed and is tried again; may be nil
}

// KeepReleasing releases stale claims now and then every while, until ctx ends. Any number of processes may do so.
func (c *Claims[ID]) KeepReleasing(ctx context.Context, db DB, s Sweep) {
	if s.StaleAfter == 0 {
		s.StaleAfter = DefaultStaleAfter
	}
	if s.Every == 0 {
		s.Every = DefaultSweepEvery
	}
	for {
		released, err := c.ReleaseStale(ctx, db, s.StaleAfter, releaseLimit)
		if err != nil && s.Failed != nil && !errors.Is(err, context.Canceled) {
			s.Failed(err)
		}
		if len(released) == releaseLimit {
			continue // There may be more.
		}
		if !sleep(ctx, s.Every) {
			return
		}
	}
}

// sleep reports whether ctx is still alive after d.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
