package pgkit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/singleflight"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// ErrAway is why the work of a transaction is ended when the database has been silent for too long.
var ErrAway = errors.New("the database does not answer")

// Presence knows whether the database answers, so that those who wait for it learn within a bounded time that it does
// not. An outage begins when a transaction misses the database. Transactions are run again until most of the bound is used
// up, and for the rest of it all of them fail at once: by then whatever has queued behind them has waited for as long. Then
// the outage counts as a new one. So a command waits for an absent database no longer than the bound, and a database that
// is back soon is hardly noticed.
//
// A database that is silent without an error looks like one that works. So a Presence asks it something easy on a
// connection of its own, and ends running work only when that is not answered either.
//
// The methods that a [Runner] calls do nothing on a nil Presence. It is safe for concurrent use.
type Presence struct {
	after  time.Duration
	config *pgx.ConnConfig
	asking singleflight.Group
	base   context.Context //nolint:containedctx // Ends the asking, which is for several callers.
	end    context.CancelFunc
	probes sync.WaitGroup

	mu    sync.Mutex
	since time.Time // when the outage began; zero where none is known
}

// NewPresence returns the presence of the database that config connects to. The caller closes it.
func NewPresence(after time.Duration, config *pgx.ConnConfig) *Presence {
	p := &Presence{after: after, config: config}
	p.base, p.end = context.WithCancel(context.Background())
	return p
}

// budget is how long an outage is waited for. The rest of the bound lets what has queued fail.
func (p *Presence) budget() time.Duration { return p.after * 9 / 10 }

// Hopeless reports whether an outage has lasted for so long that nothing is to be tried at the moment.
func (p *Presence) Hopeless() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	past := time.Since(p.since)
	return p.budget() <= past && past < p.after
}

// Missed notes that the database was not there at a time, and returns until when it is to be waited for.
func (p *Presence) Missed(at time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.since) >= p.after {
		p.since = at
	}
	if at.Before(p.since) {
		return at.Add(p.budget())
	}
	return p.since.Add(p.budget())
}

// until is how long something that is asked for at a time is waited for: in an outage that is known, no longer than that. On a
// nil Presence it is otherwise later.
func (p *Presence) until(at time.Time, otherwise time.Duration) time.Time {
	if p == nil {
		return at.Add(otherwise)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if at.Sub(p.since) < p.after {
		return p.since.Add(p.budget())
	}
	return at.Add(p.budget())
}

// atLeast is a timeout, or how long the database may be silent where that is longer. On a nil Presence it is the timeout.
func (p *Presence) atLeast(timeout time.Duration) time.Duration {
	if p == nil {
		return timeout
	}
	return max(timeout, p.after)
}

// Heard notes that the database is there.
func (p *Presence) Heard() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Time{}
}

// Watch returns a context that also ends, with ErrAway as its cause, when the database has been silent for too long. The
// caller calls the function that comes with it.
func (p *Presence) Watch(ctx context.Context) (context.Context, context.CancelFunc) {
	if p == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	start := time.Now()
	t := time.AfterFunc(p.after/4, func() {
		for since := start; ; since = time.Now() {
			if !p.answers(ctx, since.Add(p.budget())) {
				if ctx.Err() == nil {
					p.Missed(since)
				}
				cancel(ErrAway)
				return
			}
			if !wait.For(ctx, p.after/4) {
				return
			}
		}
	})
	return ctx, func() { t.Stop(); cancel(nil) }
}

// answers asks the database until it answers, or until the deadline. An outage that others have found hopeless meanwhile ends the
// asking, too: the caller's work may have begun late because it waited for theirs.
func (p *Presence) answers(ctx context.Context, deadline time.Time) bool {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	tick := time.NewTicker(min(MaxBackoff, p.after/20))
	defer tick.Stop()
	for asked := p.asking.DoChan("", p.ask); ; { // It asks for others too.
		select {
		case r := <-asked:
			if r.Err == nil {
				return true
			}
			asked = nil // Until the next tick.
		case <-tick.C:
			if p.Hopeless() {
				return false
			}
			if asked == nil {
				asked = p.asking.DoChan("", p.ask)
			}
		case <-ctx.Done():
			return false
		}
	}
}

// ask asks on a connection of its own: all of the pool's may be waiting for something.
func (p *Presence) ask() (any, error) {
	p.mu.Lock()
	if err := p.base.Err(); err != nil {
		p.mu.Unlock()
		return nil, err
	}
	p.probes.Add(1)
	p.mu.Unlock()
	defer p.probes.Done()
	ctx, cancel := context.WithTimeout(p.base, p.budget())
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, p.config.Copy())
	if err == nil {
		err = conn.Ping(ctx)
		_ = conn.Close(ctx) // What was to be known is known.
	}
	if err == nil {
		return nil, nil
	}
	if v, reason := Classify(err); v != Lost || reason == TooManyConnections {
		return nil, nil // It refuses, and so it is there.
	}
	return nil, err
}

// Close ends the asking.
func (p *Presence) Close() {
	p.mu.Lock()
	p.end()
	p.mu.Unlock()
	p.probes.Wait()
}
