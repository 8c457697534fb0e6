package live

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxPending  = 64 // commits that wait for a feed; what is beyond them is read from the log
	maxMessages = 8  // messages without a number that wait for a subscription; older ones give way
)

// feed follows one topic: it keeps the latest events, encoded once, and tells the subscriptions when there are more.
//
// Whoever has news puts it into the inbox, which never waits for subscribers. A goroutine works the inbox off, one at a
// time, and ends when there is nothing left; it alone changes the view. Subscribers read the view without a lock.
type feed struct {
	hub   *Hub
	topic string
	view  atomic.Pointer[view] // nil until the topic's last number is known
	// sources are set where it is a topic of notices. Its view is all there is of it, and the goroutine of the notices changes it; the
	// numbers in it are this feed's own.
	sources *sourcesOf

	users     int       // guarded by Hub.mu
	idleSince time.Time // guarded by Hub.mu

	in struct {
		sync.Mutex

		commits  []commit
		messages []Message
		grown    int64 // the highest number heard of
		failed   bool  // the log could not be read; the next news, or poll, tries again
		working  bool
	}

	mu            sync.Mutex
	subscriptions map[*subscription]struct{}
}

// commit is what a service of this process has reported.
type commit struct {
	last   int64
	events func() []Event
}

// view is the latest events of a topic, without a gap. A view never changes; later ones may share its array, beyond its
// end.
type view struct {
	first  int64 // the number of events[0], or of the next event where there are none
	events []Message
}

func (v *view) head() int64 { return v.first + int64(len(v.events)) - 1 }

// with returns the view with more events at its end, which keeps at least the given number of events.
func (v *view) with(more []Message, keep int) *view {
	next := &view{first: v.first, events: v.events}
	if len(v.events)+len(more) > 2*keep && len(v.events) > keep {
		cut := len(v.events) - keep
		next.first += int64(cut)
		next.events = append(make([]Message, 0, 2*keep+len(more)), v.events[cut:]...)
	}
	next.events = append(next.events, more...)
	return next
}

// since returns the events above a number, up to limit. ok is false when the first of them is no longer in the view.
func (v *view) since(after int64, limit int) (events []Message, ok bool) {
	if after+1 < v.first {
		return nil, false
	}
	from := min(after+1-v.first, int64(len(v.events)))
	return v.events[from:min(int(from)+limit, len(v.events))], true
}

func (f *feed) committed(last int64, events func() []Event) {
	f.in.Lock()
	if events != nil && len(f.in.commits) < maxPending {
		f.in.commits = append(f.in.commits, commit{last: last, events: events})
	}
	f.in.grown = max(f.in.grown, last)
	f.in.failed = false
	f.wake()
}

// grown notes that the topic's latest event has at least this number.
func (f *feed) grown(head int64) {
	f.in.Lock()
	f.in.grown = max(f.in.grown, head)
	f.in.failed = false
	f.wake()
}

func (f *feed) message(m Message) {
	f.in.Lock()
	if len(f.in.messages) == maxMessages {
		f.in.messages = append(f.in.messages[:0], f.in.messages[1:]...)
	}
	f.in.messages = append(f.in.messages, m)
	f.wake()
}

// establish sets where the feed starts, unless it has.
func (f *feed) establish(head int64) {
	f.view.CompareAndSwap(nil, &view{first: head + 1})
	f.grown(head)
}

// wake unlocks the inbox and sees to it that somebody works it off.
func (f *feed) wake() {
	idle := !f.in.working && f.pending()
	f.in.working = f.in.working || idle
	f.in.Unlock()
	if idle && !f.hub.start(f.run) {
		f.in.Lock()
		f.in.working = false // The hub is closed, and nobody waits for this any more.
		f.in.Unlock()
	}
}

// pending needs the inbox's lock.
func (f *feed) pending() bool {
	if len(f.in.commits) > 0 || len(f.in.messages) > 0 {
		return true
	}
	v := f.view.Load()
	return v != nil && f.in.grown > v.head() && !f.in.failed
}

// run works the inbox off.
func (f *feed) run() {
	for {
		f.in.Lock()
		if !f.pending() || f.hub.ctx.Err() != nil {
			f.in.working = false
			f.in.Unlock()
			return
		}
		commits, messages := f.in.commits, f.in.messages
		f.in.commits, f.in.messages = nil, nil
		f.in.Unlock()

		f.apply(commits)
		f.catchUp()
		f.tell(messages)
	}
}

// apply appends what follows on what is known. What comes after a gap is left to the log, and what is known already is
// left out.
func (f *feed) apply(commits []commit) {
	v := f.view.Load()
	if v == nil {
		return // Where to start is still being asked; the log will have these.
	}
	next := v.head() + 1
	var more []Message
	for _, c := range commits {
		if c.last < next {
			continue
		}
		for _, e := range c.events() {
			if e.Seq == next {
				more = append(more, encode(f.topic, e))
				next++
			}
		}
	}
	if len(more) > 0 {
		f.view.Store(v.with(more, f.hub.o.Buffer))
	}
}

// catchUp reads a page from the log where the topic is known to have come further.
func (f *feed) catchUp() {
	v := f.view.Load()
	if v == nil {
		return
	}
	f.in.Lock()
	target, failed := f.in.grown, f.in.failed
	f.in.Unlock()
	if target <= v.head() || failed {
		return
	}
	events, err := f.hub.page(f.hub.ctx, f.hub.feedReads, f.topic, v.head())
	if expired, ok := errors.AsType[*ExpiredError](err); ok && expired.First > v.head()+1 {
		// Events were deleted before they were ever seen here. Go on where the log does. Subscriptions that needed them end with an error.
		f.view.Store(&view{first: expired.First})
		return
	}
	if err != nil {
		if f.hub.ctx.Err() == nil {
			f.hub.o.Logger.WarnContext(f.hub.ctx, "live: the log was not read", "topic", f.topic, "error", err)
		}
		f.in.Lock()
		f.in.failed = true
		f.in.Unlock()
		return
	}
	if len(events) == 0 {
		// Somebody promised more than there is. The next poll will know.
		f.in.Lock()
		if f.in.grown == target {
			f.in.grown = v.head()
		}
		f.in.Unlock()
		return
	}
	f.view.Store(v.with(encodeAll(f.topic, events), f.hub.o.Buffer))
}

// tell wakes every subscription that has something to take.
func (f *feed) tell(messages []Message) {
	head := int64(-1)
	if v := f.view.Load(); v != nil {
		head = v.head()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.subscriptions {
		if len(messages) > 0 || s.woken < head {
			s.woken = head
			s.owner.enqueue(s, messages)
		}
	}
}

func (f *feed) add(s *subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.subscriptions[s] = struct{}{}
}

func (f *feed) remove(s *subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.subscriptions, s)
}
