package publish

import (
	"time"

	"github.com/google/uuid"
)

// Cause says what an attempt failed for.
type Cause string

// The causes. A [Sender] that says none leaves it to [Result.FailedFor].
const (
	CauseDNS     Cause = "dns"     // the target's name could not be resolved
	CauseRefused Cause = "refused" // nothing listens at the target's address
	CauseNetwork Cause = "network" // the target could not be reached, or the connection broke
	CauseTLS     Cause = "tls"     // no secure connection could be made
	CauseTimeout Cause = "timeout" // no answer came in time
	CauseStatus  Cause = "status"  // the answer's status says so
	CauseAddress Cause = "address" // the address is not one that this server sends to
	CauseOther   Cause = "other"
	// CauseExpired is a topic's alone: its next event is not kept any more, and nothing was sent.
	CauseExpired Cause = "expired"

	causeOwn Cause = "own" // this process had to end the attempt
)

// Causes are those that a target may be said to have failed for.
func Causes() []Cause {
	return []Cause{CauseDNS, CauseRefused, CauseNetwork, CauseTLS, CauseTimeout, CauseStatus, CauseAddress, CauseOther}
}

// FailedFor is why the target is to be said to have failed; empty where it has not, or where the attempt was ended for a reason that
// is not the target's.
func (r Result) FailedFor() Cause {
	switch {
	case r.Class == Delivered || r.Interrupted || r.Cause == causeOwn:
		return ""
	case r.Cause != "":
		return r.Cause
	case r.StatusCode != 0:
		return CauseStatus
	}
	return CauseOther
}

// TargetOutcome is what an attempt at a target came to.
type TargetOutcome struct {
	At          time.Time
	Publication uuid.UUID
	Cause       Cause // empty when delivered
	StatusCode  int   // of the target's answer, 0 without one
	Error       string
}

// TargetState says in one word how a target fares.
type TargetState string

// The states, the first that holds.
const (
	TargetPaused     TargetState = "paused"       // nothing is sent until it is resumed
	TargetOpen       TargetState = "circuit_open" // nothing is sent for a while, and then one publication
	TargetSlowed     TargetState = "slowed"       // one publication at a time, an interval apart
	TargetFailing    TargetState = "failing"      // the last attempt failed
	TargetDelivering TargetState = "delivering"   // the last attempt delivered
	TargetIdle       TargetState = "idle"         // no attempt has ended yet
)

// State says how a target fares. It needs the outcomes, which only reads of targets have.
func (t *Target) State(now time.Time) TargetState {
	pace := t.Pace.State(now)
	switch {
	case t.PausedAt != nil:
		return TargetPaused
	case pace == PaceOpen || pace == PaceHalfOpen:
		return TargetOpen
	case pace == PaceSlowed:
		return TargetSlowed
	case t.LastFailure != nil && (t.LastDelivery == nil || t.LastDelivery.At.Before(t.LastFailure.At)):
		return TargetFailing
	case t.LastDelivery != nil:
		return TargetDelivering
	}
	return TargetIdle
}
