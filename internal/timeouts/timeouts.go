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
	d := &dated{caller: ctx, shared: end, deadline: deadline}
	return d, d.cancel
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

// dated is a context that ends with its caller's, at its deadline, or when it is cancelled. Only one channel can say so, and
// making one takes longer than all the rest; as most calls look at the deadline only, it is made for who asks for it.
type dated struct {
	caller, shared context.Context //nolint:containedctx // It is one itself.
	deadline       time.Time

	mu     sync.Mutex
	either context.Context //nolint:containedctx // Ends with both; nil until somebody asks for it.
	abort  func()          // ends either
	err    error           // of the end, if there was one before somebody asked for either
}

// Deadline implements [context.Context].
func (d *dated) Deadline() (time.Time, bool) { return d.deadline, true }

// Done implements [context.Context].
func (d *dated) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.either == nil {
		either, abort := context.WithCancelCause(d.caller)
		stop := context.AfterFunc(d.shared, func() { abort(context.DeadlineExceeded) })
		d.either, d.abort = either, func() {
			stop()
			abort(nil)
		}
		if d.err != nil {
			d.abort()
		}
	}
	return d.either.Done()
}

// Err implements [context.Context].
func (d *dated) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = d.why()
	}
	return d.err
}

// why tells what has ended it, which may have been nothing yet.
func (d *dated) why() error {
	if err := d.caller.Err(); err != nil {
		return err
	}
	if d.either == nil {
		return d.shared.Err()
	}
	if err := d.either.Err(); err == nil || time.Now().Before(d.deadline) {
		return err
	}
	return context.DeadlineExceeded
}

// Value implements [context.Context]. Package context asks it for what contexts that are made from this one end with.
func (d *dated) Value(key any) any {
	d.mu.Lock()
	from := d.either
	d.mu.Unlock()
	if from == nil {
		from = d.caller
	}
	return from.Value(key)
}

func (d *dated) cancel() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		if d.err = d.why(); d.err == nil {
			d.err = context.Canceled
		}
	}
	if d.either != nil {
		d.abort()
	}
}
