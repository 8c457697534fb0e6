package multidraw

import (
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/idempotency"
)

// Status is where an operation stands.
type Status string

// The statuses.
const (
	StatusRunning     Status = "running"
	StatusCompleted   Status = "completed"
	StatusInterrupted Status = "interrupted"
	StatusRolledBack  Status = "rolled_back"
)

// Limits of operations.
const (
	// AtOnce is the most draws that are made in the transaction that makes the operation, where the caller waits for them:
	// some milliseconds of work.
	AtOnce        = 10_000
	InlineResults = 1_000 // the most draws that come with the operation
)

// Operation is a multi-draw as it is kept.
type Operation struct {
	ID          uuid.UUID
	Number      int64 // the order of lists
	LockKey     string
	Spec        Spec
	Status      Status
	Total       int64
	Completed   int64
	Every       int   // draws between two checkpoints
	Checkpoints int64 // how often the operation was saved, and the number of its last event
	Parameters  [sha256.Size]byte
	Commitment  [sha256.Size]byte // of the seed
	Digest      [sha256.Size]byte

	Owner          uuid.UUID // the process that runs it, or ran it last
	Term           int64     // of the owner's lease; higher with each grant
	LeaseExpiresAt time.Time

	StartedAt    time.Time
	UpdatedAt    time.Time
	CompletedAt  *time.Time
	RolledBackAt *time.Time

	// Pending is the key under which the operation was asked for, as long as the answer is not decided.
	Pending *idempotency.Request
	Inline  []byte         // the saved draws so far, of operations of up to InlineResults
	Seed    *fairdraw.Seed // set once the operation was completed
}

// TopicPrefix begins the names of the topics of operations' events.
const TopicPrefix = "multidraw:"

// Topic is the name of an operation's events.
func Topic(id uuid.UUID) string { return TopicPrefix + id.String() }

// State is where the operation's run stands.
func (o *Operation) State() State {
	return State{
		Version: stateVersion, Name: o.ID.String(), Parameters: o.Parameters, Commitment: hex.EncodeToString(o.Commitment[:]), Total: o.Total,
		Completed: o.Completed, Every: o.Every, Digest: o.Digest,
	}
}

// DigestOf returns the digest of what was saved at all checkpoints, in order: that of the operation, unless something of it was changed since. Its error is
// the first that saved yields.
func (o *Operation) DigestOf(saved iter.Seq2[[]byte, error]) (digest [sha256.Size]byte, err error) {
	digest = firstDigest(o.Parameters, o.ID.String())
	for bytes, err := range saved {
		if err != nil {
			return digest, err
		}
		digest = nextDigest(digest, bytes)
	}
	return digest, nil
}

// apply notes what a run has reached.
func (o *Operation) apply(s *State, now time.Time) {
	o.Completed, o.Digest, o.Checkpoints, o.UpdatedAt = s.Completed, s.Digest, s.Checkpoints(), now
	if s.Done() {
		o.Status, o.CompletedAt = StatusCompleted, &now
	}
}

// same reports whether the operation has not changed since.
func (o *Operation) same(now *Operation) bool {
	return o.Status == now.Status && o.Owner == now.Owner && o.Term == now.Term && o.UpdatedAt.Equal(now.UpdatedAt)
}

// Create makes an operation. Result: *[Operation].
type Create struct {
	LockKey string
	Count   int64
	Spec    Spec
	Every   int  // draws between two checkpoints; 0 means EveryFor
	Async   bool // answer at once, and draw afterwards
}

// Resume goes on with an interrupted operation. Result: *[Operation], running.
type Resume struct{}

// Rollback ends an interrupted or a completed operation for good. What was drawn stays readable. Result: *[Operation].
type Rollback struct{}

// Op is one of Create, Resume and Rollback.
type Op interface{ op() }

func (Create) op()   {}
func (Resume) op()   {}
func (Rollback) op() {}
