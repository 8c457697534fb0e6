package server

import (
	"context"
	"sync/atomic"
	"time"
)

// deadlineStep is how much later than its limit a shared deadline may be.
const deadlineStep = 100 * time.Millisecond

// deadlines bound requests in time without a timer for each: those that begin within a step share one. It is safe for concurrent use.
type deadlines struct {
	base   context.Context // of the requests, which end with it and not before
	limit  time.Duration
	newest atomic.Pointer[shared]
}

type shared struct {
	context.Context

	until time.Time // for those that begin before
}

type deadlinesKey struct{}

func withDeadlines(base context.Context, limit time.Duration) context.Context {
	return context.WithValue(base, deadlinesKey{}, &deadlines{base: base, limit: limit})
}

// within returns a context that ends with ctx, and after the limit. The caller calls cancel when it has no more use for it.
func within(ctx context.Context, limit time.Duration) (_ context.Context, cancel context.CancelFunc) {
	d, _ := ctx.Value(deadlinesKey{}).(*deadlines)
	if d == nil || d.limit != limit || d.base.Done() != ctx.Done() { // The request has an end of its own.
		return context.WithTimeout(ctx, limit)
	}
	return &timed{ctx, d.shared()}, func() {}
}

func (d *deadlines) shared() *shared {
	now := time.Now()
	s := d.newest.Load()
	if s == nil || !now.Before(s.until) {
		// Who else comes here at this moment makes one, too, which is then theirs alone.
		s = &shared{until: now.Add(deadlineStep)}
		ctx, cancel := context.WithDeadline(d.base, s.until.Add(d.limit))
		context.AfterFunc(ctx, cancel) // It is over by itself, soon after its requests.
		s.Context = ctx
		d.newest.Store(s)
	}
	return s
}

// timed is a request's context with a shared end.
type timed struct {
	context.Context // the request's, for its values

	end *shared
}

func (b *timed) Deadline() (time.Time, bool) { return b.end.Deadline() }
func (b *timed) Done() <-chan struct{}       { return b.end.Done() }
func (b *timed) Err() error                  { return b.end.Err() }

// Value asks the shared end first: package context finds by a value what cancels a context, so that those derived from this one need no
// goroutine.
func (b *timed) Value(key any) any {
	if v := b.end.Value(key); v != nil {
		return v
	}
	return b.Context.Value(key)
}
