package live

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// The limits that have no field in [Options].
const (
	// headsPerQuery bounds one question to the log, and maxHeadQuestions those that wait.
	headsPerQuery    = 500
	maxHeadQuestions = 100_000
	// retryAfter is how long a subscription waits that the log could not serve.
	retryAfter = time.Second
)

// Options are what a [Hub] is made of. Log is required; every other zero value is its default.
type Options struct {
	Log Log
	// Wire carries hints between processes. Nil means that there is one process, or that polling is good enough.
	Wire    Wire
	Logger  *slog.Logger
	Notices *Notices // topics without a log; nil: there are none
	// Grown is told whenever a topic has grown, as far as this process hears of it, followed or not. It must not block. May be nil.
	Grown     func(topic string, last int64)
	Buffer    int           // how many events a subscription may fall behind once it was up to date; 1,024 when 0
	Page      int           // how many events are read from the log at a time; 256 when 0
	LogReads  int           // how many pages are read at a time for subscribers, and again as many to follow topics; 4 when 0
	MaxTopics int           // how many topics one subscriber may have at a time; 100 when 0
	PollEvery time.Duration // how often the log is asked for events without a hint; 1 s when 0
	HintEvery time.Duration // the least time between two rounds of hints to other processes; 20 ms when 0
	Grace     time.Duration // how long a topic without subscribers is still followed; 30 s when 0
}

// Hub brings committed events to the subscribers of their topics. It is safe for concurrent use.
type Hub struct {
	o  Options
	id string // tells this hub's hints from others'

	mu    sync.RWMutex
	feeds map[string]*feed

	notices   notices
	heads     *headReads
	out       outbox
	pollNow   chan struct{}
	pageReads chan struct{}
	feedReads chan struct{}

	// ctx ends with Close: what the hub reads from the log is read for many.
	ctx    context.Context //nolint:containedctx // As said.
	cancel context.CancelFunc
	// closing is read-locked while a goroutine is added, so that none is added once Close waits for them.
	closing sync.RWMutex
	work    sync.WaitGroup

	subscribers   atomic.Int64
	subscriptions atomic.Int64
	dropped       atomic.Int64
	pages         atomic.Int64
}

// Stats is a moment's view of a hub. Dropped and Pages count since its start.
type Stats struct {
	Topics        int   // that are followed
	Subscribers   int64 // connections
	Subscriptions int64
	Dropped       int64 // subscriptions that fell behind
	Pages         int64 // read from the log
}

// New makes a hub. It serves subscribers at once, and follows other processes while [Hub.Run] runs. The caller closes it.
func New(o Options) *Hub {
	o.Buffer, o.Page, o.LogReads, o.MaxTopics = cmp.Or(o.Buffer, 1024), cmp.Or(o.Page, 256), cmp.Or(o.LogReads, 4), cmp.Or(o.MaxTopics, 100)
	o.PollEvery, o.HintEvery = cmp.Or(o.PollEvery, time.Second), cmp.Or(o.HintEvery, 20*time.Millisecond)
	o.Grace, o.Logger = cmp.Or(o.Grace, 30*time.Second), cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Grown == nil {
		o.Grown = func(string, int64) {}
	}
	h := &Hub{
		o: o, id: uuid.NewString(), feeds: map[string]*feed{}, pollNow: make(chan struct{}, 1),
		pageReads: make(chan struct{}, o.LogReads), feedReads: make(chan struct{}, o.LogReads),
	}
	h.heads = newHeadReads(h)
	h.notices.init(h)
	h.out.wake = make(chan struct{}, 1)
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// Run polls the log, and exchanges hints with other processes, until ctx ends or the hub is closed. It returns when all
// that it started has ended.
func (h *Hub) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)() //nolint:contextcheck // The hub's own, which ends when it is closed.
	var all sync.WaitGroup
	if h.o.Wire != nil {
		all.Go(func() { h.publish(ctx) })
		all.Go(func() { h.receive(ctx) })
	}
	tick := time.NewTicker(h.o.PollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			all.Wait()
			return
		case <-tick.C:
		case <-h.pollNow:
		}
		h.poll(ctx)
		h.forget(time.Now())
	}
}

// Close ends every subscriber with [ErrClosed] and waits for the hub's work. A second call does nothing.
func (h *Hub) Close() {
	h.closing.Lock()
	h.cancel()
	h.closing.Unlock()
	_ = h.heads.Close(h.ctx) // That has ended: nobody waits for an answer any more.
	_ = h.notices.asks.Close(h.ctx)
	h.work.Wait()
}

// Reset forgets all events and ends every subscriber with [ErrClosed], when the log has lost events that they may have been given.
// Those who come back begin anew.
func (h *Hub) Reset() {
	h.mu.Lock()
	feeds := h.feeds
	h.feeds = map[string]*feed{}
	h.mu.Unlock()
	for _, f := range feeds {
		f.mu.Lock()
		subscriptions := slices.Collect(maps.Keys(f.subscriptions))
		f.mu.Unlock()
		for _, s := range subscriptions {
			s.owner.Close()
		}
	}
}

