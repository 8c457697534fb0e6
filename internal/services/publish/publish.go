package publish

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Limits of a publication.
const (
	// MaxJitter bounds by how much a publication may be moved behind its time.
	MaxJitter = 300 * time.Second
	// MaxAttempts is how often a publication is attempted before it has failed; a retry that an operator asks for begins
	// anew.
	MaxAttempts = 7
	// MaxURL bounds a target's URL, in bytes.
	MaxURL = 2000
	// DefaultTimeout, MinTimeout and MaxTimeout bound how long an attempt may take, uploads included.
	DefaultTimeout = 30 * time.Second
	MinTimeout     = time.Second
	MaxTimeout     = 15 * time.Minute
)

// Status is where a publication stands.
type Status string

// The statuses. docs/design/publish.md has the transitions.
const (
	StatusDraft      Status = "draft"
	StatusScheduled  Status = "scheduled"  // waits for its time, the first or that of its next attempt
	StatusPublishing Status = "publishing" // claimed
	StatusPublished  Status = "published"
	StatusFailed     Status = "failed"
	StatusCancelled  Status = "cancelled"
)

// Statuses are all of them, in order.
func Statuses() []Status {
	return []Status{StatusDraft, StatusScheduled, StatusPublishing, StatusPublished, StatusFailed, StatusCancelled}
}

// AttemptResult is how an attempt ended; empty while it runs.
type AttemptResult string

// The results of attempts.
const (
	ResultPublished AttemptResult = "published"
	ResultFailed    AttemptResult = "failed"
	ResultLost      AttemptResult = "lost"    // its claim went stale, and no result had come
	ResultRefused   AttemptResult = "refused" // its result came after that, and does not count
)

// Kind is what a target is: which [Sender] brings publications to it. A program that embeds the publisher may have kinds of
// its own, lower-case letters, digits and underscores, up to 64 of them.
type Kind string

// KindWebhook is a URL that publications are posted to (package webhook). KindDeviantArt is an account of that site
// (package deviantart).
const (
	KindWebhook    Kind = "webhook"
	KindDeviantArt Kind = "deviantart"
)

// PauseReason says why a target is sent nothing; empty while it is.
type PauseReason string

// The reasons.
const (
	PausedByRequest   PauseReason = "request"
	PausedAuthExpired PauseReason = "auth_expired" // its authorization has to be given anew
)

// Publication is one thing to be published once.
type Publication struct {
	ID         uuid.UUID
	Number     int64     // the order of lists
	Target     uuid.UUID // where it goes, by id and by name
	TargetName string
	Status     Status
	Payload    []byte // JSON, as it came; nil where it was not asked for
	Jitter     time.Duration
	// PublishAt is the time that was asked for; nil in a draft. ActualPublishAt has the jitter added. DueAt is when it may
	// be claimed next; it is behind ActualPublishAt after a failed attempt.
	PublishAt, ActualPublishAt, DueAt *time.Time
	// LockID and LockedAt are those of the claim that is in force; Version that of the last claim, 0 before the first.
	LockID      *uuid.UUID
	LockedAt    *time.Time
	Version     int64
	Attempts    int
	Spent       int // how many of the attempts count no more, because a retry has given new ones
	LastError   string
	ExternalID  string // what the target calls it, where it says so
	PublishedAt *time.Time
	CreatedAt   time.Time
	Running     *Attempt // the attempt under way; nil where it was not asked for
}

// Attempt is one execution under one claim.
type Attempt struct {
	Version    int64
	LockID     uuid.UUID
	StartedAt  time.Time
	EndedAt    *time.Time
	Result     AttemptResult // empty while it runs
	StatusCode int           // of the target's answer, 0 without one
	Error      string
	// HeartbeatAt is when its worker last gave a sign of life, nil before the first. What follows is what the attempt was doing then,
	// as [Activity] has it.
	HeartbeatAt           *time.Time
	Stage                 string
	SentBytes, TotalBytes int64
}

// Target is where publications go.
type Target struct {
	ID      uuid.UUID
	Number  int64
	Name    string
	Kind    Kind
	URL     string
	Timeout time.Duration // of one whole attempt
	Secret  Sealed
	// Previous is the secret before the last rotation, which signs too until PreviousUntil, which is nil when there is none.
	Previous      Sealed
	PreviousUntil *time.Time
	Pace          Pace
	// PausedAt is when it was paused, nil while it is not. ResumedAt is when it last stopped being so.
	PausedAt, ResumedAt *time.Time
	PausedReason        PauseReason
	CreatedAt           time.Time
	// LastDelivery and LastFailure are nil where there was none, and where they were not asked for.
	LastDelivery, LastFailure *TargetOutcome
}

// HasSigningSecret reports whether deliveries to the target are signed with a secret that was made here. The secret of any
// other target is the other side's credentials.
func (t *Target) HasSigningSecret() bool { return t.Kind == KindWebhook }

// Sealed is a secret that only the holder of a key can read.
type Sealed struct {
	KeyID string
	Bytes []byte
}

// Errors of commands.
var (
	// ErrBadTransition is returned when the publication's status does not allow the operation.
	ErrBadTransition = errors.New("the publication's status does not allow this")
	// ErrTargetExists is returned when a target of that name exists.
	ErrTargetExists = errors.New("a target of this name exists")
	// ErrUnsupportedKind is what an attempt ends with when no sender for a target of that kind is there.
	ErrUnsupportedKind = errors.New("this server has no sender for such a target")
	// ErrRefusedURL is returned when nothing would be sent to a new target's URL; see [Options.CheckURL].
	ErrRefusedURL = errors.New("the URL is not one that this server sends to")
	// ErrWrongKind is returned when the operation means nothing for a target of that kind.
	ErrWrongKind = errors.New("a target of this kind has nothing to replace")
	// ErrAutomationExists is returned when an automation of that name exists.
	ErrAutomationExists = errors.New("an automation of this name exists")
)

// ErrClaimLost is returned when something was to be written under a claim that is not in force any more.
var ErrClaimLost = errors.New("publish: the claim was lost")

// NotFoundError is returned when there is no such publication, target, automation, subscription or topic. A target may be known by its
// name, and a topic is.
type NotFoundError struct {
	What string // publication, target, automation, subscription or topic
	Name string
	ID   uuid.UUID
}

func (e *NotFoundError) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("%s %s does not exist", e.What, e.ID)
	}
	return fmt.Sprintf("%s %q does not exist", e.What, e.Name)
}
