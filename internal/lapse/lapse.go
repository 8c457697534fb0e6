// Package lapse makes contexts of leases that compare the clock whenever they are asked whether they have ended. A timer alone
// is late after the process was stopped: the holder's goroutine may run first, and must not be told that it holds the lease.
package lapse

import "context"

// lapsing asks before it answers.
type lapsing struct {
	context.Context

	look func()
}

// Context returns ctx, which calls look before it tells whether it has ended. Look cancels ctx when the lease is over by the
// clock; it may be called concurrently, and must not ask the context that is returned. A context made from the returned one
// compares the clock when it is made, and ends by the timer after that.
func Context(ctx context.Context, look func()) context.Context {
	return &lapsing{Context: ctx, look: look}
}

// Done implements [context.Context].
func (c *lapsing) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

// Err implements [context.Context].
func (c *lapsing) Err() error {
	c.look()
	return c.Context.Err()
}

// Value implements [context.Context]. [context.Cause] asks it for what the context has ended with.
func (c *lapsing) Value(key any) any {
	c.look()
	return c.Context.Value(key)
}