// Stats tells what the hub is doing.
func (h *Hub) Stats() Stats {
	h.mu.RLock()
	topics := len(h.feeds)
	h.mu.RUnlock()
	return Stats{
		Topics: topics, Subscribers: h.subscribers.Load(), Subscriptions: h.subscriptions.Load(),
		Dropped: h.dropped.Load(), Pages: h.pages.Load(),
	}
}

// Committed tells that this process has committed events of a topic, the last of them with number last. It is cheap,
// never waits, and is best called right after the commit, in the order of the commits; calls that come late or in another
// order cost a look into the log and nothing else. events returns the committed events in order; it is called at most
// once, later, by another goroutine, and only when somebody subscribes to the topic. It may be nil: the log is then read.
func (h *Hub) Committed(topic string, last int64, events func() []Event) {
	if f := h.find(topic); f != nil {
		f.committed(last, events)
	}
	h.o.Grown(topic, last)
	if h.o.Wire != nil {
		h.out.grown(topic, last)
	}
}

// Broadcast brings a message without a sequence number to the topic's subscribers of all processes. It never waits. Who
// is slow misses the older of such messages, and other processes may miss any.
func (h *Hub) Broadcast(topic string, e Event) {
	e.Seq = 0
	if f := h.find(topic); f != nil {
		f.message(encode(topic, e))
	}
	if h.o.Wire != nil {
		h.out.message(topic, e)
	}
}

func (h *Hub) find(topic string) *feed {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.feeds[topic]
}

// start runs f in a goroutine that Close waits for. It reports false once the hub is closed.
func (h *Hub) start(f func()) bool {
	h.closing.RLock()
	defer h.closing.RUnlock()
	if h.ctx.Err() != nil {
		return false
	}
	h.work.Go(f)
	return true
}

// acquire returns the feed of a topic, made if need be, which stays until it is released.
func (h *Hub) acquire(topic string) *feed {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.feeds[topic]
	if f == nil {
		f = &feed{hub: h, topic: topic, subscriptions: map[*subscription]struct{}{}}
		if h.o.Notices != nil && strings.HasPrefix(topic, h.o.Notices.Prefix) {
			f.sources = &sourcesOf{}
			f.view.Store(&view{first: 1})
		}
		h.feeds[topic] = f
	}
	f.users++
	return f
}

func (h *Hub) release(f *feed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.users--; f.users > 0 {
		return
	}
	f.idleSince = time.Now()
	// Where it never came to anything, there is most likely no such topic. Notices are for those who are there.
	if (f.view.Load() == nil || f.sources != nil) && h.feeds[f.topic] == f {
		delete(h.feeds, f.topic)
	}
}

// forget lets go of the feeds that nobody has used for a while.
func (h *Hub) forget(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for topic, f := range h.feeds {
		if f.users == 0 && now.Sub(f.idleSince) >= h.o.Grace {
			delete(h.feeds, topic)
		}
	}
}

// poll asks the log how far the followed topics have come.
func (h *Hub) poll(ctx context.Context) {
	h.mu.RLock()
	topics := make([]string, 0, len(h.feeds))
	for topic, f := range h.feeds {
		if f.view.Load() != nil && f.sources == nil {
			topics = append(topics, topic)
		}
	}
	h.mu.RUnlock()
	if len(topics) == 0 {
		return
	}
	heads, err := h.headsOf(ctx, topics)
	if err != nil {
		if ctx.Err() == nil {
			h.o.Logger.WarnContext(ctx, "live: the log was not polled", "error", err)
		}
		return
	}
	for topic, head := range heads {
		if f := h.find(topic); f != nil {
			f.grown(head)
		}
	}
}

// page reads a page of a topic from the log, when it is one of few that do.
func (h *Hub) page(ctx context.Context, places chan struct{}, topic string, after int64) ([]Event, error) {
	select {
	case places <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-h.ctx.Done():
		return nil, ErrClosed
	}
	defer func() { <-places }()
	h.pages.Add(1)
	events, err := h.o.Log.Events(ctx, topic, after, h.o.Page)
	if err != nil {
		return nil, err
	}
	for i, e := range events {
		if e.Seq != after+int64(i)+1 {
			return nil, errGap
		}
	}
	return events, nil
}

// errGap is returned when the log breaks its promise.
var errGap = errors.New("the log has a gap")

// headReads are the questions for the last numbers of topics. Those that come while one is under way wait and are asked
// together, so that thousands of subscribers that come at once cost a few queries. An answer is never older than its question.
type headReads = groupcommit.Group[struct{}, string, int64]

