package live

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// Limits of the notices.
const (
	// maxSources is how many topics a process follows for its notice topics. Those beyond are not followed, and the log says so.
	maxSources = 10_000
	// maxAsked is how many notice topics are asked for their sources at a poll. With more of them each is asked at every second poll, or
	// third, and so on.
	maxAsked = 2000
	// subscribeTogether is how many sources are subscribed to at a time.
	subscribeTogether = 64
)

// Notices are topics without a log. Their messages follow from the events of other topics, their sources, and have no numbers: a
// subscription starts with what comes after it. The functions must be safe for concurrent use.
type Notices struct {
	// Prefix is what the names of these topics begin with.
	Prefix string
	// Sources returns the topics whose events may concern these ones, all of one snapshot.
	Sources func(ctx context.Context, topics []string) ([]Source, error)
	// Since returns the number after which events of a source may concern a topic, for a source that was found while the topic had
	// subscribers already.
	Since func(ctx context.Context, s Source) (int64, error)
	// Make returns the messages that follow from an event.
	Make func(e Message) []Notice
}

// Source is a topic whose events may concern the notice topic For.
type Source struct {
	For, Topic string
	Head       int64 // the number of its last event
}

// Notice is a message of a notice topic.
type Notice struct {
	Topic string
	Event Event
}

// notices follows the sources of the notice topics that have subscribers, and makes their messages. The sources are asked for when
// somebody subscribes, before that is confirmed, and again at every poll. A source that is found by a poll is followed from where it
// began to concern the topic, so that nothing is missed for being found late. One goroutine does it, as long as there are such topics.
type notices struct {
	hub  *Hub
	asks *groupcommit.Group[struct{}, string, []Source] // as headReads
	wake chan struct{}

	mu       sync.Mutex
	running  bool
	followed map[string]bool // sources
	pending  []start         // of them, those to be subscribed to
}

func (n *notices) init(h *Hub) {
	n.hub, n.wake, n.followed = h, make(chan struct{}, 1), map[string]bool{}
	n.asks = groupcommit.New(func(ctx context.Context, _ struct{}, topics []string) ([][]Source, error) {
		found, err := n.sources(ctx, slices.Compact(slices.Sorted(slices.Values(topics))))
		answers := make([][]Source, len(topics))
		for i, topic := range topics {
			answers[i] = found[topic]
		}
		return answers, err
	}, groupcommit.Options{MaxQueue: maxHeadQuestions, MaxBatch: maxHeadQuestions, Divisible: func(error) bool { return false }})
}

// sources asks for the sources of any number of topics, in questions of a bounded size.
func (n *notices) sources(ctx context.Context, topics []string) (map[string][]Source, error) {
	found := make(map[string][]Source, len(topics))
	for part := range slices.Chunk(topics, headsPerQuery) {
		sources, err := n.hub.o.Notices.Sources(ctx, part)
		if err != nil {
			return nil, err
		}
		for _, s := range sources {
			found[s.For] = append(found[s.For], s)
		}
	}
	return found, nil
}

// start is a source to be followed after a number, or from now on.
type start struct {
	topic string
	since *int64
}

// sourcesOf is what a feed of notices knows of its sources, guarded by notices.mu.
type sourcesOf struct {
	topics  map[string]bool
	changes int       // how often somebody subscribed: an answer from before does not count
	asked   time.Time // when they were asked for last
}

