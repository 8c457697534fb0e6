package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// Where a subscription begins.
const (
	fromNow   = "now"
	fromStart = "start"
)

type subscriptionRequest struct {
	Name     string   `json:"name" minLength:"1" maxLength:"200"`
	Target   string   `json:"target" minLength:"1" maxLength:"200" doc:"the name of the webhook that events are delivered to"`
	Topics   []string `json:"topics" doc:"1 to 100 of auction:ID, campaign:ID and multidraw:ID; with * for the id, all of the kind, those to come included" example:"[\"auction:*\"]"`
	Types    []string `json:"types,omitempty" doc:"types of events that are delivered, as the live stream names them; all when absent. countdown and bid.outbid are for the live stream alone" example:"[\"bid.placed\",\"round.completed\"]"`
	Envelope *string  `json:"envelope,omitempty" enum:"plain,cloudevents" doc:"plain, when absent: the message as the live stream has it; cloudevents: CloudEvents 1.0, structured JSON"`
	From     *string  `json:"from,omitempty" enum:"now,start" doc:"now, when absent: with the events that are to come; start: with those that there are already"`
}

func (q *subscriptionRequest) op() (publish.Op, error) {
	var c checks
	c.name("name", q.Name)
	c.name("target", q.Target)
	op := publish.CreateSubscription{
		Name: q.Name, Target: q.Target, Topics: q.Topics, Types: q.Types, Envelope: publish.Envelope(or(q.Envelope, string(publish.EnvelopePlain))),
	}
	if len(q.Topics) < 1 || len(q.Topics) > publish.MaxTopics {
		c.fail("topics must be 1 to %d", publish.MaxTopics)
		return nil, c.err
	}
	for i, topic := range q.Topics {
		c.topic("topics", topic, true)
		if slices.Contains(q.Topics[:i], topic) {
			c.fail("topics must be different")
		}
	}
	known := publish.EventTypes()
	if q.Types != nil && len(q.Types) < 1 {
		c.fail("types must be one or more, or absent")
	}
	for i, one := range q.Types {
		if !slices.Contains(known, one) {
			c.fail("types: %q is no type of event that is delivered; those are %s", one, strings.Join(known, ", "))
		}
		if slices.Contains(q.Types[:min(i, len(known))], one) { // Of more than there are, one of the first is there twice.
			c.fail("types must be different")
		}
	}
	if !slices.Contains(publish.Envelopes(), op.Envelope) {
		c.fail("envelope must be one of %v", publish.Envelopes())
	}
	from := or(q.From, fromNow)
	if from != fromNow && from != fromStart {
		c.fail("from must be %s or %s", fromNow, fromStart)
	}
	op.FromStart = from == fromStart
	return op, c.err
}

// topic checks the name of a topic, or of all of a kind where that is allowed.
func (c *checks) topic(field, value string, kinds bool) {
	kind, rest, _ := strings.Cut(value, ":")
	id, err := uuid.Parse(rest)
	named := err == nil && id.String() == rest
	switch {
	case slices.Contains(publish.TopicKinds(), kind) && (named || kinds && rest == "*"):
	case kinds:
		c.fail("%s must be of auction:ID, campaign:ID and multidraw:ID, with * for all of a kind", field)
	default:
		c.fail("%s must be auction:ID, campaign:ID or multidraw:ID", field)
	}
}

type replayRequest struct {
	Topic string `json:"topic" doc:"one of the subscription's, or of a kind that it follows" example:"auction:0190b3a4-0000-7000-8000-000000000000"`
	After int64  `json:"after" minimum:"0" doc:"the number of the event before the first that is delivered"`
}

func (q *replayRequest) op() (publish.Op, error) {
	var c checks
	c.topic("topic", q.Topic, false)
	if q.After < 0 {
		c.fail("after must not be negative")
	}
	return publish.ReplayTopic{Topic: q.Topic, After: q.After}, c.err
}

