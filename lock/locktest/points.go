package locktest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/lock"
)

// countdown is a context that ends when it is looked at for the n-th time. Whoever honours a context looks at it before
// and after each step that may take long; so the numbers from one on are all points at which a caller may go.
type countdown struct {
	context.Context //nolint:containedctx // It is one.

	left atomic.Int64
	done chan struct{}
}

func newCountdown(n int) *countdown {
	// Nothing that is cancelled is beneath: what ends it is the count alone.
	c := &countdown{Context: context.Background(), done: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

func (c *countdown) look() {
	if c.left.Add(-1) == 0 {
		close(c.done)
	}
}

func (c *countdown) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

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

// cancelledEverywhere: the caller goes at each point at which its request looks, with the key free, and with the key
// held and handed over. What is granted in spite of it is held by nobody for longer than its TTL.
func (s *suite) cancelledEverywhere() {
	b, _ := s.open()
	l, other := lock.New(b, lock.LockerOptions{}), s.locker()
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
	var first *lock.Held
	if held {
		first = s.acquire(other, lock.Options{}, k)
		o.Wait = lock.Forever
	}
	ctx := newCountdown(n)
	r := s.async(ctx, l, o, k)
	if held {
		s.release(first)
	}
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
	s.release(s.acquire(other, lock.Options{Wait: patience}, k))
	return got.err == nil && !ctx.over()
}

// shortLeases: leases shorter than any interval at which somebody looks are kept or are known to be lost, and end in
// time for those who wait. A lease or maximum hold too short to be of use is refused.
func (s *suite) shortLeases() {
	l, other := s.locker(), s.locker()
	if _, err := l.Acquire(s.ctx(), []string{key("k")}, lock.Options{TTL: lock.MinTTL - 1}); !errors.Is(err, lock.ErrInvalid) {
		s.Errorf("a TTL below the minimum: %v", err)
	}
	b, _ := s.open()
	for _, hold := range []time.Duration{-1, 1, time.Microsecond, lock.MinTTL - 1} {
		if _, err := l.Acquire(s.ctx(), []string{key("k")}, lock.Options{MaxHold: hold}); !errors.Is(err, lock.ErrInvalid) {
			s.Errorf("a maximum hold of %s: %v", hold, err)
		}
		r := lock.Request{ID: uuid.NewString(), Keys: []string{key("k")}, Owner: "o", TTL: time.Second, MaxHold: hold}
		if _, err := b.Acquire(s.ctx(), r); !errors.Is(err, lock.ErrInvalid) {
			s.Errorf("a maximum hold of %s, asked of the backend: %v", hold, err)
		}
	}
	late, rounds := 0, count(6, 100)
	for i := range rounds {
		if !s.shortLease(l, other, lock.Options{TTL: lock.MinTTL, NoRenewal: i%2 == 1}) {
			late++
		}
	}
	s.Logf("%d of %d grants came too late", late, rounds)
	if late == rounds {
		s.Error("no grant came within its lease")
	}
}

// shortLease reports false where a grant took longer than its lease to get here.
func (s *suite) shortLease(l, other *lock.Locker, o lock.Options) bool {
	s.Helper()
	k := key("k")
	began := time.Now()
	h, err := l.Acquire(s.ctx(), []string{k}, o)
	if errors.Is(err, lock.ErrLost) && time.Since(began) >= o.TTL {
		return false
	}
	if err != nil {
		s.Fatal(err)
	}
	next := s.async(s.ctx(), other, lock.Options{TTL: lock.MinTTL, Wait: patience}, k)
	limit := 4 * lock.MinTTL
	if o.NoRenewal {
		limit = patience // It ends by itself.
	}
	knew := told(h.Context(), limit)
	lost := h.Context().Err() != nil
	switch {
	case !lost && o.NoRenewal:
		s.Fatal("a lease that nobody renews is trusted for ever")
	case !lost:
		// So short a lease may end as it is released.
		if err := h.Release(s.ctx()); err != nil && !errors.Is(err, lock.ErrLost) {
			s.Error(err)
		}
	case !errors.Is(context.Cause(h.Context()), lock.ErrLost):
		s.Errorf("cause %v", context.Cause(h.Context()))
	}
	r := s.await(next)
	if errors.Is(r.err, lock.ErrLost) {
		return false
	}
	if r.err != nil {
		s.Fatal(r.err)
	}
	if lost && !knew.Before(r.at) {
		s.Errorf("the next was granted %s before the holder knew", knew.Sub(r.at))
	}
	if err := r.held.Release(s.ctx()); err != nil && !errors.Is(err, lock.ErrLost) {
		s.Error(err)
	}
	return true
}

// hung is a backend that renews, and does not answer for a long time, whatever its context says.
type hung struct {
	lock.Backend

	answers chan struct{}
}

// Renew implements [lock.Backend].
func (h hung) Renew(ctx context.Context, id string, ttl time.Duration) (lock.Grant, error) {
	g, err := h.Backend.Renew(ctx, id, ttl)
	<-h.answers
	return g, err
}

// hungRenewal: a holder whose renewal hangs knows in time that the lock may be lost.
func (s *suite) hungRenewal() {
	b, _ := s.open()
	h := hung{b, make(chan struct{})}
	l, other := lock.New(h, lock.LockerOptions{}), s.locker()
	k := key("k")
	held := s.acquire(l, lock.Options{TTL: 400 * time.Millisecond}, k)
	next := s.async(s.ctx(), other, lock.Options{Wait: patience}, k)
	knew := told(held.Context(), patience)
	if cause := context.Cause(held.Context()); !errors.Is(cause, lock.ErrUnrenewed) {
		s.Errorf("cause %v", cause)
	}
	r := s.await(next)
	if r.err != nil {
		s.Fatal(r.err)
	}
	if !knew.Before(r.at) {
		s.Errorf("the next was granted %s before the holder knew", knew.Sub(r.at))
	}
	close(h.answers)
	if err := held.Release(s.ctx()); !errors.Is(err, lock.ErrLost) {
		s.Errorf("release of a lost lock: %v", err)
	}
	s.release(r.held)
}
