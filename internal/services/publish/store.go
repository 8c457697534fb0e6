package publish

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/claim"
	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
)

// Thing says what a transaction works on: things that it makes, or one that exists.
type Thing int

// The things.
const (
	NewPublications Thing = iota
	NewTargets
	NewAutomations
	NewSubscriptions
	OnePublication
	OneTarget
	OneAutomation
	OneSubscription
)

func (t Thing) isNew() bool { return t < OnePublication }

// holdsSecrets reports whether the answers may hold a secret, so that they are sealed under their keys.
func (t Thing) holdsSecrets() bool { return t == NewTargets || t == OneTarget }

// Subject is what the commands of a batch have in common. The ID is nil where things are made.
type Subject struct {
	Thing

	ID uuid.UUID
}

// Want says what a transaction locks and reads.
type Want struct {
	Subject

	Targets       []string // the names of those that are to be read, for what is made
	Automations   []string // names of automations to be made, which may be taken
	Subscriptions []string // likewise, of subscriptions
	Topics        []string // whose spans are to be read
	Keys          []idempotency.ID
}

// Unit is what one transaction works on. Its maps are there.
type Unit struct {
	Now     time.Time // the database's clock, after the locks
	NewID   func() uuid.UUID
	Targets map[string]*Target // those that exist of the names that were asked for
	// BlockedTargets is why others of them can't be used now.
	BlockedTargets map[string]error
	// Publication, Target, Automation or Subscription is the one that is locked, where the transaction works on one.
	Publication  *Publication
	Target       *Target
	Automation   *Automation
	Subscription *Subscription
	// AutomationNames and SubscriptionNames are those that are taken, of the names that were asked for.
	AutomationNames   map[string]bool
	SubscriptionNames map[string]bool
	Spans             map[string]TopicSpan // of the topics that exist, of those that were asked for
	// Made and its like are to be inserted; Tokens by target, in place of what there is.
	Made            []*Publication
	MadeTargets     []*Target
	MadeAutomations []*Automation
	// MadeSubscriptions begin with the events that are to come, but for those in FromStart.
	MadeSubscriptions []*Subscription
	FromStart         map[uuid.UUID]bool
	Replays           []ReplayTopic // of the one subscription
	Resumed           bool          // whether the one subscription's topics wait for no retry any more
	Tokens            map[uuid.UUID]Sealed
	Audit             []command.Audit
	// Known are the records of the keys, Fresh those to be written. Where answers hold secrets, they are sealed in both.
	Known, Fresh []idempotency.Record
	// Blocked is why nothing is locked: another session has locked it. Nothing is written then; the keys tell repeats.
	Blocked *command.BlockedError

	soon []time.Duration // until what was changed is due
}

// note notes when a publication is due.
func (u *Unit) note(p *Publication) {
	if p.Status == StatusScheduled {
		u.soon = append(u.soon, p.DueAt.Sub(u.Now))
	}
}

// target returns the target that a creation refers to.
func (u *Unit) target(name string) (*Target, error) {
	if reason := u.BlockedTargets[name]; reason != nil {
		return nil, reason
	}
	if t := u.Targets[name]; t != nil {
		return t, nil
	}
	return nil, &NotFoundError{What: "target", Name: name}
}

// Store is what the service needs of a database.
type Store interface {
	Reader
	// Commit runs one transaction: it locks and reads what is wanted, calls decide, writes what decide changed, and commits.
	// decide may fail, and nothing is written then; it is called again with a new unit whenever the transaction has to be run
	// again. Errors: [NotFoundError] where the one thing does not exist, command.ErrUnavailable, command.ErrUnknownOutcome, or
	// what the database refused.
	Commit(ctx context.Context, want Want, decide func(*Unit) error) error
}

