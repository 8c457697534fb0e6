package groupcommit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// The defaults of Options.
const (
	// defaultMaxQueue is about half a second of work at sixteen thousand commands a second: what waits
	// longer is better refused at once.
	defaultMaxQueue = 8192
	// defaultMaxBatch keeps a transaction short enough to retry, and is past the point where the cost
	// of the commit itself is spread thin.
	defaultMaxBatch = 512
	// defaultMaxLanesBusy leaves room in a connection pool of ten for work that goes by no lane.
	defaultMaxLanesBusy = 8
	// defaultCloseGrace is ample for a database driver to notice that its context has ended.
	defaultCloseGrace = time.Second
)

// Flush commits a batch as one unit and returns one result a command, in the order of the batch. An error
// says that nothing of the batch took effect, unless Options.Divisible says otherwise of it.
//
// The batch has at least one and at most Options.MaxBatch commands, all of the given key, and is valid
// only until the call returns: a Flush must not keep it. Calls with one key overlap only as far as
// Options.Overlap says; calls with different keys do. The context belongs to the group; it ends when Close runs
// out of time, and carries nothing of any caller's.
type Flush[K comparable, C, R any] func(ctx context.Context, key K, batch []C) ([]R, error)

// Options are a group's limits and hooks. The zero value is usable; a number that is zero means
// its default.
type Options struct {
	// MaxQueue is how many commands may wait on one lane, those being flushed not counted. Beyond it
	// Do returns ErrFull at once.
	MaxQueue int
	// MaxBatch is how many commands one flush is given at most, or their weight: see Group.Weigh.
	MaxBatch int
	// MaxLanesBusy is how many flushes may run at one time, so that many hot keys cannot take every
	// connection of a pool. Lanes beyond it take turns, a batch each, in the order they became ready.
	MaxLanesBusy int
	// Overlap is how many further batches of one key may be flushed while one is; 0, the default, flushes one
	// at a time. A further one is begun once as many commands wait as the newest batch has, and MinOverlap of
	// them at least, so that batches stay large. The Flush is then called for it before the earlier one has
	// returned: it has to cope with an earlier batch that fails.
	Overlap, MinOverlap int
	// Patience is how long a command waits on its lane at most, before a batch takes it; 0 means any time. Then Do returns ErrLate. It
	// is for commands that have another way to go. Lists have none.
	Patience time.Duration
	// Divisible reports whether a batch that failed with this error may be halved and tried again; nil
	// means always. It must answer false where the batch may have taken effect (unknown outcomes) and
	// should where halving cannot help (a lost connection). It is not asked about panics, which are
	// divisible, nor about an ErrResultCount, which is not. It is called concurrently, and must not
	// panic.
	Divisible func(error) bool
	// CloseGrace is how long Close, once its context has ended and the flushes' context is cancelled,
	// waits for them to return with answers of their own.
	CloseGrace time.Duration
	// Observer receives metrics; nil means nobody does.
	Observer Observer
}

// Observer receives what a group does, for metrics. Its methods are called from the group's own
// goroutines (Refused from the caller's), concurrently, and outside every lock of the group; they delay
// the lane they report on, so they must not block, and they must not panic.
type Observer interface {
	// Made hands over, once and before everything else, what tells the group's load.
	Made(load func() Load)
	// Taken reports a batch about to be flushed: its size in commands, how many commands still wait on
	// its lane, and for how long the oldest command of the batch has waited.
	Taken(size, depth int, oldestWait time.Duration)
	// Flushed reports one call of the flush: the whole batch or, when bisecting, a part of it. err is
	// the call's failure, a *PanicError or ErrResultCount included, and nil on success.
	Flushed(size int, duration time.Duration, err error)
	// Bisected reports that a failed batch, or part of one, of that size is halved and tried again.
	Bisected(size int)
	// Refused reports a command answered with ErrFull.
	Refused()
	// Panicked reports a recovered panic of the flush.
	Panicked(err *PanicError)
}

// Load is how many commands are in flight: they wait on a lane, or are being committed.
type Load struct {
	All  int // on all lanes
	Most int // on the lane that has most
}

// ignore is the Observer of those who gave none.
type ignore struct{}

func (ignore) Made(func() Load)                  {}
func (ignore) Taken(int, int, time.Duration)     {}
func (ignore) Flushed(int, time.Duration, error) {}
func (ignore) Bisected(int)                      {}
func (ignore) Refused()                          {}
func (ignore) Panicked(*PanicError)              {}

