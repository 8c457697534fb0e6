package multidraw

import (
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/fairdraw"
)

// Grant is the lease for the process that makes or resumes an operation.
type Grant struct {
	Owner uuid.UUID
	TTL   time.Duration
}

// DecideCreate makes an operation that the lock key is free for, running and with nothing drawn yet. holder is the
// operation that has the lock key, or nil. It returns a [*LockHeldError], a [*ParameterError], or fairdraw's error about
// the seed.
func DecideCreate(op *Create, id uuid.UUID, seed fairdraw.Seed, holder *uuid.UUID, g Grant, now time.Time) (*Operation, *Draws, error) {
	d, err := New(seed, id.String(), op.Spec)
	if err != nil {
		return nil, nil, err
	}
	s, err := NewState(d, op.Count, op.Every)
	if err != nil {
		return nil, nil, err
	}
	if holder != nil {
		return nil, nil, &LockHeldError{LockKey: op.LockKey, Holder: *holder}
	}
	o := &Operation{
		ID: id, LockKey: op.LockKey, Spec: op.Spec, Status: StatusRunning, Total: op.Count, Every: s.Every,
		Parameters: s.Parameters, Digest: s.Digest, StartedAt: now, UpdatedAt: now,
	}
	if (*Hash)(&o.Commitment).UnmarshalText([]byte(d.commitment)) != nil {
		panic("multidraw: a commitment that is no hash")
	}
	o.grant(g, now)
	return o, d, nil
}

// DecideAtOnce makes all draws of an operation that was just made, and returns them chunk by chunk.
func DecideAtOnce(o *Operation, d *Draws, now time.Time) [][]byte {
	var chunks [][]byte
	at := o.State()
	for !at.Done() {
		saved := at.draw(d, nil)
		chunks = append(chunks, saved)
		if o.Total <= InlineResults {
			o.Inline = append(o.Inline, saved...)
		}
	}
	o.apply(&at, now)
	return chunks
}

// firstTerm is that of an operation that was never resumed.
const firstTerm = 1

// grant gives the operation's lease, in a new term.
func (o *Operation) grant(g Grant, now time.Time) {
	o.Owner, o.LeaseExpiresAt = g.Owner, now.Add(g.TTL)
	o.Term++
}

// interrupted reports whether no process runs the operation and draws are left. An expired lease is enough, whether or not
// that was noted.
func (o *Operation) interrupted(now time.Time) bool {
	return o.Status == StatusInterrupted || (o.Status == StatusRunning && !now.Before(o.LeaseExpiresAt))
}

// DecideResume makes an interrupted operation running again, under a new term. It returns [ErrBadTransition] in any other
// status, and [ErrOtherParameters] or a [*CorruptError] where the seed or the saved state are not the operation's.
func DecideResume(o *Operation, seed fairdraw.Seed, g Grant, now time.Time) error {
	if !o.interrupted(now) {
		return ErrBadTransition
	}
	d, err := New(seed, o.ID.String(), o.Spec)
	if err != nil {
		return corrupt("%v", err)
	}
	s := o.State()
	if err := s.Check(d); err != nil {
		return err
	}
	if s.Checkpoints() != o.Checkpoints {
		return corrupt("%d checkpoints for %d draws, saved each %d", o.Checkpoints, o.Completed, o.Every)
	}
	o.Status, o.UpdatedAt = StatusRunning, now
	o.grant(g, now)
	return nil
}

// DecideRollback ends an operation for good. It returns [ErrBadTransition] unless it is interrupted or completed.
func DecideRollback(o *Operation, now time.Time) error {
	if o.Status != StatusCompleted && !o.interrupted(now) {
		return ErrBadTransition
	}
	o.Status, o.UpdatedAt, o.RolledBackAt = StatusRolledBack, now, &now
	o.Term++ // A process that still runs it is fenced.
	return nil
}

// DecideInterrupt notes that the run in a term has ended before its time. It reports whether anything changed: not where
// the operation has gone on since.
func DecideInterrupt(o *Operation, term int64, now time.Time) bool {
	if o.Status != StatusRunning || o.Term != term {
		return false
	}
	o.Status, o.UpdatedAt = StatusInterrupted, now
	return true
}
