package deliver

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// draw is the randomness of pauses, which needs no secrecy.
func draw(n int64) int64 { return rand.Int64N(n) } //nolint:gosec // As above.

// turn is a topic's: its events are sent, one after the other, until there are no more, one fails, or others are to have their turn.
func (t *tenure) turn(ctx context.Context, one *topic) next {
	begun := time.Now()
	p, err := t.o.Store.Place(ctx, one.Key)
	if err != nil {
		return t.unread(ctx, one, err)
	}
	if p == nil {
		return next{}
	}
	d := &delivering{tenure: t, topic: one, place: p, asked: begun}
	for sent := 0; ; {
		events, err := t.o.Log.Events(ctx, one.Topic, p.Seq, page)
		if expired, ok := errors.AsType[*live.ExpiredError](err); ok {
			return d.stop(ctx, expired)
		}
		if err != nil {
			return t.unread(ctx, one, err)
		}
		if len(events) == 0 {
			return next{}
		}
		passed := p.Seq
		for _, e := range events {
			if !p.Wants(e.Type) {
				passed = e.Seq
				continue
			}
			if n, over := d.event(ctx, e, passed); over {
				return n
			}
			passed = e.Seq
			if sent++; sent >= turnEvents || time.Since(begun) >= turnTime {
				return next{more: true}
			}
		}
		if passed > p.Seq {
			if n, over := d.record(ctx, Step{To: passed, Attempts: p.Attempts}); over {
				return n
			}
			if time.Since(begun) >= turnTime {
				return next{more: true}
			}
		}
	}
}

// unread says what becomes of a topic whose place or events could not be read.
func (t *tenure) unread(ctx context.Context, one *topic, err error) next {
	if ctx.Err() == nil {
		t.log.WarnContext(ctx, "a topic's events were not read", "subscription", one.Subscription, "topic", one.Topic, "error", err)
	}
	return next{rest: errorPause}
}

// delivering is a topic's turn.
type delivering struct {
	*tenure

	topic *topic
	place *Place
	asked time.Time // when the place was asked for
}

// now is the database's clock.
func (d *delivering) now() time.Time { return d.place.Now.Add(time.Since(d.asked)) }

// event sends one event and records what came of it; those up to passed were passed over. over says that the turn ends with n.
func (d *delivering) event(ctx context.Context, e live.Event, passed int64) (n next, over bool) {
	p, at, sent := d.place, d.now(), time.Now()
	late := max(0, at.Sub(e.At))
	d.waits(d.topic, sent.Add(-late))
	result := d.send(ctx, e, at)
	took := time.Since(sent)
	if result.Class == publish.Delivered {
		crashpoint.Hit(crashpoint.SubscriptionSent)
		d.attempted(d.topic, true)
		d.o.Observer.Attempted(Delivered, late, took)
		return d.record(ctx, Step{To: e.Seq, Delivered: true})
	}
	if ctx.Err() != nil {
		return next{}, true // The term is over, which is no failure of the target's.
	}
	rest, refused := publish.DecideRetry(result, p.Attempts+1, d.o.Policy, draw)
	outcome := Failed
	if refused {
		outcome = Refused
	}
	d.attempted(d.topic, false)
	d.o.Observer.Attempted(outcome, late, took)
	d.log.DebugContext(ctx, "event not delivered", "subscription", p.ID, "topic", d.topic.Topic, "seq", e.Seq, "error", result.Error)
	if n, over := d.record(ctx, Step{To: passed, Attempts: p.Attempts + 1, Rest: rest, Refused: refused, Failure: result}); over {
		return n, true
	}
	return next{rest: rest}, true
}

// send makes one attempt to deliver an event.
func (d *delivering) send(ctx context.Context, e live.Event, at time.Time) publish.Result {
	p := d.place
	id := EventID(p.ID, d.topic.Topic, e.Seq)
	body, contentType, err := wrap(p.Envelope, id, d.topic.Topic, e)
	if err != nil {
		return publish.Result{Class: publish.Permanent, Error: "the event could not be encoded"}
	}
	attempt := &publish.Delivery{
		Publication: id, Version: int64(p.Attempts) + 1, At: at, Target: &p.Target, Payload: body, ContentType: contentType,
	}
	if err := attempt.Unseal(ctx, d.o.Vault, d.o.Logger); err != nil {
		d.o.Logger.ErrorContext(ctx, "a target's secret cannot be read", "target", p.Target.ID, "error", err)
		return publish.Unreadable()
	}
	return publish.Deliver(ctx, d.o.Sender, attempt)
}

// record moves the place, or notes a failure. over says that the turn ends with n. It goes on after the end of the term: what is not
// recorded is sent again.
func (d *delivering) record(ctx context.Context, s Step) (n next, over bool) {
	p := d.place
	s.Key, s.Term, s.From, s.Refusals = d.topic.Key, d.term, p.Seq, p.Refusals
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordLimit)
	defer cancel()
	recorded, err := d.ends.Do(ctx, struct{}{}, s)
	for err == nil && recorded.Blocked != nil {
		if recorded.Blocked.Wait(ctx) != nil {
			err = recorded.Blocked
			break
		}
		recorded, err = d.ends.Do(ctx, struct{}{}, s)
	}
	switch {
	case err != nil:
		d.log.WarnContext(ctx, "a subscription's place was not recorded, and is read again", "subscription", s.Subscription, "topic", s.Topic, "seq", s.To, "error", err)
		return next{rest: errorPause}, true
	case !recorded.Moved:
		return next{more: true}, true // Somebody has moved it, or deleted the subscription: the next turn will see.
	}
	p.Seq, p.Attempts = s.To, s.Attempts
	return next{}, recorded.Held
}

// stop stops a topic whose next event is not kept any more.
func (d *delivering) stop(ctx context.Context, expired *live.ExpiredError) next {
	d.o.Observer.Stopped()
	d.log.WarnContext(ctx, "a subscription's topic is stopped: its next event is not kept any more", "subscription", d.topic.Subscription,
		"topic", d.topic.Topic, "seq", d.place.Seq+1, "first_kept", expired.First)
	n, _ := d.record(ctx, Step{To: d.place.Seq, Stopped: true, Failure: publish.Result{
		Class: publish.Permanent, Cause: publish.CauseExpired, Error: "the next event is not kept any more; " + expired.Error(),
	}})
	return n
}
