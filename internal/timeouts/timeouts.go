// Package timeouts bounds many short calls by few timers. [context.WithTimeout] sets one for each call. Where little else
// is going on, each new timer may wake a thread that finds nothing to do and is in the way of the server which the call is
// for: a call to Redis on the same machine took half as long again.
package timeouts

import (
	"context"
	"sync"
	"time"
)

// grains is how many timers a group sets in the time that it bounds calls to.
const grains = 8

// Group bounds calls to at least some time, and at most an eighth longer. Those that begin within this eighth share a
// timer. It is safe for concurrent use.
type Group struct {
	atLeast, grain time.Duration

	mu     sync.Mutex
	shared context.Context //nolint:containedctx // Those that are handed out end with it.
	fresh  time.Time       // until when it is handed out
}

// NewGroup returns a group for calls that are to be ended after d.
func NewGroup(d time.Duration) *Group { return &Group{atLeast: d, grain: d / grains} }

// Bound returns a context that ends with ctx or with [context.DeadlineExceeded] when the time is over, which it tells as
// its deadline. The caller calls cancel.
func (g *Group) Bound(ctx context.Context) (_ context.Context, cancel context.CancelFunc) {
	end := g.end()
	deadline, _ := end.Deadline()
	if before, ok := ctx.Deadline(); ok && before.Before(deadline) {
		return ctx, func() {}
	}
	if later, ok := ctx.(*bounded); ok { // Its own end is later.
		return &bounded{Context: end, values: later.values}, func() {}
	}
	if ctx.Done() == nil {
		return &bounded{Context: end, values: ctx}, func() {}
	}
	// Only one channel can say that a context has ended: that of a context of its own.
	either, abort := context.WithCancel(ctx)
	stop := context.AfterFunc(end, abort)
	return &dated{Context: either, caller: ctx, deadline: deadline}, func() {
		stop()
		abort()
	}
}

// end returns the context that those who begin now end with.
func (g *Group) end() context.Context {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shared == nil || now.After(g.fresh) {
		shared, cancel := context.WithTimeout(context.Background(), g.atLeast+g.grain)
		context.AfterFunc(shared, cancel)
		g.shared, g.fresh = shared, now.Add(g.grain)
	}
	return g.shared
}

// bounded is a context that ends by itself, with the values of another.
type bounded struct {
	context.Context

	values context.Context //nolint:containedctx // It is one itself.
}

// Value implements [context.Context].
func (b *bounded) Value(key any) any { return b.values.Value(key) }

// AfterFunc lets package context do without a goroutine for contexts made from this one.
func (b *bounded) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(b.Context, f) }

// dated is a context that ends with its caller's, or at its deadline.
type dated struct {
	context.Context

	caller   context.Context //nolint:containedctx // It is one itself.
	deadline time.Time
}

// Deadline implements [context.Context].
func (d *dated) Deadline() (time.Time, bool) { return d.deadline, true }

// Err implements [context.Context].
func (d *dated) Err() error {
	if d.Context.Err() == nil {
		return nil
	}
	if err := d.caller.Err(); err != nil || time.Now().Before(d.deadline) {
		return d.Context.Err()
	}
	return context.DeadlineExceeded
}