// Group queues commands by key and commits them in batches. Make one with New; its methods may be called
// concurrently, from any goroutine but one that runs its Flush.
type Group[K comparable, C, R any] struct {
	flush Flush[K, C, R]
	opts  Options
	weigh func(C) int
	admit func(ctx context.Context, key K) (begun bool) // nil: there is nothing to wait for

	ctx    context.Context // what flushes run under
	cancel context.CancelCauseFunc

	waiters, spare, batches sync.Pool // of *waiter, *lane and *batch

	mu      sync.Mutex
	lanes   map[K]*lane[K, C, R] // those with work: waiting commands, or a batch being flushed
	ready   []*lane[K, C, R]     // those that may have a batch taken
	workers int                  // goroutines in work, at most MaxLanesBusy
	closed  bool
	drained chan struct{} // closed once the group is closed and its last worker has ended
}

// New makes a group around flush. A group that lies idle holds no goroutine.
func New[K comparable, C, R any](flush Flush[K, C, R], o Options) *Group[K, C, R] {
	o.MaxQueue = cmp.Or(o.MaxQueue, defaultMaxQueue)
	o.MaxBatch = cmp.Or(o.MaxBatch, defaultMaxBatch)
	o.MaxLanesBusy = cmp.Or(o.MaxLanesBusy, defaultMaxLanesBusy)
	o.CloseGrace = cmp.Or(o.CloseGrace, defaultCloseGrace)
	if o.Observer == nil {
		o.Observer = ignore{}
	}
	if o.Divisible == nil {
		o.Divisible = func(error) bool { return true }
	}
	g := &Group[K, C, R]{flush: flush, opts: o, weigh: func(C) int { return 1 }, lanes: map[K]*lane[K, C, R]{}, drained: make(chan struct{})}
	g.waiters.New = func() any { return &waiter[K, C, R]{done: make(chan struct{}, 1)} }
	g.spare.New = func() any { return &lane[K, C, R]{} }
	g.batches.New = func() any { return &batch[K, C, R]{} }
	g.ctx, g.cancel = context.WithCancelCause(context.Background())
	o.Observer.Made(g.load)
	return g
}

// load looks at the lanes that have work, so that counting costs the commands nothing.
func (g *Group[K, C, R]) load() (l Load) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, ln := range g.lanes {
		n := len(ln.queue)
		for _, b := range ln.batches {
			n += len(b.waiters) - b.answered
		}
		l.All += n
		l.Most = max(l.Most, n)
	}
	return l
}

// Weigh makes MaxBatch bound the sum of the commands' weights instead of their number. A weight is 1 or more. A command heavier than
// MaxBatch is flushed alone. It is called before the first command.
func (g *Group[K, C, R]) Weigh(weigh func(C) int) { g.weigh = weigh }

// Admit has a function called before a batch of a key is taken, which may wait for the batch's turn: commands that come meanwhile
// are in the batch, too. It reports whether it has waited for a turn, which begins now: then the batch is half of what has come, if
// the other half may overlap it. Otherwise all of their callers would be answered at once, and nothing be flushed until they come again.
// Its context is that of the flushes. It is called concurrently, for each key once at a time, and must not panic.
// Admit is called before the first command.
func (g *Group[K, C, R]) Admit(admit func(ctx context.Context, key K) (begun bool)) { g.admit = admit }

// Do queues the command on its key's lane and waits for its answer. The key must equal itself (a NaN does
// not).
//
// Errors: ErrFull, ErrLate and ErrClosed mean that the command never ran. The context's error means that it never
// ran and never will, unless ErrInFlight matches too: then its batch had been taken, and the command runs
// to an end that the caller does not learn. Any other error is the flush's for this command, a *PanicError,
// ErrResultCount among them. Where an answer is there it wins over an ended context.
func (g *Group[K, C, R]) Do(ctx context.Context, key K, cmd C) (none R, err error) {
	if err := ctx.Err(); err != nil {
		return none, err
	}
	w := g.waiter(ctx, cmd)
	if err := g.enqueue(key, w); err != nil {
		g.recycle(w)
		return none, err
	}
	if g.opts.Patience == 0 {
		return g.await(ctx, w, nil)
	}
	patience := time.NewTimer(g.opts.Patience)
	defer patience.Stop()
	return g.await(ctx, w, patience.C)
}

// Outcome is what [Group.Do] would have returned for one command of a list.
type Outcome[R any] struct {
	Result R
	Err    error
}

