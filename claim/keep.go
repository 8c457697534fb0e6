package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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
// so that a process that was stopped meanwhile is told at once; contexts made from it are told a moment later. A staleAfter
// that is not positive ends it with [ErrBadAge].
func (c *Claims[ID]) Keep(ctx context.Context, db DB, staleAfter time.Duration, claim Claim[ID]) (working context.Context, stop func()) {
	inner, cancel := context.WithCancelCause(ctx)
	if staleAfter < minAge {
		cancel(fmt.Errorf("%w: %s", ErrBadAge, staleAfter))
		return inner, func() {}
	}
	k := &keeping[ID]{
		claims: c, db: db, claim: claim, ctx: inner, cancel: cancel,
		staleAfter: staleAfter, life: staleAfter - staleAfter*marginPercent/100, start: time.Now(),
	}
	k.trust(claim.since)
	if claim.since.IsZero() || k.left() <= 0 {
		k.trust(k.start) // For the heartbeat's own sake.
		if _, err := k.beat(); err != nil {
			cancel(ErrUnconfirmed)
		}
	}
	var task sync.WaitGroup
	task.Go(k.run)
	return wait.Lease(inner, k.compare), func() {
		cancel(nil)
		task.Wait()
	}
}

// keeping is a call of Keep.
type keeping[ID comparable] struct {
	claims           *Claims[ID]
	db               DB
	claim            Claim[ID]
	ctx              context.Context //nolint:containedctx // Its end is what the worker has to know.
	cancel           context.CancelCauseFunc
	staleAfter, life time.Duration
	start            time.Time
	until            atomic.Int64 // when the claim is trusted no more, in nanoseconds after the start
}

// trust notes a sign of life that was asked for then.
func (k *keeping[ID]) trust(asked time.Time) { k.until.Store(int64(asked.Sub(k.start) + k.life)) }

// left is for how long the claim is trusted.
func (k *keeping[ID]) left() time.Duration {
	return time.Duration(k.until.Load()) - time.Since(k.start)
}

// compare ends the context when the claim is trusted no more by the clock.
func (k *keeping[ID]) compare() {
	if k.left() <= 0 {
		k.cancel(ErrUnconfirmed)
	}
}

// run sends heartbeats, the first one at once.
func (k *keeping[ID]) run() {
	for pause := time.Duration(0); wait.For(k.ctx, min(pause, k.left())); {
		if k.compare(); k.ctx.Err() != nil {
			return
		}
		pause, _ = k.beat()
	}
}

// beat sends a heartbeat, and returns when to send the next one. A claim that turns out to be lost is no error.
func (k *keeping[ID]) beat() (pause time.Duration, err error) {
	asked := time.Now()
	bounded, done := context.WithTimeout(k.ctx, k.left())
	defer done()
	switch lost, err := k.claims.Heartbeat(bounded, k.db, k.claim); {
	case err != nil:
		return min(retryPause, k.life/beatsPerLife), err
	case len(lost) > 0:
		k.cancel(fmt.Errorf("%w: row %v, version %d", ErrLost, k.claim.ID, k.claim.Version))
		return 0, nil
	}
	k.trust(asked)
	return k.staleAfter / beatsPerLife, nil
}

// Sweep says how [Claims.KeepReleasing] works.
type Sweep struct {
	StaleAfter time.Duration // age of a claim without heartbeat; 0 means [DefaultStaleAfter]
	Every      time.Duration // 0 means [DefaultSweepEvery]
	Failed     func(error)   // is told what failed and is tried again; may be nil
}

// KeepReleasing releases stale claims now and then every while, until ctx ends. Any number of processes may do so. It returns
// at once, and has told Failed an [ErrBadAge], when one of the times is negative.
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