// noTopic is the last number of a topic that does not exist.
const noTopic = -1

func newHeadReads(h *Hub) *headReads {
	return groupcommit.New(func(ctx context.Context, _ struct{}, topics []string) ([]int64, error) {
		heads, err := h.headsOf(ctx, slices.Compact(slices.Sorted(slices.Values(topics))))
		if err != nil {
			return nil, err
		}
		last := make([]int64, len(topics))
		for i, topic := range topics {
			n, ok := heads[topic]
			if !ok {
				n = noTopic
			}
			last[i] = n
		}
		return last, nil
	}, groupcommit.Options{MaxQueue: maxHeadQuestions, MaxBatch: maxHeadQuestions, Divisible: func(error) bool { return false }})
}

// head returns the last number of a topic, or [ErrNoTopic].
func (h *Hub) head(ctx context.Context, topic string) (int64, error) {
	last, err := h.heads.Do(ctx, struct{}{}, topic)
	if err == nil && last == noTopic {
		return 0, ErrNoTopic
	}
	return last, h.asked(ctx, err)
}

// asked tells why a question for many was not answered to one who gave up, or whose hub is closed.
func (h *Hub) asked(ctx context.Context, err error) error {
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil && h.ctx.Err() != nil, errors.Is(err, groupcommit.ErrClosed):
		return ErrClosed
	}
	return err
}

// headsOf asks the log for any number of topics, in questions of a bounded size.
func (h *Hub) headsOf(ctx context.Context, topics []string) (map[string]int64, error) {
	heads := make(map[string]int64, len(topics))
	for part := range slices.Chunk(topics, headsPerQuery) {
		some, err := h.o.Log.Heads(ctx, part)
		if err != nil {
			return nil, err
		}
		maps.Copy(heads, some)
	}
	return heads, nil
}

// The limits of the hints that wait to be sent to other processes. Hints beyond them are dropped: those processes poll.
const (
	maxTopicsTold   = 10_000
	maxMessagesTold = 4096
	publishTimeout  = 5 * time.Second
)

// outbox collects hints for other processes.
type outbox struct {
	wake chan struct{}

	mu       sync.Mutex
	heads    map[string]int64
	messages []Hint
}

func (b *outbox) grown(topic string, last int64) {
	b.mu.Lock()
	if b.heads == nil {
		b.heads = map[string]int64{}
	}
	if known, ok := b.heads[topic]; ok || len(b.heads) < maxTopicsTold {
		b.heads[topic] = max(known, last)
	}
	b.mu.Unlock()
	wait.Signal(b.wake)
}

func (b *outbox) message(topic string, e Event) {
	b.mu.Lock()
	if len(b.messages) < maxMessagesTold {
		b.messages = append(b.messages, Hint{Topic: topic, Event: &e})
	}
	b.mu.Unlock()
	wait.Signal(b.wake)
}

// take empties the box.
func (b *outbox) take(from string) []Hint {
	b.mu.Lock()
	heads, hints := b.heads, b.messages
	b.heads, b.messages = nil, nil
	b.mu.Unlock()
	for topic, last := range heads {
		hints = append(hints, Hint{Topic: topic, Seq: last})
	}
	for i := range hints {
		hints[i].From = from
	}
	return hints
}

// publish sends what has collected: at once, but not more often than HintEvery.
func (h *Hub) publish(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	<-pause.C
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.out.wake:
		}
		hints := h.out.take(h.id)
		if len(hints) > 0 {
			sending, cancel := context.WithTimeout(ctx, publishTimeout)
			err := h.o.Wire.Publish(sending, hints)
			cancel()
			if err != nil && ctx.Err() == nil {
				h.o.Logger.WarnContext(ctx, "live: hints were not sent; other processes will poll", "hints", len(hints), "error", err)
			}
		}
		pause.Reset(h.o.HintEvery)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// receive hears other processes' hints, over one connection after another.
func (h *Hub) receive(ctx context.Context) {
	wait.Reconnect(ctx, func() error { return h.o.Wire.Receive(ctx, h.hear) }, func(err error, in time.Duration) {
		h.o.Logger.WarnContext(ctx, "live: the connection that hears other processes is lost; polling until it is back", "retry_in", in, "error", err)
		wait.Signal(h.pollNow) // What was said meanwhile was not heard.
	})
}

// hear takes a hint from any process.
func (h *Hub) hear(hint Hint) {
	if hint.From == h.id {
		return
	}
	if hint.Seq > 0 {
		h.o.Grown(hint.Topic, hint.Seq)
	}
	f := h.find(hint.Topic)
	if f == nil {
		return
	}
	if hint.Event != nil {
		e := *hint.Event
		e.Seq = 0
		f.message(encode(hint.Topic, e))
	}
	if hint.Seq > 0 {
		f.grown(hint.Seq)
	}
}
