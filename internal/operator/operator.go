package operator

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/auth"
)

// How long what a browser holds is good for.
const (
	// SessionLife is a working day with some slack; a session is not prolonged by use, so that a stolen one ends.
	SessionLife = 12 * time.Hour
	// LinkLife is the time in which somebody who has just started a server looks at its output.
	LinkLife = 30 * time.Minute
)

// secretBytes is the randomness of a session's or link's secret.
const secretBytes = 32

var (
	// ErrNoSession is returned when a secret is no session's, or that of one that has ended.
	ErrNoSession = errors.New("operator: there is no such session")
	// ErrLinkUsed is returned when a link does not sign in: it never was one, it was used, or its time is over.
	ErrLinkUsed = errors.New("operator: the link is used up or has expired")
	// ErrNoSecret is returned for a secret that no migration has made.
	ErrNoSecret = errors.New("operator: there is no such secret")
	// ErrNoKeyRecord is returned when nothing is kept under an idempotency key.
	ErrNoKeyRecord = errors.New("operator: nothing is kept under this key")
)

// Unreadiness is why commands are not served.
type Unreadiness string

// The reasons.
const (
	UnreadyDatabase Unreadiness = "database_unreachable"
	UnreadyReadOnly Unreadiness = "read_only"
	UnreadyCommit   Unreadiness = "commit_timeout" // such as that of a standby which does not confirm
	UnreadyDisk     Unreadiness = "disk_full"
	UnreadySchema   Unreadiness = "schema" // older than this version needs
	UnreadyPool     Unreadiness = "pool_exhausted"
	UnreadyDraining Unreadiness = "draining"
)

// UnreadyError is returned while commands are not committed.
type UnreadyError struct {
	Reason Unreadiness
	Err    error // for the log
}

func (e *UnreadyError) Error() string { return string(e.Reason) + ": " + e.Err.Error() }
func (e *UnreadyError) Unwrap() error { return e.Err }

// LinkFragment goes between the console's address and a link's secret. Browsers don't send what is behind the #: the secret is in
// no log of a server or proxy.
const LinkFragment = "#link="

// SecretOfAliases names the secret from which the aliases of accounts follow.
const SecretOfAliases = "aliases"

// Hash is the SHA-256 of a secret: what is stored.
type Hash = [sha256.Size]byte

// NewSecret makes the secret of a session or link, as text that fits a cookie and a URL, and its hash.
func NewSecret() (secret string, hash Hash) {
	b := make([]byte, secretBytes)
	_, _ = rand.Read(b) // It never fails: crypto/rand ends the process instead.
	secret = base64.RawURLEncoding.EncodeToString(b)
	return secret, HashOf(secret)
}

// HashOf is the hash under which a secret is looked up.
func HashOf(secret string) Hash { return sha256.Sum256([]byte(secret)) }

// Session is somebody signed in to the console.
type Session struct {
	Key       auth.Key // whose rights it has
	CreatedAt time.Time
	ExpiresAt time.Time
}

// AuditRow is an administrative action that took place.
type AuditRow struct {
	ID        uuid.UUID
	At        time.Time
	Principal string
	Action    string
	Object    string
	RequestID string
}

// AuditFilter narrows the audit log; at most one member is set.
type AuditFilter struct{ Action, Object, Principal string }

// KeyRecord is what is kept under an idempotency key.
type KeyRecord struct {
	Execution uuid.UUID // of the request that ran
	Status    int
	Body      []byte // the answer, byte for byte
	CreatedAt time.Time
}

// BidMark is a bid on the chart of an auction.
type BidMark struct {
	Seq    int64
	Amount int64
	Round  int
	At     time.Time
}

// RoundMark is the start, extension or end of a round on the chart of an auction.
type RoundMark struct {
	Seq  int64
	Type string // of the event
	At   time.Time
	Data []byte // of the event, JSON
}

// SaleMark is a sale on the chart of a campaign: how many were sold with it, and when.
type SaleMark struct {
	Sold int
	At   time.Time
}

// Balance is an account's balance at a time.
type Balance struct {
	At      time.Time
	Balance int64
}

// Balances are an account's balance over a time: Opening at its beginning, then that after each entry.
type Balances struct {
	From, To time.Time
	Opening  int64
	Balances []Balance
}

// Deadlock is one that was broken: each owner waited for the next, the last for the first, whose request was refused. Keys are what each
// waited for.
type Deadlock struct {
	At    time.Time
	Cycle []string
	Keys  []string
}

// Backlog counts what waits for somebody or something, in the whole system. Each count stops at [BacklogLimit].
type Backlog struct {
	CampaignsActive, CampaignsDrawing     int
	DrawsDelayed                          int // of the campaigns that are drawing
	AuctionsActive                        int
	RoundsOverdue                         int // of active auctions, over for longer than their closing takes
	PublicationsDue, PublicationsRunning  int
	PublicationsLate                      int // of those due, for longer than a minute, although their targets are neither paused nor slowed
	PublicationsFailed                    int
	LocksHeld, LocksWaited                int
	TransfersPending, SagasPending        int
	SagasStuck                            int // of the pending
	MultidrawsRunning, MultidrawsStopped  int
	OldestDrawing, OldestClaim, OldestDue *time.Time
}

// BacklogLimit is where counting stops. To an operator, more makes no difference.
const BacklogLimit = 1000

// DatabaseWait is a session of the database that waits for one of PostgreSQL's own locks, in PostgreSQL's words.
type DatabaseWait struct {
	PID                  int32
	Application          string
	Kind, Mode, Relation string
	Since                time.Time
	Statement            string
	Blockers             []DatabaseBlocker
}

// DatabaseBlocker is a session that others wait for; one without a PID is a prepared transaction.
type DatabaseBlocker struct {
	PID                int32
	Application, State string
	TransactionSince   time.Time // zero where that can't be seen
	Statement          string
}
