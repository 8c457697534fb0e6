package publish

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Op is an operation on a publication, a target, an automation or a subscription.
type Op interface {
	// action names the operation in the audit log.
	action() string
}

type (
	// Create makes a publication: scheduled with a time, a draft without.
	Create struct {
		Target    string // its name
		PublishAt *time.Time
		Jitter    time.Duration
		Payload   []byte // JSON
	}
	// Schedule gives a draft its time, or a scheduled publication another one. Without a jitter it keeps the one it has.
	Schedule struct {
		PublishAt time.Time
		Jitter    *time.Duration
	}
	// MakeDue makes a draft or a scheduled publication due at once, without jitter.
	MakeDue struct{}
	// Cancel ends a draft or a scheduled publication.
	Cancel struct{}
	// Retry makes a failed publication due at once, with [MaxAttempts] new attempts.
	Retry struct{}
)

func (Create) action() string   { return "publication.create" }
func (Schedule) action() string { return "publication.schedule" }
func (MakeDue) action() string  { return "publication.publish" }
func (Cancel) action() string   { return "publication.cancel" }
func (Retry) action() string    { return "publication.retry" }

// Draw returns a random integer from 0 to n-1; n is above 0.
type Draw func(n int64) int64

// Decide carries an operation out on a publication, which it changes unless it returns [ErrBadTransition]. now is the
// database's clock, asked after the publication was locked.
func Decide(p *Publication, op Op, now time.Time, draw Draw) error {
	var from []Status
	switch op.(type) {
	case Schedule, MakeDue, Cancel:
		from = []Status{StatusDraft, StatusScheduled}
	case Retry:
		from = []Status{StatusFailed}
	default:
		panic(fmt.Sprintf("publish: %T is no operation on a publication", op))
	}
	if !slices.Contains(from, p.Status) {
		return ErrBadTransition
	}
	switch op := op.(type) {
	case Schedule:
		if op.Jitter != nil {
			p.Jitter = *op.Jitter
		}
		schedule(p, op.PublishAt, now, draw)
	case MakeDue:
		p.PublishAt = &now
		due(p, now)
	case Cancel:
		p.Status, p.DueAt = StatusCancelled, nil
	case Retry:
		p.Spent = p.Attempts
		p.Status, p.DueAt = StatusScheduled, &now
	}
	check(p)
	return nil
}

// DecideCreate makes a publication for a target.
func DecideCreate(op Create, target *Target, id uuid.UUID, now time.Time, draw Draw) *Publication {
	p := &Publication{
		ID: id, Target: target.ID, TargetName: target.Name, Status: StatusDraft, Payload: op.Payload, Jitter: op.Jitter, CreatedAt: now,
	}
	if op.PublishAt != nil {
		schedule(p, *op.PublishAt, now, draw)
	}
	check(p)
	return p
}

// schedule gives a publication its time. A time in the past is now, and no jitter delays it further.
func schedule(p *Publication, at, now time.Time, draw Draw) {
	p.PublishAt = &at
	if !at.After(now) {
		due(p, now)
		return
	}
	// The jitter only ever delays: nothing is published before its time.
	due(p, at.Add(time.Duration(draw(p.Jitter.Microseconds()+1))*time.Microsecond))
}

func due(p *Publication, at time.Time) {
	p.Status, p.ActualPublishAt, p.DueAt = StatusScheduled, &at, &at
}

// check asserts what holds after every operation.
func check(p *Publication) {
	switch {
	case p.LockID != nil:
		panic("publish: an operation on a claimed publication")
	case p.Status == StatusScheduled && (p.DueAt == nil || p.ActualPublishAt == nil || p.DueAt.Before(*p.ActualPublishAt)):
		panic("publish: scheduled without a time, or before it")
	case p.PublishAt != nil && p.ActualPublishAt != nil && p.ActualPublishAt.Before(*p.PublishAt):
		panic("publish: due before its time")
	case p.Spent > p.Attempts:
		panic("publish: more attempts spent than made")
	}
}

// Class says what an answer means for what comes next.
type Class int

// The classes of answers.
const (
	Delivered   Class = iota // the target has it
	Transient                // it may work later
	Permanent                // it will not
	AuthExpired              // not before the target gets new credentials
)

// Result is what an attempt brought about.
type Result struct {
	Class      Class
	StatusCode int // of the target's answer, 0 without one
	// Throttled says that the target refused because it gets too many requests (429).
	Throttled  bool
	RetryAfter time.Duration // how long the target asked to be left alone, 0 when it did not
	// Interrupted says that this server ended the attempt, because it was shut down.
	Interrupted bool
	ExternalID  string
	Cause       Cause  // of a failure, where the sender knows it; see [Result.FailedFor]
	Error       string // for a person; empty when delivered
}

// Policy says when an attempt is made again, and how a target that throttles attempts is slowed down. Only Backoff is
// required. Other fields that are zero are derived from it, so that a test can shrink all times together.
type Policy struct {
	// Backoff is the pause after the first failed attempt; it doubles with each, up to 32 times itself, and is shifted by
	// up to a fifth either way.
	Backoff time.Duration
	// PaceBase is the interval between two claims after the first refusal, 1.5 times Backoff by default; PaceMax the
	// longest, 150 times Backoff by default.
	PaceBase, PaceMax time.Duration
	// BreakerRefusals in a row open the breaker, 3 by default, for BreakerOpen, 150 times Backoff by default.
	BreakerRefusals int
	BreakerOpen     time.Duration
}