// DoAll queues the first commands of a list on their key's lane, in their order, as many as fit into a batch. It returns the function
// that waits for their outcomes, which is to be called once and returns one for each command that was queued, at least one. Those
// commands are in one batch, so that they are decided in their order in any case. Outcomes are what [Group.Do] returns. If the lane has
// too little room for all of them, all get ErrFull.
func (g *Group[K, C, R]) DoAll(ctx context.Context, key K, list []C) (wait func() []Outcome[R]) {
	list = list[:g.first(list)]
	outcomes := make([]Outcome[R], len(list))
	waiters := make([]*waiter[K, C, R], len(list))
	err := ctx.Err()
	if err == nil {
		room := 0
		for i, cmd := range slices.Backward(list) {
			waiters[i] = g.waiter(ctx, cmd)
			room += waiters[i].weight
			waiters[i].room = room
		}
		if err = g.enqueue(key, waiters...); err != nil {
			for _, w := range waiters {
				g.recycle(w)
			}
		}
	}
	return func() []Outcome[R] {
		for i := range list {
			if outcomes[i].Err = err; err == nil {
				outcomes[i].Result, outcomes[i].Err = g.await(ctx, waiters[i], nil)
			}
		}
		return outcomes
	}
}

// first returns how many commands of a list one batch takes.
func (g *Group[K, C, R]) first(list []C) int {
	n, weight := 0, 0
	for n < min(len(list), g.opts.MaxQueue) {
		weight += g.weigh(list[n])
		if n > 0 && weight > g.opts.MaxBatch {
			break
		}
		n++
	}
	return n
}

// waiter returns one for a command that has no list.
func (g *Group[K, C, R]) waiter(ctx context.Context, cmd C) *waiter[K, C, R] {
	w := g.waiters.Get().(*waiter[K, C, R]) //nolint:errcheck // The pool holds nothing else.
	w.ctx, w.cmd, w.queuedAt = ctx, cmd, time.Now()
	w.weight = g.weigh(cmd)
	w.room = w.weight
	return w
}

// enqueue puts all of the waiters on a lane, or none.
func (g *Group[K, C, R]) enqueue(key K, waiters ...*waiter[K, C, R]) (err error) {
	if len(waiters) == 0 {
		return nil
	}
	g.mu.Lock()
	ln := g.lanes[key]
	switch {
	case g.closed:
		err = ErrClosed
	case ln != nil && len(ln.queue)+len(waiters) > g.opts.MaxQueue:
		err = ErrFull
	case ln == nil:
		ln = g.spare.Get().(*lane[K, C, R]) //nolint:errcheck // As above.
		ln.key = key
		g.lanes[key] = ln
	}
	if err != nil {
		g.mu.Unlock()
		if err == ErrFull { //nolint:errorlint // It is the sentinel itself.
			for range waiters {
				g.opts.Observer.Refused()
			}
		}
		return err
	}
	for _, w := range waiters {
		w.lane, w.place = ln, queued
	}
	ln.queue = append(ln.queue, waiters...)
	g.wake(ln, false)
	g.mu.Unlock()
	return nil
}

// await waits for the answer to a queued command, which is late if no batch has taken it by then.
func (g *Group[K, C, R]) await(ctx context.Context, w *waiter[K, C, R], late <-chan time.Time) (none R, err error) {
	select {
	case <-w.done:
	case <-late:
		if !g.withdraw(w) {
			return g.await(ctx, w, nil)
		}
		g.recycle(w)
		return none, ErrLate
	case <-ctx.Done():
		if g.withdraw(w) {
			g.recycle(w)
			return none, ctx.Err()
		}
		select {
		case <-w.done:
		default:
			// The batch still refers to the waiter, so it can't be used again.
			return none, inFlight(ctx.Err())
		}
	}
	result, err := w.result, w.err
	if !errors.Is(err, ErrInFlight) {
		g.recycle(w) // Else the batch of an abandoned flush still refers to the waiter.
	}
	return result, err
}

// Close stops the group from accepting commands, lets every lane drain, and returns nil when the last
// flush has returned. If ctx ends first, it cancels the flushes' context, answers what still waits with
// ErrClosed, gives running flushes Options.CloseGrace to return (their commands then get what the flush
// said), answers the commands of those that did not with ErrClosed and ErrInFlight, and returns an error
// that matches ctx's. In either case every command has been answered when it returns. It may be called
// again, and concurrently: each call waits under its own context.
func (g *Group[K, C, R]) Close(ctx context.Context) error {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		g.signalDrained()
	}
	g.mu.Unlock()

	select {
	case <-g.drained:
	case <-ctx.Done():
	}
	g.cancel(ErrClosed)
	select {
	case <-g.drained: // An ended context is no reason to fail where nothing is left to wait for.
		return nil
	default:
	}
	g.abandon(false)
	grace := time.NewTimer(g.opts.CloseGrace)
	defer grace.Stop()
	select {
	case <-g.drained:
	case <-grace.C:
		g.abandon(true)
	}
	return fmt.Errorf("groupcommit: close: %w", ctx.Err())
}
