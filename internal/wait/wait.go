// Package wait has what code that waits and holds leases shares: a sleep that a context interrupts, a loop that connects
// again, and contexts that compare the clock whenever they are asked whether they have ended.
package wait

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	mathrand "math/rand/v2"
	"time"
)

// For sleeps for d, and reports whether ctx is still alive then.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// The pauses between two sessions.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = 5 * time.Second
)

// Reconnect calls session again whenever it returns, until ctx ends. The pauses grow, begin anew after a session that lasted, and
// depend by half on chance, so that many processes do not come back together. lost receives why each session has ended, and when
// the next one begins.
func Reconnect(ctx context.Context, session func() error, lost func(err error, in time.Duration)) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		began := time.Now()
		err := session()
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > maxPause {
			pause = firstPause
		}
		in := Jitter(pause)
		lost(err, in)
		For(ctx, in)
	}
}

// Jitter returns a pause of d but for half of it by chance, so that many that wait do not go on together. The chance needs no
// secrecy; it comes from crypto/rand because tests can say what that returns (testing/cryptotest).
func Jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d/2 + time.Duration(mathrand.New(source{}).Int64N(int64(d))) //nolint:gosec // Its source is crypto/rand.
}

type source struct{}

// Uint64 implements [mathrand.Source].
func (source) Uint64() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // It never fails.
	return binary.LittleEndian.Uint64(b[:])
}

// Sparing is the pause before the next look at everything, after one that took so long: a second, or ten times as long, so that such looks take a tenth of the
// time at most.
func Sparing(took time.Duration) time.Duration { return max(time.Second, 10*took) }

// Every calls f at once, and again whenever d has passed or wake has a value, until ctx ends. wake may be nil. It calls f once for
// what comes at one moment.
func Every(ctx context.Context, d time.Duration, wake <-chan struct{}, f func()) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		f()
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-wake:
		}
		// Of what is ready at one moment, select takes any. The end comes first, and one call is for all of the rest.
		if ctx.Err() != nil {
			return
		}
		select {
		case <-tick.C:
		default:
		}
		select {
		case <-wake:
		default:
		}
	}
}

// Signal puts a value into a channel that has room for one, unless one is there.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// lease calls look before each answer.
type lease struct {
	context.Context

	look func()
}

// Lease returns a context that calls look before it says whether it has ended. A timer alone is late after the process was
// stopped: the holder's goroutine may run first, and must not believe that it still holds the lease. look cancels ctx when the
// lease is over by the clock. It may be called concurrently, and must not use the returned context. A context derived from the
// returned one compares the clock when it is made, and ends by the timer after that.
func Lease(ctx context.Context, look func()) context.Context {
	return &lease{Context: ctx, look: look}
}

// Done implements [context.Context].
func (c *lease) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

// Err implements [context.Context].
func (c *lease) Err() error {
	c.look()
	return c.Context.Err()
}

// Value implements [context.Context]. [context.Cause] asks it for what the context has ended with.
func (c *lease) Value(key any) any {
	c.look()
	return c.Context.Value(key)
}
