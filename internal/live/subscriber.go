package live

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// turn is how many messages one subscription gives before it is the next one's turn.
const turn = 64

// Subscriber is one connection with its subscriptions. [Subscriber.Pull] and [Subscriber.Behind] are for one goroutine,
// the connection's writer; the other methods are safe for concurrent use, but Subscribe and Unsubscribe of the same topic
// should come from one goroutine, so that their order means something.
type Subscriber struct {
	hub   *Hub
	max   int  // topics at a time
	own   bool // the hub's own, which is not counted
	ready chan struct{}
	idle  bool // the writer found nothing to take when it last looked; the writer's own

	mu     sync.Mutex
	topics map[string]*subscription
	queue  []*subscription // those that may have something to take
	closed bool
}

// subscription is a topic of a subscriber. The fields up to live are the writer's own once it is in the queue.
type subscription struct {
	owner    *Subscriber
	feed     *feed
	cursor   int64 // the last number given
	announce bool  // KindSubscribed is still to be given, with head
	head     int64
	page     []Message // from the log, not yet given
	live     bool      // was up to date once

	woken int64 // guarded by feed.mu: the head that it was last woken for

	queued   bool      // guarded by Subscriber.mu, as are the rest
	gone     bool      //
	messages []Message // without a number
}

// NewSubscriber makes a subscriber without subscriptions. The caller closes it.
func (h *Hub) NewSubscriber() *Subscriber {
	h.subscribers.Add(1)
	s := h.newSubscriber(h.o.MaxTopics)
	s.own = false
	return s
}

// newSubscriber makes a subscriber of the hub's own.
func (h *Hub) newSubscriber(maxTopics int) *Subscriber {
	return &Subscriber{hub: h, max: maxTopics, own: true, ready: make(chan struct{}, 1), topics: map[string]*subscription{}}
}

// Ready has an element when there may be something to [Subscriber.Pull].
func (s *Subscriber) Ready() <-chan struct{} { return s.ready }

// Subscribe begins a subscription to a topic, in place of an older one of the same topic. With since, every event with a
// greater number is given, those that are there first; without, those that come after this moment. It returns the topic's
// last number, which [KindSubscribed] tells too, as the subscription's first message. Errors: [ErrNoTopic],
// [ExpiredError] when since is before what is kept, [AheadError] when it is after the topic's last number, [ErrTooManyTopics], [ErrClosed], or what the log returned.
func (s *Subscriber) Subscribe(ctx context.Context, topic string, since *int64) (int64, error) {
	if err := s.mayAdd(topic); err != nil {
		return 0, err
	}
	f := s.hub.acquire(topic)
	sub, err := s.open(ctx, f, since)
	if err != nil {
		s.hub.release(f)
		return 0, err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.hub.release(f)
		return 0, ErrClosed
	}
	older := s.topics[topic]
	s.topics[topic] = sub
	if older != nil {
		older.gone = true
	}
	s.mu.Unlock()
	s.count(&s.hub.subscriptions, 1)
	if older != nil {
		s.drop(older)
	}
	// Only now may the feed wake it, so that the older one says nothing after the newer one has begun.
	f.add(sub)
	s.mu.Lock()
	gone := sub.gone
	s.mu.Unlock()
	if gone { // It was ended before it was added.
		f.remove(sub)
		return 0, ErrClosed
	}
	s.enqueue(sub, nil)
	return sub.head, nil
}

// count counts what is not the hub's own.
func (s *Subscriber) count(what *atomic.Int64, n int64) {
	if !s.own {
		what.Add(n)
	}
}

func (s *Subscriber) mayAdd(topic string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, again := s.topics[topic]; !again && len(s.topics) >= s.max {
		return ErrTooManyTopics
	}
	if s.closed {
		return ErrClosed
	}
	return nil
}