// watch has the events that come from now on made into messages of f.
func (n *notices) watch(ctx context.Context, f *feed) error {
	sources, err := n.asks.Do(ctx, struct{}{}, f.topic)
	if err != nil {
		return n.hub.asked(ctx, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	f.sources.changes++
	if f.sources.topics == nil {
		f.sources.topics = map[string]bool{}
	}
	for _, s := range sources {
		f.sources.topics[s.Topic] = true
		n.follow(start{s.Topic, &s.Head})
	}
	if !n.running {
		if n.running = n.hub.start(n.run); !n.running {
			return ErrClosed
		}
	}
	return nil
}

// follow needs the mutex.
func (n *notices) follow(s start) {
	if n.followed[s.topic] || len(n.followed) >= maxSources {
		return
	}
	n.followed[s.topic] = true
	n.pending = append(n.pending, s)
	wait.Signal(n.wake)
}

func (n *notices) run() {
	ctx := n.hub.ctx
	sub := n.hub.newSubscriber(maxSources)
	defer func() { sub.Close() }()
	tick := time.NewTicker(n.hub.o.PollEvery)
	defer tick.Stop()
	buf := make([]Message, 0, n.hub.o.Page)
	for ctx.Err() == nil {
		more := n.subscribe(ctx, sub)
		messages, err := sub.Pull(ctx, buf)
		if errors.Is(err, ErrClosed) && ctx.Err() == nil { // The hub was reset.
			sub.Close()
			sub = n.hub.newSubscriber(maxSources)
			n.restart()
			continue
		}
		n.deliver(messages)
		if more || len(messages) > 0 {
			select {
			case <-tick.C:
			default:
				continue
			}
		} else {
			select {
			case <-ctx.Done():
				return
			case <-sub.Ready():
				continue
			case <-n.wake:
				continue
			case <-tick.C:
			}
		}
		if n.poll(ctx, sub) {
			return
		}
	}
}

// subscribe begins to follow some of the sources that are to be followed, and reports whether there are more.
func (n *notices) subscribe(ctx context.Context, sub *Subscriber) (more bool) {
	n.mu.Lock()
	some := n.pending[:min(len(n.pending), subscribeTogether)]
	n.pending = n.pending[len(some):]
	more = len(n.pending) > 0
	n.mu.Unlock()
	var all sync.WaitGroup
	for _, s := range some {
		all.Go(func() {
			_, err := sub.Subscribe(ctx, s.topic, s.since)
			_, expired := errors.AsType[*ExpiredError](err)
			_, ahead := errors.AsType[*AheadError](err)
			if expired || ahead {
				_, err = sub.Subscribe(ctx, s.topic, nil)
			}
			if err == nil || errors.Is(err, ErrClosed) || ctx.Err() != nil {
				return
			}
			n.hub.o.Logger.WarnContext(ctx, "live: a topic is not followed for notices yet", "topic", s.topic, "error", err)
			n.mu.Lock()
			n.pending = append(n.pending, s) // The next round tries again.
			n.mu.Unlock()
		})
	}
	all.Wait()
	return more
}

// deliver makes messages of events, for those topics that have subscribers.
func (n *notices) deliver(messages []Message) {
	for _, m := range messages {
		if m.Kind == KindDropped { // The goroutine was too slow. The log has what it missed.
			n.mu.Lock()
			n.pending = append(n.pending, start{m.Topic, &m.Seq})
			n.mu.Unlock()
			wait.Signal(n.wake)
		}
		if m.Kind != KindEvent {
			continue
		}
		for _, notice := range n.hub.o.Notices.Make(m) {
			if f := n.hub.find(notice.Topic); f != nil && f.sources != nil {
				f.view.Store(f.view.Load().with([]Message{encode(notice.Topic, notice.Event)}, n.hub.o.Buffer))
				f.tell(nil)
			}
		}
	}
}

// poll asks for the sources of the topics that were not asked for the longest time, follows the new ones and lets the others go. It
// reports whether there are no such topics any more; the goroutine is then over.
func (n *notices) poll(ctx context.Context, sub *Subscriber) (over bool) {
	feeds, topics, changes, over := n.due()
	if over {
		return true
	}
	found, err := n.sources(ctx, topics)
	if err != nil {
		n.hub.o.Logger.WarnContext(ctx, "live: the sources of notices were not read", "error", err)
		return false
	}
	for _, s := range n.accept(feeds, changes, found, sub) {
		since, err := n.hub.o.Notices.Since(ctx, s)
		if err != nil {
			n.hub.o.Logger.WarnContext(ctx, "live: the start of a source of notices was not read", "topic", s.Topic, "error", err)
			continue // The next poll finds it again.
		}
		n.mu.Lock()
		n.follow(start{s.Topic, &since})
		n.mu.Unlock()
	}
	return false
}

// due returns the feeds of notices to ask for at a poll, with their topics and their counts of changes.
func (n *notices) due() (feeds []*feed, topics []string, changes []int, over bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if feeds = n.feeds(); len(feeds) == 0 {
		n.running, n.followed, n.pending = false, map[string]bool{}, nil
		return nil, nil, nil, true
	}
	slices.SortFunc(feeds, func(a, b *feed) int {
		return cmp.Or(a.sources.asked.Compare(b.sources.asked), strings.Compare(a.topic, b.topic))
	})
	feeds = feeds[:min(len(feeds), maxAsked)]
	for _, f := range feeds {
		f.sources.asked = time.Now()
		topics, changes = append(topics, f.topic), append(changes, f.sources.changes)
	}
	return feeds, topics, changes, false
}

// feeds returns those of notices. Whoever watches one has acquired it before taking the mutex, which the caller holds.
func (n *notices) feeds() (feeds []*feed) {
	n.hub.mu.RLock()
	defer n.hub.mu.RUnlock()
	for _, f := range n.hub.feeds {
		if f.sources != nil {
			feeds = append(feeds, f)
		}
	}
	return feeds
}

// accept notes the answers of a poll, unsubscribes from what concerns no topic any more, and returns what is new.
func (n *notices) accept(feeds []*feed, changes []int, found map[string][]Source, sub *Subscriber) (fresh []Source) {
	n.mu.Lock()
	defer n.mu.Unlock()
	left := 0
	for i, f := range feeds {
		if f.sources.changes != changes[i] {
			continue // Somebody has asked later.
		}
		f.sources.topics = make(map[string]bool, len(found[f.topic]))
		for _, s := range found[f.topic] {
			f.sources.topics[s.Topic] = true
			if n.followed[s.Topic] {
				continue
			}
			if len(n.followed)+len(fresh) < maxSources {
				fresh = append(fresh, s)
			} else {
				left++
			}
		}
	}
	wanted := map[string]bool{}
	for _, f := range n.feeds() {
		for topic := range f.sources.topics {
			wanted[topic] = true
		}
	}
	for topic := range n.followed {
		if !wanted[topic] {
			delete(n.followed, topic)
			sub.Unsubscribe(topic)
		}
	}
	if left > 0 {
		n.hub.o.Logger.WarnContext(n.hub.ctx, "live: too many topics to follow for notices", "followed", maxSources, "left", left)
	}
	n.pending = slices.DeleteFunc(n.pending, func(s start) bool { return !wanted[s.topic] })
	return fresh
}

// restart has everything that is followed be subscribed to again, from now on.
func (n *notices) restart() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending = n.pending[:0]
	for topic := range n.followed {
		n.pending = append(n.pending, start{topic: topic})
	}
}