// Limits of the pauses.
const (
	maxDoublings  = 5
	maxRetryAfter = 24 * time.Hour // who asks for more is asked again before
)

// Verdict is what becomes of a publication after an attempt.
type Verdict struct {
	Status Status // published, failed, or scheduled for another attempt
	Result AttemptResult
	Delay  time.Duration // until the next attempt
	// Free says that the attempt does not count among the [MaxAttempts]: it failed for a reason that is not the
	// publication's.
	Free bool
	// Pause says that the target is to be paused, because its authorization has expired.
	Pause bool
}

// Conclude decides what a result means; try counts the attempts of the present run, this one too, from 1.
func Conclude(r Result, try int, policy Policy, draw Draw) Verdict {
	switch {
	case try < 1:
		panic("publish: a result without an attempt")
	case r.Class == Delivered:
		return Verdict{Status: StatusPublished, Result: ResultPublished}
	case r.Class == AuthExpired:
		return Verdict{Status: StatusScheduled, Result: ResultFailed, Free: true, Pause: true}
	case r.Interrupted:
		// However often servers are restarted, that is not the publication's failure.
		return Verdict{Status: StatusScheduled, Result: ResultFailed, Delay: backoff(policy.Backoff, 1, draw), Free: true}
	case r.Class == Permanent || try >= MaxAttempts:
		return Verdict{Status: StatusFailed, Result: ResultFailed}
	}
	v := Verdict{Status: StatusScheduled, Result: ResultFailed, Delay: min(r.RetryAfter, maxRetryAfter)}
	if r.RetryAfter <= 0 {
		v.Delay = backoff(policy.Backoff, try, draw)
	}
	return v
}

func backoff(base time.Duration, try int, draw Draw) time.Duration {
	return shifted(base<<min(try-1, maxDoublings), draw)
}

// shifted moves a time span by up to a fifth either way.
func shifted(d time.Duration, draw Draw) time.Duration {
	fifth := int64(d / 5)
	return d + time.Duration(draw(2*fifth+1)-fifth)
}

// MaxOverlap bounds for how long a replaced secret goes on signing.
const MaxOverlap = 30 * 24 * time.Hour

type (
	// CreateTarget makes a target.
	CreateTarget struct {
		Name    string
		Kind    Kind
		URL     string
		Timeout time.Duration
		// Secret is what the other side wants to see, such as a client's id and secret; nil where deliveries are signed,
		// because then the secret is made here. Token is its first token, nil where it has none. Both are the sender's own
		// format.
		Secret, Token []byte
	}
	// RotateSecret gives a target another signing secret. The one before it signs too, until the overlap is over.
	RotateSecret struct{ Overlap time.Duration }
	// ReplaceCredentials gives a target new credentials, or a new token, and resumes it. What is nil stays.
	ReplaceCredentials struct{ Secret, Token []byte }
	// PauseTarget keeps a target's publications back: none is claimed. Those that are claimed already go on.
	PauseTarget struct{}
	// ResumeTarget ends that.
	ResumeTarget struct{}
)

func (CreateTarget) action() string       { return "target.create" }
func (RotateSecret) action() string       { return "target.rotate_secret" }
func (ReplaceCredentials) action() string { return "target.replace_credentials" }
func (PauseTarget) action() string        { return "target.pause" }
func (ResumeTarget) action() string       { return "target.resume" }

// DecideTarget carries an operation out on a target, which it changes unless it returns [ErrBadTransition] or
// [ErrWrongKind]. sealed is the new secret, where the operation brings one.
func DecideTarget(t *Target, op Op, sealed *Sealed, now time.Time) error {
	switch op := op.(type) {
	case RotateSecret:
		if !t.HasSigningSecret() {
			return ErrWrongKind
		}
		t.Previous, t.PreviousUntil = Sealed{}, nil
		if op.Overlap > 0 {
			t.Previous, t.PreviousUntil = t.Secret, new(now.Add(op.Overlap))
		}
		t.Secret = *sealed
	case ReplaceCredentials:
		if t.HasSigningSecret() {
			return ErrWrongKind
		}
		if sealed != nil {
			t.Secret = *sealed
		}
		t.resume(now)
	case PauseTarget:
		if t.PausedAt != nil {
			return ErrBadTransition
		}
		t.PausedAt, t.PausedReason = &now, PausedByRequest
	case ResumeTarget:
		if t.PausedAt == nil {
			return ErrBadTransition
		}
		t.resume(now)
	default:
		panic(fmt.Sprintf("publish: %T is no operation on a target", op))
	}
	return nil
}

// resume ends a pause. When it did is kept even where there was none: an attempt that began before and comes back with news
// of the old authorization must not pause the target again.
func (t *Target) resume(now time.Time) {
	t.PausedAt, t.PausedReason, t.ResumedAt = nil, "", &now
}