// open finds where a subscription starts, and reads its first page where that is in the past, so that asking for
// too much fails at once.
func (s *Subscriber) open(ctx context.Context, f *feed, since *int64) (*subscription, error) {
	if f.sources != nil {
		if since != nil && *since > 0 {
			return nil, &AheadError{}
		}
		if err := s.hub.notices.watch(ctx, f); err != nil {
			return nil, err
		}
		return &subscription{owner: s, feed: f, cursor: f.view.Load().head(), announce: true}, nil
	}
	head, err := s.hub.head(ctx, f.topic)
	if err != nil {
		return nil, err
	}
	f.establish(head)
	sub := &subscription{owner: s, feed: f, head: head, cursor: head, announce: true}
	if since == nil {
		return sub, nil
	}
	if *since > head {
		return nil, &AheadError{Last: head}
	}
	sub.cursor = *since
	if _, kept := f.view.Load().since(sub.cursor, 0); kept || sub.cursor >= head {
		return sub, nil
	}
	events, err := s.hub.page(ctx, s.hub.pageReads, f.topic, sub.cursor)
	if err != nil {
		return nil, err
	}
	sub.page = encodeAll(f.topic, events)
	return sub, nil
}

func encodeAll(topic string, events []Event) []Message {
	out := make([]Message, len(events))
	for i, e := range events {
		out[i] = encode(topic, e)
	}
	return out
}

// Unsubscribe ends a subscription and reports whether there was one. What was pulled before may still be written.
func (s *Subscriber) Unsubscribe(topic string) bool {
	s.mu.Lock()
	sub := s.topics[topic]
	s.mu.Unlock()
	return sub != nil && s.discard(sub)
}

// discard ends a subscription and reports whether it was one until now.
func (s *Subscriber) discard(sub *subscription) bool {
	s.mu.Lock()
	if sub.gone {
		s.mu.Unlock()
		return false
	}
	sub.gone = true
	delete(s.topics, sub.feed.topic)
	s.mu.Unlock()
	s.drop(sub)
	return true
}

// Close ends all subscriptions. A second call does nothing.
func (s *Subscriber) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	topics := s.topics
	s.topics, s.queue = nil, nil
	for _, sub := range topics {
		sub.gone = true
	}
	s.mu.Unlock()
	for _, sub := range topics {
		s.drop(sub)
	}
	s.count(&s.hub.subscribers, -1)
	wait.Signal(s.ready)
}

// drop takes a subscription out of its feed.
func (s *Subscriber) drop(sub *subscription) {
	s.count(&s.hub.subscriptions, -1)
	sub.feed.remove(sub)
	s.hub.release(sub.feed)
}

// enqueue notes that a subscription may have something to take.
func (s *Subscriber) enqueue(sub *subscription, messages []Message) {
	s.mu.Lock()
	if sub.gone || s.closed {
		s.mu.Unlock()
		return
	}
	if len(messages) > 0 {
		sub.messages = append(sub.messages, messages...)
		if over := len(sub.messages) - maxMessages; over > 0 {
			sub.messages = append([]Message(nil), sub.messages[over:]...)
		}
	}
	if !sub.queued {
		sub.queued = true
		s.queue = append(s.queue, sub)
	}
	s.mu.Unlock()
	wait.Signal(s.ready)
}

// dequeue returns the next subscription to look at, with its messages, or nil.
func (s *Subscriber) dequeue() (*subscription, []Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) > 0 {
		sub := s.queue[0]
		s.queue = s.queue[1:]
		sub.queued = false
		if sub.gone {
			continue
		}
		messages := sub.messages
		sub.messages = nil
		return sub, messages
	}
	s.queue = nil
	return nil, nil
}

// Pull gives the next messages, as many as buf has room for, in buf's array. None means that there is nothing now: wait
// for [Subscriber.Ready]. Messages of one topic come in order, without a gap and without a repeat. It waits for the log
// only where older events are asked for, up to ctx. It returns [ErrClosed] once the subscriber or the hub is closed.
//
// A subscription that was up to date and has fallen behind by more than the hub's buffer while the caller was busy ends
// with [KindDropped].
func (s *Subscriber) Pull(ctx context.Context, buf []Message) ([]Message, error) {
	buf = buf[:0]
	if s.hub.ctx.Err() != nil {
		return buf, ErrClosed
	}
	s.excuse()
	for len(buf) < cap(buf) {
		sub, messages := s.dequeue()
		if sub == nil {
			break
		}
		var (
			more bool
			err  error
		)
		had := len(buf)
		buf, more, err = sub.take(ctx, buf, messages)
		if err != nil {
			return buf, err
		}
		if more {
			s.enqueue(sub, nil)
			if len(buf) == had { // The log is to be waited for: what is there already goes first.
				break
			}
		}
	}
	s.idle = len(buf) == 0
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return buf, ErrClosed
	}
	return buf, nil
}

