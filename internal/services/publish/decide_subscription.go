package publish

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/auction"
)

// Limits of a subscription.
const (
	MaxTopics = 100 // that it names
	// MaxRefusals is how many answers in a row that nothing will change pause a subscription.
	MaxRefusals = 10
)

// Envelope is the form in which a subscription's events are sent.
type Envelope string

// The envelopes.
const (
	EnvelopePlain       Envelope = "plain"       // the message of the live stream
	EnvelopeCloudEvents Envelope = "cloudevents" // CloudEvents 1.0, structured JSON
)

// Envelopes are all of them.
func Envelopes() []Envelope { return []Envelope{EnvelopePlain, EnvelopeCloudEvents} }

// TopicKinds are the kinds of topics that subscriptions may name: what stands before the colon.
func TopicKinds() []string { return []string{"auction", "campaign", "multidraw"} }

// The types of the events of campaigns, and the one of multi-draws, whose data are their checkpoints.
const (
	EventPurchaseMade  = "purchase.made"
	EventDrawCompleted = "draw.completed"
	EventProgress      = "progress"
)

// EventTypes are the types of events that subscriptions deliver. Those without a number, such as the countdown, are for the live stream alone.
func EventTypes() []string {
	return []string{
		string(auction.EventAuctionStarted), string(auction.EventAuctionCompleted), string(auction.EventAuctionCancelled), string(auction.EventBidPlaced),
		string(auction.EventRoundExtended), string(auction.EventRoundCompleted), string(auction.EventRoundStarted), string(auction.EventBidCarriedOver),
		EventPurchaseMade, EventDrawCompleted, EventProgress,
	}
}

// wildcard is the topic of a kind that stands for all of them.
const wildcard = ":*"

// WholeKind returns the kind of which a topic names all, and whether it does.
func WholeKind(topic string) (kind string, whole bool) { return strings.CutSuffix(topic, wildcard) }

// AllOf is the topic that names all of a kind.
func AllOf(kind string) string { return kind + wildcard }

// SubscriptionReason says why a subscription is paused; empty while it is not.
type SubscriptionReason string

// The reasons.
const (
	SubscriptionOnRequest SubscriptionReason = "request"
	// SubscriptionRefused says that the target has refused events for good, [MaxRefusals] times in a row.
	SubscriptionRefused SubscriptionReason = "refused"
)

// Subscription delivers the events of topics to a target.
type Subscription struct {
	ID           uuid.UUID
	Number       int64 // the order of lists
	Name         string
	Target       uuid.UUID
	TargetName   string
	Topics       []string // "auction:ID", or "auction:*" for all of a kind
	Types        []string // of the events that are delivered; empty: all
	Envelope     Envelope
	Refusals     int // permanent ones in a row
	PausedAt     *time.Time
	PausedReason SubscriptionReason
	CreatedAt    time.Time
	DeletedAt    *time.Time
}

// Follows reports whether a topic is one of the subscription's.
func (s *Subscription) Follows(topic string) bool {
	kind, _, _ := strings.Cut(topic, ":")
	return slices.Contains(s.Topics, topic) || slices.Contains(s.Topics, AllOf(kind))
}

// Wants reports whether events of a type are delivered.
func (s *Subscription) Wants(eventType string) bool {
	return len(s.Types) == 0 || slices.Contains(s.Types, eventType)
}

// TopicState says in one word how a subscription fares with a topic.
type TopicState string

// The states, the first that holds.
const (
	TopicStopped  TopicState = "stopped"  // events are not kept any more; nothing is sent until somebody says from where
	TopicRetrying TopicState = "retrying" // the last attempt failed
	TopicBehind   TopicState = "behind"   // there are events that were not delivered yet
	TopicCurrent  TopicState = "current"
)

// TopicProgress is how far a subscription has come with a topic.
type TopicProgress struct {
	Topic       string
	Seq, Head   int64 // the last event that was delivered or passed over, and the last there is
	Attempts    int   // failed ones of the event after Seq
	RetryAt     *time.Time
	Stopped     bool
	Error       string // of the last attempt; empty where it delivered
	Cause       Cause
	StatusCode  int // of the answer, 0 without one
	DeliveredAt *time.Time
}

// Lag is how many events there are that were neither delivered nor passed over.
func (p *TopicProgress) Lag() int64 { return max(0, p.Head-p.Seq) }

// State says how the subscription fares with the topic.
func (p *TopicProgress) State() TopicState {
	switch {
	case p.Stopped:
		return TopicStopped
	case p.Attempts > 0:
		return TopicRetrying
	case p.Lag() > 0:
		return TopicBehind
	}
	return TopicCurrent
}

// TopicSpan is what a topic's log holds: the numbers of the first event that is kept, and of the last, 0 where there is none.
type TopicSpan struct{ First, Last int64 }

