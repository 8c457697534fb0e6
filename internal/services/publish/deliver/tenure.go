package deliver

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// tenure is what a leader knows. It has the topics that are behind, as far as it was told, in a line for each target. Each topic that has
// its turn has a goroutine.
type tenure struct {
	*Deliverer

	term       int64
	log        *slog.Logger
	ends       *groupcommit.Group[struct{}, Step, Recorded]
	look, news chan struct{}
	work       sync.WaitGroup

	mu     sync.Mutex
	begin  func(*topic) // gives a topic its turn; nil before and after the term
	routes map[string][]Open
	hints  map[string]struct{}
	// missed are hints that came while a look was under way, which may have been too early to see what they tell, and has not said yet
	// which subscriptions there are; nil while there is none.
	missed  map[string]struct{}
	topics  map[Key]*topic
	lines   map[uuid.UUID]*line
	running int
	last    Survey
	// pending is how many topics the last look has listed that have not had their turn yet.
	pending int
}

// stage says what a topic does.
type stage int

const (
	queued stage = iota
	running
	resting // until its timer fires
)

// topic is one that is behind, or was when somebody said so.
type topic struct {
	Key

	target uuid.UUID
	stage  stage
	again  bool      // there was news while it had its turn
	listed bool      // the last look has listed it
	since  time.Time // since when its next event waits, as far as is known
	timer  *time.Timer
}

// line is a target's. Once as many attempts in a row have failed as it has places, whatever the topics, one is made at a time, with
// pauses, until one succeeds.
type line struct {
	queue     []*topic
	running   int
	failures  int // in a row
	restUntil time.Time
	timer     *time.Timer
}

func newTenure(d *Deliverer, term int64) *tenure {
	t := &tenure{
		Deliverer: d, term: term, log: d.o.Logger.With("term", term), look: make(chan struct{}, 1), news: make(chan struct{}, 1),
		routes: map[string][]Open{}, hints: map[string]struct{}{}, topics: map[Key]*topic{}, lines: map[uuid.UUID]*line{},
	}
	t.ends = groupcommit.New(func(ctx context.Context, _ struct{}, steps []Step) ([]Recorded, error) {
		return d.o.Store.Record(ctx, steps)
	}, groupcommit.Options{})
	return t
}

// run delivers until ctx ends.
func (t *tenure) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.mu.Lock()
	t.begin = func(one *topic) { t.work.Go(func() { t.end(one, t.turn(ctx, one)) }) }
	t.mu.Unlock()
	t.work.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.news:
				t.takeHints()
			}
		}
	})
	t.lookAgain(ctx)

	t.mu.Lock()
	t.begin = nil // Nothing begins any more.
	for _, one := range t.topics {
		stop(one.timer)
	}
	for _, l := range t.lines {
		stop(l.timer)
	}
	t.mu.Unlock()
	t.work.Wait()
	closing, cancelClosing := context.WithTimeout(context.WithoutCancel(ctx), recordLimit)
	defer cancelClosing()
	if err := t.ends.Close(closing); err != nil {
		t.log.WarnContext(ctx, "places of subscriptions were not recorded", "error", err)
	}
}

func stop(timer *time.Timer) {
	if timer != nil {
		timer.Stop()
	}
}

// lookAgain looks at all subscriptions again and again: at once, every while, and when somebody says so.
func (t *tenure) lookAgain(ctx context.Context) {
	next := time.NewTimer(0)
	defer next.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.look:
			next.Reset(max(0, lookPause-time.Since(last)))
		case <-next.C:
			t.survey(ctx)
			last = time.Now()
			next.Reset(lookEvery)
		}
	}
}

// survey looks at all subscriptions.
func (t *tenure) survey(ctx context.Context) {
	t.mu.Lock()
	t.missed = map[string]struct{}{}
	t.mu.Unlock()
	asking, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	found, err := t.o.Store.Survey(asking, perLook)

	t.mu.Lock()
	defer t.mu.Unlock()
	missed := t.missed
	t.missed = nil
	if err != nil {
		if ctx.Err() == nil {
			t.log.WarnContext(ctx, "subscriptions were not looked at", "error", err)
		}
		return
	}
	t.last = *found
	t.routes = map[string][]Open{}
	for _, open := range found.Open {
		for _, name := range open.Topics {
			t.routes[name] = append(t.routes[name], open)
		}
	}
	for _, one := range t.topics {
		one.listed = false
	}
	t.pending = 0
	for _, b := range found.Behind {
		if b.Stopped {
			continue
		}
		one := t.enqueue(b.Key, b.Target, b.Rest)
		if one.stage != resting {
			one.listed = true
			t.pending++
		}
	}
	t.last.Behind = nil
	for name := range missed {
		t.hint(name)
	}
	t.dispatch()
}