// excuse is for a writer that comes from waiting: what arrived meanwhile, however much, is not for its slowness.
func (s *Subscriber) excuse() {
	if !s.idle {
		return
	}
	s.idle = false
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.queue {
		if sub.lag() > int64(s.hub.o.Buffer) {
			sub.live = false
		}
	}
}

func (sub *subscription) lag() int64 { return sub.feed.view.Load().head() - sub.cursor }

// take gives what a subscription has, up to its turn or buf's room. more says that there is more.
func (sub *subscription) take(ctx context.Context, buf, messages []Message) (_ []Message, more bool, err error) {
	if sub.announce {
		sub.announce = false
		buf = append(buf, Message{Kind: KindSubscribed, Topic: sub.feed.topic, Seq: sub.head})
	}
	for i, m := range messages {
		if len(buf) == cap(buf) {
			sub.owner.enqueue(sub, messages[i:]) // Newer ones may have come; a message too many is lost, as promised.
			return buf, false, nil
		}
		buf = append(buf, m)
	}
	room := min(cap(buf)-len(buf), turn)
	if room == 0 {
		return buf, true, nil
	}
	if sub.live && sub.lag() > int64(sub.owner.hub.o.Buffer) {
		return sub.end(buf), false, nil
	}
	events, ok := sub.page, true
	if len(events) == 0 {
		events, ok = sub.feed.view.Load().since(sub.cursor, room)
	}
	if !ok && sub.feed.sources != nil { // There is no log of it.
		return sub.end(buf), false, nil
	}
	if !ok {
		if len(buf) > 0 {
			return buf, true, nil
		}
		if events, err = sub.read(ctx); err != nil {
			return sub.failed(ctx, buf, err)
		}
	}
	n := min(room, len(events))
	buf = append(buf, events[:n]...)
	sub.cursor += int64(n) // Events have no gap.
	if len(sub.page) > 0 || !ok {
		sub.page = events[n:]
	}
	if sub.lag() <= 0 && len(sub.page) == 0 {
		sub.live = true
		return buf, false, nil
	}
	return buf, true, nil
}

func (sub *subscription) read(ctx context.Context) ([]Message, error) {
	h := sub.owner.hub
	events, err := h.page(ctx, h.pageReads, sub.feed.topic, sub.cursor)
	if err == nil && len(events) == 0 {
		err = errGap // There were some a moment ago.
	}
	return encodeAll(sub.feed.topic, events), err
}

// failed decides what becomes of a subscription that the log did not serve.
func (sub *subscription) failed(ctx context.Context, buf []Message, err error) ([]Message, bool, error) {
	if ctx.Err() != nil {
		return buf, false, ctx.Err()
	}
	if errors.Is(err, ErrClosed) || sub.owner.hub.ctx.Err() != nil {
		return buf, false, ErrClosed
	}
	_, expired := errors.AsType[*ExpiredError](err)
	if expired || errors.Is(err, ErrNoTopic) {
		return sub.end(buf), false, nil
	}
	sub.owner.hub.o.Logger.WarnContext(ctx, "live: a subscriber's page was not read", "topic", sub.feed.topic, "error", err)
	time.AfterFunc(retryAfter, func() { sub.owner.enqueue(sub, nil) })
	return buf, false, nil
}

// end gives up a subscription.
func (sub *subscription) end(buf []Message) []Message {
	if !sub.owner.discard(sub) {
		return buf
	}
	sub.owner.count(&sub.owner.hub.dropped, 1)
	last := sub.cursor
	if sub.feed.sources != nil {
		last = 0
	}
	return append(buf, Message{Kind: KindDropped, Topic: sub.feed.topic, Seq: last})
}

// Behind gives up every subscription for which there is something that was not pulled, and returns what to tell of them.
// It is for a connection that does not get rid of what it was given.
func (s *Subscriber) Behind() []Message {
	s.mu.Lock()
	var late []*subscription
	for _, sub := range s.topics {
		if sub.lag() > 0 {
			late = append(late, sub)
		}
	}
	s.mu.Unlock()
	var out []Message
	for _, sub := range late {
		out = sub.end(out)
	}
	return out
}
