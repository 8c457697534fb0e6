package publish

import (
	"cmp"
	"time"

	"github.com/google/uuid"
)

// Pace slows a target down that answers 429. The zero value slows nothing. It is kept with the target, so that all processes
// share it.
//
// Each refusal doubles the interval between two claims. Each success takes a tenth off the interval, which ends when it is below
// its base. Three refusals in a row open the breaker: for a while nothing is claimed for the target, and then one publication.
// Consecutive refusals of one publication count as one, because that publication is already slowed by its own pauses.
type Pace struct {
	Interval  time.Duration
	Refusals  int // in a row
	Last      *uuid.UUID
	NextAt    *time.Time // nothing is claimed before
	OpenUntil *time.Time // the breaker's
}

// Slowed reports whether the target is sent less than it could be.
func (p Pace) Slowed() bool { return p.Interval > 0 || p.Refusals > 0 }

// PaceState is what a pace means for the target.
type PaceState string

// The states of a pace.
const (
	PaceFree     PaceState = "free"      // nothing holds it back
	PaceSlowed   PaceState = "slowed"    // one publication at a time, an interval apart
	PaceOpen     PaceState = "open"      // the breaker is open: nothing is sent
	PaceHalfOpen PaceState = "half_open" // the breaker was open: one publication will tell
)

// State says what the pace means at a time.
func (p Pace) State(now time.Time) PaceState {
	switch {
	case p.OpenUntil != nil && now.Before(*p.OpenUntil):
		return PaceOpen
	case p.OpenUntil != nil:
		return PaceHalfOpen
	case p.Slowed():
		return PaceSlowed
	}
	return PaceFree
}

// The defaults of a policy: 2 s of backoff make a base of 3 s, a longest interval of 5 min, and a breaker that is open for
// 5 min after three refusals.
const (
	defaultPaceBaseTenths  = 15  // of the backoff
	defaultPaceMax         = 150 // backoffs
	defaultBreakerRefusals = 3
)

func (p Policy) paceBase() time.Duration {
	return cmp.Or(p.PaceBase, p.Backoff*defaultPaceBaseTenths/10)
}

func (p Policy) paceMax() time.Duration {
	return max(cmp.Or(p.PaceMax, p.Backoff*defaultPaceMax), p.paceBase())
}

func (p Policy) breakerOpen() time.Duration { return cmp.Or(p.BreakerOpen, p.Backoff*defaultPaceMax) }

func (p Policy) breakerRefusals() int { return cmp.Or(p.BreakerRefusals, defaultBreakerRefusals) }

// Refused is the pace after the target refused a publication because it is sent too much.
func (p Pace) Refused(publication uuid.UUID, retryAfter time.Duration, now time.Time, policy Policy, draw Draw) Pace {
	if p.Last == nil || *p.Last != publication {
		p.Interval = min(max(p.Interval*2, policy.paceBase()), policy.paceMax())
		p.Refusals++
	}
	p.Last = &publication
	wait := shifted(p.Interval, draw)
	if retryAfter > 0 {
		wait = min(retryAfter, maxRetryAfter)
	}
	if p.Refusals >= policy.breakerRefusals() {
		until := now.Add(max(policy.breakerOpen(), wait))
		p.OpenUntil = &until
		wait = until.Sub(now)
	}
	next := now.Add(wait)
	if p.NextAt == nil || p.NextAt.Before(next) {
		p.NextAt = &next
	}
	return p
}

// Eased is the pace after the target took a publication.
func (p Pace) Eased(policy Policy) Pace {
	p.Refusals, p.Last, p.OpenUntil = 0, nil, nil
	if p.Interval = p.Interval * 9 / 10; p.Interval < policy.paceBase() {
		return Pace{}
	}
	return p
}
