package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"
)

// DefaultTTL is how long a lease lives without renewal. With the wait between two tries it keeps a fail-over well under
// five seconds.
const DefaultTTL = 3 * time.Second

// MinTTL is the shortest time to live: below it a slow answer of the database would cost the lease.
const MinTTL = 100 * time.Millisecond

const (
	// maxWait is the longest pause between two tries to take the lease: so much later is a resigned one noticed.
	maxWait = 500 * time.Millisecond
	// minWait keeps a lease that is for ever about to expire from being asked for in a tight loop.
	minWait = 10 * time.Millisecond
	// renewals are tried so often in a TTL, so that one may fail altogether.
	renewals = 3
	// attempts is how often in a TTL a failed renewal is tried again.
	attempts = 20
	// resignTimeout bounds the one call that is made after the elector's context has ended.
	resignTimeout = 2 * time.Second
)

// Margin is the part of a lease's time to live that a tenure does without: by so much two clocks may drift apart within
// a TTL, and so long may the end of a context take to be noticed.
func Margin(ttl time.Duration) time.Duration { return ttl / 10 }

// Observer is told of tenures, for metrics. Its method must not block.
type Observer interface {
	// Leading is called with true when a tenure begins and with false when the work has returned and it is over.
	Leading(name string, term int64, leading bool)
}

// Options configure an [Elector].
type Options struct {
	Lease    Lease
	Name     string        // of the lease
	Holder   string        // unique to this elector; empty means a random one
	TTL      time.Duration // 0 means [DefaultTTL]; at least [MinTTL]
	Logger   *slog.Logger  // may be nil
	Observer Observer      // may be nil
}

// Elector takes part in the election of one leader. Its Run may be called once at a time.
type Elector struct {
	o   Options
	log *slog.Logger
}

// New returns an elector that does nothing yet.
func New(o Options) (*Elector, error) {
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if o.Lease == nil || o.Name == "" || o.TTL < MinTTL {
		return nil, fmt.Errorf("leader: a lease, a name and a time to live of at least %s are needed", MinTTL)
	}
	if o.Holder == "" {
		o.Holder = uuid.NewString()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Elector{o: o, log: o.Logger.With("lease", o.Name, "holder", o.Holder)}, nil
}

// Run campaigns until ctx ends, and then returns once the work has returned and the lease is resigned. Whenever it is
// elected it calls lead with the term and a context that ends before the lease can have expired; context.Cause of it is
// then [ErrLeaseLost]. A lead that returns by itself gives the lease up. No two calls of lead overlap.
func (e *Elector) Run(ctx context.Context, lead func(ctx context.Context, term int64)) {
	failing := false
	for ctx.Err() == nil {
		start := time.Now()
		term, ok, wait, err := e.acquire(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			if !failing {
				e.log.WarnContext(ctx, "cannot try to take the lease", "error", err)
			}
			wait = maxWait
		case ok:
			e.serve(ctx, term, start, lead)
			// Whoever else waits goes first: this process may be the one that cannot do the work.
			wait = maxWait
		}
		failing = err != nil
		pause(ctx, min(max(wait, minWait), maxWait))
	}
}

// acquire tries once. An answer that comes later than half a TTL would leave too little of the lease to be worth it.
func (e *Elector) acquire(ctx context.Context) (term int64, ok bool, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.o.TTL/2)
	defer cancel()
	return e.o.Lease.Acquire(ctx, e.o.Name, e.o.Holder, e.o.TTL)
}

// serve is one tenure; granted is when the attempt began that was granted.
func (e *Elector) serve(ctx context.Context, term int64, granted time.Time, lead func(context.Context, int64)) {
	if !time.Now().Before(e.deadline(granted)) {
		e.resign(ctx, term) // This process was stopped, perhaps, before it could see the answer.
		return
	}
	tenure, end := context.WithCancelCause(ctx)
	defer end(nil)
	// The timer is what ends the tenure in time, even if a renewal hangs.
	guard := time.AfterFunc(time.Until(e.deadline(granted)), func() { end(ErrLeaseLost) })
	defer guard.Stop()
	e.log.InfoContext(ctx, "elected", "term", term)
	e.observe(term, true)

	var renewing sync.WaitGroup
	renewing.Go(func() { e.renew(tenure, term, granted, guard, end) })
	lead(tenure, term)
	lost := errors.Is(context.Cause(tenure), ErrLeaseLost)
	end(nil)
	renewing.Wait()
	if lost {
		e.log.WarnContext(ctx, "lease lost", "term", term)
	} else {
		e.resign(ctx, term)
	}
	e.observe(term, false)
}

// deadline is until when a grant or renewal can be trusted whose attempt began at start.
func (e *Elector) deadline(start time.Time) time.Time { return start.Add(e.o.TTL - Margin(e.o.TTL)) }

// renew keeps the lease until the tenure ends, and ends the tenure when the lease is refused.
func (e *Elector) renew(tenure context.Context, term int64, granted time.Time, guard *time.Timer, end context.CancelCauseFunc) {
	interval := e.o.TTL / renewals
	next, failing := granted.Add(interval), false
	for pause(tenure, time.Until(next)) {
		start := time.Now()
		// A connection that has silently died is found out soon; a database that is only slow gets more time after that.
		timeout := interval / 2
		if failing {
			timeout = interval
		}
		ok, err := e.renewOnce(tenure, term, timeout)
		switch {
		case err != nil:
			if tenure.Err() == nil && !failing {
				e.log.WarnContext(tenure, "lease not renewed yet", "term", term, "error", err)
			}
			// A call that has used up its time is no reason to wait any longer.
			next, failing = start.Add(e.o.TTL/attempts), true
		case !ok, !guard.Reset(time.Until(e.deadline(start))):
			// Reset reports that the timer had fired: then the tenure is over, and stays so.
			end(ErrLeaseLost)
			return
		default:
			next, failing = start.Add(interval), false
		}
	}
}

func (e *Elector) renewOnce(tenure context.Context, term int64, timeout time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(tenure, timeout)
	defer cancel()
	return e.o.Lease.Renew(ctx, e.o.Name, e.o.Holder, term, e.o.TTL)
}

// resign hands the lease on. If that fails, it expires.
func (e *Elector) resign(ctx context.Context, term int64) {
	// The elector's own context may have ended, which is when handing on matters most.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignTimeout)
	defer cancel()
	if err := e.o.Lease.Resign(ctx, e.o.Name, e.o.Holder, term); err != nil {
		e.log.WarnContext(ctx, "lease not resigned", "term", term, "error", err)
		return
	}
	e.log.InfoContext(ctx, "resigned", "term", term)
}

func (e *Elector) observe(term int64, leading bool) {
	if e.o.Observer != nil {
		e.o.Observer.Leading(e.o.Name, term, leading)
	}
}

// pause waits for d and a little more, lest many processes try in step. It reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(max(d, 0) + rand.N(minWait)) //nolint:gosec // Jitter needs no secrecy.
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
