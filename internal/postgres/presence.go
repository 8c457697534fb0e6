package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/singleflight"
)

// UnavailableAfter is how long the database may be silent, unless [Options] say otherwise.
const UnavailableAfter = 5 * time.Second

// errAway is why the work of a transaction is ended when the database has been silent for too long.
var errAway = errors.New("the database does not answer")

// presence knows whether the database answers, so that those who wait for it are told within a bounded time that it does
// not. An outage begins when a transaction misses the database. Transactions are run again until most of the bound is used
// up, and for the rest of it all of them fail at once: by then whatever has queued behind them has waited for as long. Then
// the outage counts as a new one. So a command waits for an absent database no longer than the bound, and a database that
// is back soon is hardly noticed.
//
// A database that is silent without an error can't be told from one that works: so it is asked something easy on a
// connection of its own, and what runs is cut only when that is not answered either.
type presence struct {
	after  time.Duration
	config *pgx.ConnConfig
	asking singleflight.Group
	base   context.Context //nolint:containedctx // Ends the asking, which is for several callers.
	end    context.CancelFunc
	probes sync.WaitGroup

	mu    sync.Mutex
	since time.Time // when the outage began; zero where none is known
}

func newPresence(after time.Duration, config *pgx.ConnConfig) *presence {
	p := &presence{after: after, config: config}
	p.base, p.end = context.WithCancel(context.Background())
	return p
}

// budget is how long an outage is waited for. The rest of the bound lets what has queued fail.
func (p *presence) budget() time.Duration { return p.after * 9 / 10 }

// hopeless reports whether an outage has lasted for so long that nothing is to be tried at the moment.
func (p *presence) hopeless() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	past := time.Since(p.since)
	return p.budget() <= past && past < p.after
}

// missed notes that the database was not there at a time, and returns until when it is to be waited for.
func (p *presence) missed(at time.Time) time.Time {
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

// until is how long something that is asked for at a time is waited for: in an outage that is known, no longer than that.
func (p *presence) until(at time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at.Sub(p.since) < p.after {
		return p.since.Add(p.budget())
	}
	return at.Add(p.budget())
}

// heard notes that the database is there.
func (p *presence) heard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Time{}
}

// watch returns a context that also ends, with errAway as its cause, when the database has been silent for too long. The
// caller calls the function that comes with it.
func (p *presence) watch(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	start := time.Now()
	t := time.AfterFunc(p.after/4, func() {
		for since := start; ; since = time.Now() {
			if !p.answers(ctx, since.Add(p.budget())) {
				if ctx.Err() == nil {
					p.missed(since)
				}
				cancel(errAway)
				return
			}
			if !sleep(ctx, p.after/4) {
				return
			}
		}
	})
	return ctx, func() { t.Stop(); cancel(nil) }
}

// answers asks the database until it answers, or until the deadline.
func (p *presence) answers(ctx context.Context, deadline time.Time) bool {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for {
		select {
		case r := <-p.asking.DoChan("", p.ask): // It asks for others too.
			if r.Err == nil {
				return true
			}
		case <-ctx.Done():
			return false
		}
		if !sleep(ctx, min(maxBackoff, p.after/20)) {
			return false
		}
	}
}

// ask asks on a connection of its own: all of the pool's may be waiting for something.
func (p *presence) ask() (any, error) {
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
	if v, reason := classify(err); v != connectionLost || reason == tooManyConnections {
		return nil, nil // It refuses, and so it is there.
	}
	return nil, err
}

func (p *presence) close() {
	p.mu.Lock()
	p.end()
	p.mu.Unlock()
	p.probes.Wait()
}