// Errors of commands on subscriptions.
var (
	// ErrSubscriptionExists is returned when a subscription of that name exists.
	ErrSubscriptionExists = errors.New("a subscription of this name exists")
	// ErrNoWebhook is returned when a subscription is to deliver to a target that is no webhook.
	ErrNoWebhook = errors.New("events are delivered to targets of the kind webhook")
)

// ReplayError is returned when a topic can't be replayed after a number.
type ReplayError struct{ Least, Most int64 }

func (e *ReplayError) Error() string {
	return fmt.Sprintf("after must be from %d, before the first event that is kept, to %d, the last", e.Least, e.Most)
}

type (
	// CreateSubscription makes a subscription.
	CreateSubscription struct {
		Name      string
		Target    string // its name
		Topics    []string
		Types     []string
		Envelope  Envelope
		FromStart bool // with the events that there are already
	}
	// PauseSubscription keeps a subscription's events back. What is being sent goes on.
	PauseSubscription struct{}
	// ResumeSubscription ends that, and waits for no failed attempt's pause.
	ResumeSubscription struct{}
	// ReplayTopic has a topic's events after a number delivered, again or for the first time.
	ReplayTopic struct {
		Topic string
		After int64
	}
	// DeleteSubscription ends a subscription for good.
	DeleteSubscription struct{}
)

func (CreateSubscription) action() string { return "subscription.create" }
func (PauseSubscription) action() string  { return "subscription.pause" }
func (ResumeSubscription) action() string { return "subscription.resume" }
func (ReplayTopic) action() string        { return "subscription.replay" }
func (DeleteSubscription) action() string { return "subscription.delete" }

// DecideCreateSubscription makes a subscription to deliver to a target. spans has the topics that exist, of those that it names by id.
func DecideCreateSubscription(op CreateSubscription, target *Target, spans map[string]TopicSpan, id uuid.UUID, now time.Time) (*Subscription, error) {
	if target.Kind != KindWebhook {
		return nil, ErrNoWebhook
	}
	for _, topic := range op.Topics {
		if _, whole := WholeKind(topic); whole {
			continue
		}
		if _, ok := spans[topic]; !ok {
			return nil, &NotFoundError{What: "topic", Name: topic}
		}
	}
	return &Subscription{
		ID: id, Name: op.Name, Target: target.ID, TargetName: target.Name, Topics: op.Topics, Types: append([]string{}, op.Types...), Envelope: op.Envelope,
		CreatedAt: now,
	}, nil
}

// DecideSubscription carries an operation out on a subscription, which it changes unless it returns [ErrBadTransition], a
// [NotFoundError] or a [ReplayError]. spans has the topics that exist, of those that are to be replayed.
func DecideSubscription(s *Subscription, op Op, spans map[string]TopicSpan, now time.Time) error {
	if s.DeletedAt != nil {
		return &NotFoundError{What: "subscription", ID: s.ID}
	}
	switch op := op.(type) {
	case PauseSubscription:
		if s.PausedReason == SubscriptionOnRequest {
			return ErrBadTransition
		}
		s.PausedAt, s.PausedReason = &now, SubscriptionOnRequest
	case ResumeSubscription:
		if s.PausedAt == nil {
			return ErrBadTransition
		}
		s.PausedAt, s.PausedReason, s.Refusals = nil, "", 0
	case ReplayTopic:
		span, ok := spans[op.Topic]
		if !ok || !s.Follows(op.Topic) {
			return &NotFoundError{What: "topic", Name: op.Topic}
		}
		if op.After < span.First-1 || op.After > span.Last {
			return &ReplayError{Least: span.First - 1, Most: span.Last}
		}
	case DeleteSubscription:
		s.DeletedAt = &now
	default:
		panic(fmt.Sprintf("publish: %T is no operation on a subscription", op))
	}
	return nil
}

// DecideRetry says what becomes of an event that was not delivered: for how long nothing of its topic is sent, and whether the target has
// refused it for good. attempts counts those of the event that have failed, this one too, from 1.
func DecideRetry(r Result, attempts int, policy Policy, draw Draw) (rest time.Duration, refused bool) {
	most := policy.SlowRetry()
	switch {
	case r.Class == Permanent || r.Class == AuthExpired:
		return shifted(most, draw), true
	case r.RetryAfter > 0:
		return min(r.RetryAfter, maxRetryAfter), false
	}
	return shifted(min(policy.Backoff<<min(max(attempts, 1)-1, maxDoublings), most), draw), false
}

// SlowRetry is the longest pause between two attempts to deliver an event, but for those that a target asks for: a minute, with the
// default backoff.
func (p Policy) SlowRetry() time.Duration { return 30 * p.Backoff }
