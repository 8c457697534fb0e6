package deliver

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// Key names a topic of a subscription.
type Key struct {
	Subscription uuid.UUID
	Topic        string
}

// Open is a subscription that delivers, as far as hints need to know it.
type Open struct {
	Subscription, Target uuid.UUID
	Topics               []string
}

// Behind is a topic with events that a subscription has neither delivered nor passed over.
type Behind struct {
	Key

	Target  uuid.UUID
	Rest    time.Duration // until it may be tried again; 0: now
	Stopped bool
}

// Survey is what a look at all subscriptions finds.
type Survey struct {
	Open    []Open
	Paused  int // subscriptions
	Behind  []Behind
	Lag     int64 // events of all topics that are behind, of subscriptions that are not paused
	Stopped int   // topics
	// More says that there are topics behind that are not in the list.
	More bool
}

// Place is where a subscription is in a topic, with all that its next deliveries need.
type Place struct {
	publish.Subscription

	Target   publish.Target
	Seq      int64 // of the last event that was delivered or passed over
	Attempts int   // failed ones of the next
	Now      time.Time
}

// Step moves a place, or notes why it does not move.
type Step struct {
	Key

	Term     int64
	From, To int64 // the same where the event after From was not delivered
	// Delivered says that the event To was; otherwise those up to To were passed over, or an attempt has failed.
	Delivered bool
	Attempts  int // failed ones of the event after To
	Rest      time.Duration
	Stopped   bool
	Refused   bool // for good
	Refusals  int  // in a row, when the place was read
	Failure   publish.Result
}

// Recorded is what came of a step.
type Recorded struct {
	// Moved is false where the place was not the step's any more: somebody has moved it, or deleted the subscription.
	Moved bool
	Held  bool // whether the subscription, or its target, is paused
	// Blocked is why nothing was recorded where another session keeps a row locked.
	Blocked *command.BlockedError
}

// Store is what the deliverer needs of a database. Errors are those of [publish.Store].
type Store interface {
	// Survey looks at all subscriptions, and lists up to most topics of each that are behind: first those that may be tried.
	Survey(ctx context.Context, most int) (*Survey, error)
	// Place reads a place, and makes it where there is none. It returns nil where the subscription is gone, where it, or its target,
	// is paused, and where the topic is stopped or rests. It returns a [command.BlockedError] where it is known that a step could not be
	// recorded.
	Place(ctx context.Context, k Key) (*Place, error)
	// Record records steps of different topics. A step counts where the place is the one that it is from, and no later leader has moved
	// it. [publish.MaxRefusals] refusals in a row pause a subscription. A row that another session keeps locked blocks its own steps alone.
	Record(ctx context.Context, steps []Step) ([]Recorded, error)
}
