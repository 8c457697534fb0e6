package groupcommit

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// The defaults of Options.
const (
	// DefaultMaxQueue is about half a second of work at sixteen thousand commands a second: what waits
	// longer is better refused at once.
	DefaultMaxQueue = 8192
	// DefaultMaxBatch keeps a transaction short enough to retry, and is past the point where the cost
	// of the commit itself is spread thin.
	DefaultMaxBatch = 512
	// DefaultMaxLanesBusy leaves room in a connection pool of ten for work that goes by no lane.
	DefaultMaxLanesBusy = 8
	// DefaultCloseGrace is ample for a database driver to notice that its context has ended.
	DefaultCloseGrace = time.Second
)

// Flush commits a batch as one unit and returns one result a command, in the order of the batch. An error
// says that nothing of the batch took effect, unless Options.Divisible says otherwise of it.
//
// The batch has at least one and at most Options.MaxBatch commands, all of the given key, and is valid
// only until the call returns: a Flush must not keep it. Calls with one key overlap only as far as
// Options.Overlap says; calls with different keys do. The context belongs to the group; it ends when Close runs out of time, and carries
// nothing of any caller's.
type Flush[K comparable, C, R any] func(ctx context.Context, key K, batch []C) ([]R, error)

// Options are a group's limits and hooks. The zero value is usable; a number that is zero or negative
// means its default.
type Options struct {
	// MaxQueue is how many commands may wait on one lane, those being flushed not counted. Beyond it
	// Do returns ErrFull at once.
	MaxQueue int
	// MaxBatch is how many commands one flush is given at most.
	MaxBatch int
	// MaxLanesBusy is how many flushes may run at one time, so that many hot keys cannot take every
	// connection of a pool. Lanes beyond it take turns, a batch each, in the order they became ready.
	MaxLanesBusy int
	// Overlap is how many further batches of one key may be flushed while one is; 0, the default, flushes one
	// at a time. A further one is begun once as many commands wait as the newest batch has, and MinOverlap of
	// them at least, so that batches stay large. The Flush is then called for it before the earlier one has
	// returned: it has to cope with an earlier batch that fails.
	Overlap, MinOverlap int
	// Divisible reports whether a batch that failed with this error may be halved and tried again; nil
	// means always. It must answer false where the batch may have taken effect (unknown outcomes) and
	// should where halving cannot help (a lost connection). It is not asked about panics, which are
	// divisible, nor about a *ResultCountError, which is not. It is called concurrently, and must not
	// panic.
	Divisible func(error) bool
	// CloseGrace is how long Close, once its context has ended and the flushes' context is cancelled,
	// waits for them to return with answers of their own.
	CloseGrace time.Duration
	// Observer receives metrics; nil means nobody does.
	Observer Observer
}

// Group queues commands by key and commits them in batches. Make one with New; its methods may be called
// concurrently, from any goroutine but one that runs its Flush.
type Group[K comparable, C, R any] struct {
	flush    Flush[K, C, R]
	opts     Options
	observed bool // whether the clock is worth reading for each command

	ctx    context.Context // what flushes run under
	cancel context.CancelCauseFunc

	pool  sync.Pool // of *waiter
	spare sync.Pool // of *lane

	mu      sync.Mutex
	lanes   map[K]*lane[K, C, R] // those with work: waiting commands, or a batch being flushed
	ready   list[*lane[K, C, R]] // those that may have a batch taken
	batches []*batch[K, C, R]    // buffers of workers that have ended, at most MaxLanesBusy
	waiting int                  // commands in all queues
	workers int                  // goroutines in work, at most MaxLanesBusy
	closed  bool
	drained chan struct{} // closed once the group is closed and its last worker has ended
}

// New makes a group around flush, which must not be nil. A group that lies idle holds no goroutine.
func New[K comparable, C, R any](flush Flush[K, C, R], o Options) *Group[K, C, R] {
	if flush == nil {
		panic("groupcommit: New needs a flush")
	}
	g := &Group[K, C, R]{
		flush:    flush,
		opts:     o,
		observed: o.Observer != nil,
		lanes:    make(map[K]*lane[K, C, R]),
		drained:  make(chan struct{}),
	}
	orDefault(&g.opts.MaxQueue, DefaultMaxQueue)
	orDefault(&g.opts.MaxBatch, DefaultMaxBatch)
	orDefault(&g.opts.MaxLanesBusy, DefaultMaxLanesBusy)
	orDefault(&g.opts.CloseGrace, DefaultCloseGrace)
	if g.opts.Observer == nil {
		g.opts.Observer = ignore{}
	}
	if g.opts.Divisible == nil {
		g.opts.Divisible = func(error) bool { return true }
	}
	g.pool.New = func() any { return newWaiter[K, C, R]() }
	g.spare.New = func() any { return newLane[K, C, R]() }
	g.ctx, g.cancel = context.WithCancelCause(context.Background())
	return g
}

func orDefault[T int | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// Do queues the command on its key's lane and waits for its answer. The key must equal itself (a NaN does
// not).
//
// Errors: ErrFull and ErrClosed mean that the command never ran. The context's error means that it never
// ran and never will, unless ErrInFlight matches too: then its batch had been taken, and the command runs
// to an end that nobody is told. Any other error is the flush's for this command, a *PanicError,
// *ResultCountError or ErrFlushExited among them. Where an answer is there it wins over an ended context.
func (g *Group[K, C, R]) Do(ctx context.Context, key K, cmd C) (none R, err error) {
	if err := ctx.Err(); err != nil {
		return none, err
	}
	w := g.pool.Get().(*waiter[K, C, R]) //nolint:errcheck // The pool holds nothing else.
	w.ctx, w.cmd = ctx, cmd
	if g.observed {
		w.queuedAt = time.Now()
	}
	if err := g.enqueue(key, w); err != nil {
		g.recycle(w)
		if err == ErrFull { //nolint:errorlint // enqueue returns the sentinel itself.
			g.opts.Observer.Refused()
		}
		return none, err
	}
	return g.await(ctx, w)
}

// await waits for the queued waiter's answer, or for its caller's context to end.
func (g *Group[K, C, R]) await(ctx context.Context, w *waiter[K, C, R]) (none R, err error) {
	select {
	case <-w.done:
	case <-ctx.Done():
		if g.withdraw(w) {
			g.recycle(w)
			return none, ctx.Err()
		}
		select {
		case <-w.done:
		default:
			// The batch still refers to the waiter, so it can't be used again.
			return none, &inFlightError{reason: ctx.Err()}
		}
	}
	result, err := w.result, w.err
	if _, abandoned := err.(*inFlightError); !abandoned { //nolint:errorlint // What abandonFlushes made.
		// The batch of an abandoned flush still refers to the waiter.
		g.recycle(w)
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
	g.refuseWaiting()
	grace := time.NewTimer(g.opts.CloseGrace)
	defer grace.Stop()
	select {
	case <-g.drained:
	case <-grace.C:
		g.abandonFlushes()
	}
	return fmt.Errorf("groupcommit: close: %w", ctx.Err())
}

// Stats is a group at one instant.
type Stats struct {
	Waiting int // commands queued, in all lanes, those being flushed not counted
	Lanes   int // lanes with work
	Busy    int // lanes being flushed
}

// Stats counts what the group holds now; it is cheap enough for a gauge that is read on scrape.
func (g *Group[K, C, R]) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Stats{Waiting: g.waiting, Lanes: len(g.lanes)}
	for _, ln := range g.lanes {
		if len(ln.batches) > 0 {
			s.Busy++
		}
	}
	return s
}