// grown notes that a topic has news.
func (t *tenure) grown(name string) {
	if name == Changes {
		wait.Signal(t.look)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hint(name)
	if t.missed != nil && len(t.missed) < maxHints {
		t.missed[name] = struct{}{}
	}
}

func (t *tenure) hint(name string) {
	if len(t.hints) < maxHints && len(t.routesOf(name)) > 0 {
		t.hints[name] = struct{}{}
		wait.Signal(t.news)
	}
}

// routesOf are the subscriptions that follow a topic; one that names both it and its kind is there twice.
func (t *tenure) routesOf(name string) []Open {
	kind, _, _ := strings.Cut(name, ":")
	of, all := t.routes[name], t.routes[publish.AllOf(kind)]
	if len(of) == 0 {
		return all
	}
	return append(slices.Clip(of), all...)
}

func (t *tenure) takeHints() {
	t.mu.Lock()
	defer t.mu.Unlock()
	hints := t.hints
	t.hints = map[string]struct{}{}
	for name := range hints {
		for _, open := range t.routesOf(name) {
			if one := t.topics[Key{open.Subscription, name}]; one != nil && one.stage == resting {
				continue // News is no reason to try again.
			}
			t.enqueue(Key{open.Subscription, name}, open.Target, 0)
		}
	}
	t.dispatch()
}

// enqueue has a topic take its turn after a while. The caller holds the mutex, and dispatches.
func (t *tenure) enqueue(k Key, target uuid.UUID, after time.Duration) *topic {
	one := t.topics[k]
	if one == nil {
		one = &topic{Key: k, target: target, stage: resting, since: time.Now()}
		t.topics[k] = one
	}
	switch {
	case one.stage == running:
		one.again = true
	case one.stage == resting && after > 0 && one.timer != nil: // It rests already.
	case one.stage == resting && after > 0:
		t.rest(one, after)
	case one.stage == resting:
		t.queue(one)
	}
	return one
}

// queue puts a topic at the end of its target's line.
func (t *tenure) queue(one *topic) {
	stop(one.timer)
	one.timer, one.stage, one.again = nil, queued, false
	l := t.lines[one.target]
	if l == nil {
		l = &line{}
		t.lines[one.target] = l
	}
	l.queue = append(l.queue, one)
}

// rest lets a topic wait.
func (t *tenure) rest(one *topic, d time.Duration) {
	one.stage = resting
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.stage == resting && one.timer == timer && t.begin != nil {
			t.queue(one)
			t.dispatch()
		}
	})
	one.timer = timer
}

// dispatch begins turns, as long as there are places. The caller holds the mutex.
func (t *tenure) dispatch() {
	for begun := true; begun && t.begin != nil && t.running < t.o.Concurrency; {
		begun = false
		for target, l := range t.lines { // In no order, which is a fair one.
			if t.running == t.o.Concurrency {
				return
			}
			if !t.mayBegin(l) {
				if len(l.queue)+l.running+l.failures == 0 {
					delete(t.lines, target)
				}
				continue
			}
			one := l.queue[0]
			l.queue = l.queue[1:]
			one.stage = running
			l.running++
			t.running++
			t.begin(one)
			begun = true
		}
	}
}

// mayBegin reports whether a line has a topic, and a place for it.
func (t *tenure) mayBegin(l *line) bool {
	switch {
	case len(l.queue) == 0 || l.running >= t.o.PerTarget:
		return false
	case l.failures < t.o.PerTarget:
		return true
	case l.running > 0:
		return false
	}
	left := time.Until(l.restUntil)
	if left <= 0 {
		return true
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(left, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			l.timer = nil
			t.dispatch()
		})
	}
	return false
}

// next is what a topic does after its turn.
type next struct {
	more bool          // it has its turn again, after all others of its target
	rest time.Duration // or after this
}

// end ends a topic's turn.
func (t *tenure) end(one *topic, n next) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[one.target]
	l.running--
	t.running--
	if one.listed {
		one.listed = false
		if t.pending--; t.pending == 0 && t.last.More {
			wait.Signal(t.look)
		}
	}
	switch {
	case t.begin == nil:
	case n.rest > 0:
		t.rest(one, n.rest)
	case n.more || one.again:
		t.queue(one)
	default:
		delete(t.topics, one.Key)
	}
	t.dispatch()
}

// attempted notes how an attempt ended, for the target's line and for the lag.
func (t *tenure) attempted(one *topic, delivered bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[one.target]
	if delivered {
		l.failures = 0
		one.since = time.Now()
		return
	}
	if l.failures++; l.failures >= t.o.PerTarget {
		rest, _ := publish.DecideRetry(publish.Result{Class: publish.Transient}, l.failures-t.o.PerTarget+1, t.o.Policy, draw)
		l.restUntil = time.Now().Add(rest)
	}
}

// waits notes since when a topic's next event waits.
func (t *tenure) waits(one *topic, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one.since = since
}

func (t *tenure) stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Stats{Leading: true, Paused: t.last.Paused, Stopped: t.last.Stopped, Lag: t.last.Lag, Running: t.running}
	for _, one := range t.topics {
		s.Oldest = max(s.Oldest, time.Since(one.since))
		if one.stage != running {
			s.Waiting++
		}
	}
	return s
}
