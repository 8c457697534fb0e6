package deliver

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// Limits and rhythms of the deliverer.
const (
	// DefaultConcurrency and DefaultPerTarget are how many topics have their turn at a time, of all targets and of one.
	DefaultConcurrency = 256
	DefaultPerTarget   = 16

	lookEvery  = 10 * time.Second       // how often it looks for what hints have missed
	lookPause  = 250 * time.Millisecond // the least time between two looks
	lookLimit  = time.Minute            // how long a look may take
	errorPause = time.Second            // how long a topic is left alone whose place or events could not be read
	// perLook is how many topics of a subscription one look lists. The next look comes when they have had their turn.
	perLook = 256
	// A turn ends after so many events, or so long, where there are more.
	turnEvents = 64
	turnTime   = 2 * time.Second
	page       = turnEvents
	// maxHints is how many topics with news wait to be looked up; the next look finds the others.
	maxHints = 100_000
	// recordLimit bounds the recording of an event after its delivery.
	recordLimit = 10 * time.Second
)

// Changes is the topic of the hint that subscriptions have changed. No events are of it, and nobody can subscribe to it.
const Changes = "subscriptions"

// Outcome is what became of an attempt to deliver an event.
type Outcome string

// The outcomes.
const (
	Delivered Outcome = "delivered"
	Failed    Outcome = "failed"
	Refused   Outcome = "refused" // for good
)

// Outcomes are all of them.
func Outcomes() []Outcome { return []Outcome{Delivered, Failed, Refused} }

// Observer receives what the deliverer does, for metrics. Its methods must not block and may be called concurrently.
type Observer interface {
	// Attempted reports an attempt: how long after the event it was, and how long it took.
	Attempted(outcome Outcome, late, took time.Duration)
	// Stopped reports that a topic was stopped, because its next event is not kept any more.
	Stopped()
}

// Options make a deliverer. Store, Log, Sender and Vault are required.
type Options struct {
	Store    Store
	Log      live.Log
	Sender   publish.Sender // of webhooks
	Vault    *publish.Vault
	Policy   publish.Policy
	Observer Observer
	Logger   *slog.Logger

	Concurrency, PerTarget int // 0: the defaults
}

// Deliverer sends the events of subscriptions while it leads. It is safe for concurrent use.
type Deliverer struct {
	o     Options
	leads atomic.Pointer[tenure] // nil while another process does
}

// Stats is what the leader knows of all subscriptions; zero while another process leads.
type Stats struct {
	Leading bool
	Lag     int64         // events that were not delivered, as of the last look
	Oldest  time.Duration // for how long the one that has waited longest has
	// Running are topics that have their turn, Waiting those that wait for it or rest, Paused subscriptions, and Stopped topics.
	Running, Waiting, Paused, Stopped int
}

// New returns a deliverer. [Deliverer.Lead] makes it work.
func New(o Options) *Deliverer {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Concurrency, o.PerTarget = cmp.Or(o.Concurrency, DefaultConcurrency), cmp.Or(o.PerTarget, DefaultPerTarget)
	if o.Observer == nil {
		o.Observer = nobody{}
	}
	return &Deliverer{o: o}
}

// Grown tells that a topic has events up to a number. It is cheap and does not block.
func (d *Deliverer) Grown(topic string, _ int64) {
	if t := d.leads.Load(); t != nil {
		t.grown(topic)
	}
}

// Stats tells what the deliverer knows.
func (d *Deliverer) Stats() Stats {
	t := d.leads.Load()
	if t == nil {
		return Stats{}
	}
	return t.stats()
}

// Lead delivers until ctx ends, as the leader of a term. When it returns, everything that it started has ended. It may be called once
// at a time.
func (d *Deliverer) Lead(ctx context.Context, term int64) {
	t := newTenure(d, term)
	d.leads.Store(t)
	defer d.leads.Store(nil)
	t.run(ctx)
}

// nobody is the observer that does nothing.
type nobody struct{}

func (nobody) Attempted(Outcome, time.Duration, time.Duration) {}
func (nobody) Stopped()                                        {}
