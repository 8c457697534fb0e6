package locktest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/lock"
)

// countdown is a context that ends when it is looked at for the n-th time. Code that honours a context looks at it before
// and after each step that may take long; so the numbers from one on are all points at which a caller may leave.
type countdown struct {
	context.Context //nolint:containedctx // It is one. Nothing beneath it is cancelled: the count alone ends it.

	left atomic.Int64
	done chan struct{}
}

func newCountdown(n int) *countdown {
	c := &countdown{Context: context.Background(), done: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

func (c *countdown) look() {
	if c.left.Add(-1) == 0 {
		close(c.done)
	}
}

func (c *countdown) over() bool { return c.left.Load() <= 0 }

// Done implements [context.Context].
func (c *countdown) Done() <-chan struct{} {
	c.look()
	return c.done
}

// Err implements [context.Context].
func (c *countdown) Err() error {
	c.look()
	if c.over() {
		return context.Canceled
	}
	return nil
}

// maxPoints bounds the points at which a request looks at its context.
const maxPoints = 400

// cancelledEverywhere: the caller leaves at each point at which its request looks, with the key free, and with the key
// held and handed over. A lock that is granted in spite of that is held for no longer than its TTL.
func (s *suite) cancelledEverywhere() {
	b, l := s.process()
	other := s.locker()
	for _, held := range []bool{false, true} {
		points := 0
		// The last points are those that a request passes by chance alone, as goroutines take turns.
		for calm := 0; calm < 5 && points < maxPoints; points++ {
			if s.cancelAt(l, other, points+1, held) {
				calm++
			} else {
				calm = 0
			}
		}
		if points < 8 || points == maxPoints {
			s.Errorf("held %v: the request looks at its context %d times", held, points)
		}
		s.Logf("held %v: cancelled at each of %d points", held, points)
	}
	s.eventually("nobody waits", func() bool { return s.waiting(b) == 0 })
}

// cancelAt ends a request's context at its n-th look, and reports whether the request was faster.
func (s *suite) cancelAt(l, other *lock.Locker, n int, held bool) bool {
	s.Helper()
	k := key("k")
	o := lock.Options{TTL: 2 * time.Second}
	var first []*lock.Held
	if held {
		first = append(first, s.acquire(other, lock.Options{}, k))
		o.Wait = lock.Forever
	}
	ctx := newCountdown(n)
	r := s.async(ctx, l, o, k)
	s.release(first...)
	got := s.await(r)
	switch {
	case got.err == nil:
		// The context may have ended since.
		if err := got.held.Release(ctx); err != nil && !errors.Is(err, lock.ErrLost) {
			s.Fatalf("point %d: release: %v", n, err)
		}
	case !errors.Is(got.err, context.Canceled):
		s.Fatalf("point %d: %v", n, got.err)
	}
	s.free(other, k)
	return got.err == nil && !ctx.over()
}