// Reader answers questions.
type Reader interface {
	// Automation returns one automation, or [NotFoundError].
	Automation(ctx context.Context, id uuid.UUID) (*Automation, error)
	// Automations returns up to limit automations with a number above after, in order.
	Automations(ctx context.Context, after int64, limit int) ([]Automation, error)
	// Firings returns up to limit firings of an automation with a number above after, in order, or [NotFoundError].
	Firings(ctx context.Context, id uuid.UUID, after int64, limit int) ([]Firing, error)
	// Publication returns one publication with its payload, or [NotFoundError].
	Publication(ctx context.Context, id uuid.UUID) (*Publication, error)
	// Publications returns up to limit publications with a number above after, in order, without payloads; of one status
	// unless that is empty.
	Publications(ctx context.Context, status Status, after int64, limit int) ([]Publication, error)
	// Attempts returns up to limit attempts of a publication with a version above after, in order, or [NotFoundError].
	Attempts(ctx context.Context, id uuid.UUID, after int64, limit int) ([]Attempt, error)
	// Target returns one target, or [NotFoundError].
	Target(ctx context.Context, id uuid.UUID) (*Target, error)
	// Targets returns up to limit targets with a number above after, in order.
	Targets(ctx context.Context, after int64, limit int) ([]Target, error)
	// Subscription returns one subscription, or [NotFoundError].
	Subscription(ctx context.Context, id uuid.UUID) (*Subscription, error)
	// Subscriptions returns up to limit subscriptions with a number above after, in order.
	Subscriptions(ctx context.Context, after int64, limit int) ([]Subscription, error)
	// TopicsOf returns up to limit topics of a subscription that come after one in the order of text, of those that it has come to, or
	// [NotFoundError].
	TopicsOf(ctx context.Context, id uuid.UUID, after string, limit int) ([]TopicProgress, error)
}

// Claim is the right to make one attempt at the publication ID, or to renew the token of the target ID.
type Claim = claim.Claim[uuid.UUID]

// Work is a claimed publication with all that an attempt needs.
type Work struct {
	Claim

	Target    *Target
	Payload   []byte
	Progress  []byte        // what an earlier attempt has saved, nil when there is none
	Try       int           // of the present run, from 1
	Late      time.Duration // how long it had been due when it was claimed
	ClaimedAt time.Time     // when that was, by the database's clock

	meter *Meter // once the attempt has begun
}

// Beat is the heartbeat of a claim, and what its attempt is doing.
type Beat struct {
	Claim
	Activity
}

// Slots say how much a worker can take.
type Slots struct {
	Total   int
	Each    int // how much of one target, but for those that Targets names
	Targets map[uuid.UUID]int
	// Keys name the vault's keys: what is sealed under another one cannot be sent by this process.
	Keys []string
}

// Next says when something is due.
type Next struct {
	In *time.Duration // less than nothing where it is overdue; nil where nothing is scheduled
	// Whole says that everything was looked at. Otherwise something that is due earlier may have been passed over, for a moment.
	Whole bool
}

// Conclusion is how an attempt ended.
type Conclusion struct {
	Claim
	Verdict
	Result

	Target uuid.UUID
	Slowed bool // whether the target was slowed when the publication was claimed
}

// Queue is what a worker needs of a database. Errors are those of [Store].
type Queue interface {
	// ClaimDue claims publications that are due by the database's clock, as many as there are slots for, for targets that
	// are open now. While somebody holds a snapshot of the database, what comes to be due before others of its target that
	// were claimed may come a second later, or after ten times as long as a look at everything takes.
	ClaimDue(ctx context.Context, s Slots) ([]*Work, error)
	// NextDue says when something is due for a target that has a slot, by the database's clock.
	NextDue(ctx context.Context, s Slots) (Next, error)
	// Heartbeat keeps claims alive, notes what their attempts are doing, and returns those that are lost.
	Heartbeat(ctx context.Context, beats []Beat) (lost []Claim, err error)
	// SaveProgress keeps what an attempt has brought about so far, for the next one. It returns [ErrClaimLost] when the claim
	// is not in force any more.
	SaveProgress(ctx context.Context, c Claim, progress []byte) error
	// Conclude records ends of attempts. It changes the publications whose claim is still in force; the other attempts are recorded
	// as refused. It calls repace for the new pace of each target that has throttled an attempt, or took one while it was slowed. It
	// pauses a target when a verdict says so, unless the target was resumed after the attempt had begun. It returns the result that
	// is recorded for each conclusion, empty where the attempt had ended before.
	Conclude(ctx context.Context, batch []Conclusion, repace func(c *Conclusion, p Pace, now time.Time) Pace) ([]AttemptResult, error)
	// ReleaseStale frees publications whose claim had no heartbeat for age, notes their attempts as lost, and returns how
	// many there were. Those without attempts left have failed.
	ReleaseStale(ctx context.Context, age time.Duration) (int, error)
	// Reseal has every secret that is sealed under one of the vault's keys, but not the first, sealed under the first, and
	// returns how many there were. Any number of processes may call it at once.
	Reseal(ctx context.Context, v *Vault) (int, error)
	// FireDue fires one automation that is due by the database's clock, in one transaction that [Fire] decides, and returns
	// the firing and the publication that it scheduled; all are nil when none is due. Any number of processes may call it
	// at once.
	FireDue(ctx context.Context, draw Draw) (*Automation, *Firing, *Publication, error)
}
