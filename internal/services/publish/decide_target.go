package publish

import (
	"fmt"
	"time"
)

// MaxOverlap bounds for how long a replaced secret goes on signing.
const MaxOverlap = 30 * 24 * time.Hour

type (
	// CreateTarget makes a target.
	CreateTarget struct {
		Name    string
		Kind    Kind
		URL     string
		Timeout time.Duration
		// Secret is what the other side wants to see, such as a client's id and secret; nil where deliveries are signed, because
		// then the secret is made here. Token is its first token, nil where it has none. Both are the sender's own format.
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

// DecideTarget carries an operation out on a target, which it changes unless it returns [ErrBadTransition] or [ErrWrongKind].
// sealed is the new secret, where the operation brings one.
func DecideTarget(t *Target, op Op, sealed *Sealed, now time.Time) error {
	switch op := op.(type) {
	case RotateSecret:
		if !t.HasSigningSecret() {
			return ErrWrongKind
		}
		t.Previous, t.PreviousUntil = nil, nil
		if op.Overlap > 0 {
			old, until := t.Secret, now.Add(op.Overlap)
			t.Previous, t.PreviousUntil = &old, &until
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

// resume ends a pause. When it did is kept even where there was none: an attempt that began before and comes back with news of
// the old authorization must not pause the target again.
func (t *Target) resume(now time.Time) {
	t.PausedAt, t.PausedReason, t.ResumedAt = nil, "", &now
}