func (s *Server) subscriptionRoutes() []route {
	return []route{
		commandRoute("/v1/subscriptions", accessStaff, http.StatusCreated, "Subscribe a webhook to the events of topics", as[subscriptionView, *publish.Subscription],
			mutation[subscriptionRequest, publish.Op]{execute: s.Publish.Create, op: plain((*subscriptionRequest).op)}),
		listRoute("/v1/subscriptions", accessStaff, "List subscriptions, oldest first", oldestFirst(), rowsOf(s.Publish.Subscriptions),
			as[subscriptionView], func(one publish.Subscription) int64 { return one.Number }),
		readRoute("/v1/subscriptions/{id}", accessStaff, "Read a subscription", with(pathID("subscription"), s.Publish.Subscription), as[subscriptionView]),
		listRoute("/v1/subscriptions/{id}/topics", accessStaff, "List the topics that a subscription has come to, and how far", byName(),
			rowsWith(pathID("subscription"), s.Publish.TopicsOf), viewed(viewTopic), func(p publish.TopicProgress) string { return p.Topic }),
		publishingRoute(s, "subscription", "pause", "Keep a subscription's events back", as[subscriptionView, *publish.Subscription], always(publish.PauseSubscription{})),
		publishingRoute(s, "subscription", "resume", "Let a paused subscription's events go", as[subscriptionView, *publish.Subscription], always(publish.ResumeSubscription{})),
		publishingRoute(s, "subscription", "replay", "Deliver a topic's events after a number, again or for the first time", as[subscriptionView, *publish.Subscription], (*replayRequest).op),
		deleted(commandRoute("/v1/subscriptions/{id}", accessStaff, http.StatusOK, "End a subscription for good", as[subscriptionView, *publish.Subscription],
			mutation[noFields, publish.Op]{what: "subscription", executeOn: s.Publish.Execute, op: fixed[publish.Op](publish.DeleteSubscription{})})),
	}
}

type subscriptionView struct {
	ID           uuid.UUID                   `json:"id"`
	Name         string                      `json:"name"`
	Target       string                      `json:"target" from:"TargetName" doc:"the target's name"`
	Topics       []string                    `json:"topics"`
	Types        []string                    `json:"types" doc:"empty: events of all types are delivered"`
	Envelope     publish.Envelope            `json:"envelope" enum:"plain,cloudevents"`
	Refusals     int                         `json:"refusals" doc:"answers in a row by which the target refused an event for good; ten pause the subscription"`
	PausedAt     *timestamp                  `json:"paused_at" doc:"nothing is sent while it is not null"`
	PausedReason *publish.SubscriptionReason `json:"paused_reason" enum:"request,refused" doc:"refused: the target refused events for good, ten times in a row"`
	CreatedAt    timestamp                   `json:"created_at"`
}

type topicProgressView struct {
	Topic       string             `json:"topic"`
	State       publish.TopicState `json:"state" from:"-" enum:"stopped,retrying,behind,current" doc:"stopped: the next event is not kept any more; replay the topic after a later number"`
	Seq         int64              `json:"seq" doc:"number of the last event that was delivered, or passed over for its type"`
	Head        int64              `json:"head" doc:"number of the topic's last event"`
	Lag         int64              `json:"lag" from:"-" doc:"events after seq"`
	Attempts    int                `json:"attempts" doc:"failed ones of the next event"`
	RetryAt     *timestamp         `json:"retry_at" doc:"nothing is sent before"`
	LastError   *topicErrorView    `json:"last_error" from:"-" doc:"why the next event was not delivered; null where nothing failed"`
	DeliveredAt *timestamp         `json:"delivered_at" doc:"when an event of the topic was last delivered"`
}

type topicErrorView struct {
	Cause      publish.Cause `json:"cause" enum:"dns,refused,network,tls,timeout,status,address,other,expired" doc:"expired: the event is not kept any more"`
	StatusCode *int          `json:"status_code" doc:"of the target's answer; null without one"`
	Message    string        `json:"message" from:"Error"`
}

func viewTopic(p *publish.TopicProgress) topicProgressView {
	v := as[topicProgressView](p)
	v.State, v.Lag = p.State(), p.Lag()
	if p.Error != "" {
		v.LastError = new(as[topicErrorView](p))
	}
	return v
}
