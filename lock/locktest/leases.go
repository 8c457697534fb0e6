package locktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/lock"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) } //nolint:gosec // Repeatable, not secret.

// replacement is the promise of L3 beyond the TTL; a short run may be on a machine that does much else.
func replacement() time.Duration { return time.Duration(count(15, 2)) * time.Second }

func (s *suite) deadHolder() {
	doomed, stop := s.open()
	l := s.locker()
	k := key("k")
	const ttl = 700 * time.Millisecond
	began := time.Now()
	// It is granted, and its process is never heard of again.
	if _, err := doomed.Acquire(s.ctx(), request(ttl, 0, k)); err != nil {
		s.Fatal(err)
	}
	c := s.async(s.ctx(), l, lock.Options{Wait: patience}, k)
	stop()
	r := s.await(c)
	if r.err != nil {
		s.Fatal(r.err)
	}
	if took := r.at.Sub(began); took < ttl-lock.Margin(ttl) || took > ttl+replacement() {
		s.Errorf("replaced after %s; want after the TTL of %s, and within 2s of it", took, ttl)
	}
	s.release(r.held)
}

// request is one without a locker.
func request(ttl, wait time.Duration, keys ...string) lock.Request {
	return lock.Request{ID: uuid.Must(uuid.NewV7()).String(), Keys: keys, Owner: uuid.NewString(), TTL: ttl, Wait: wait}
}

// deadWaiter: who is behind waiters whose process died gets the lock within 2 s of its release.
func (s *suite) deadWaiter() {
	b, _ := s.open()
	l := lock.New(b, lock.LockerOptions{})
	silent, stop := s.openSilent()
	k := key("k")
	h := s.acquire(l, lock.Options{}, k)
	dead := s.async(s.ctx(), lock.New(silent, lock.LockerOptions{}), lock.Options{Wait: lock.Forever}, k)
	s.eventually("the doomed request is in line", func() bool { return s.waiting(b, k) == 1 })
	c := s.async(s.ctx(), l, lock.Options{Wait: patience}, k)
	s.eventually("the other is behind it", func() bool { return s.waiting(b, k) == 2 })
	stop()
	s.release(h)
	began := time.Now()
	r := s.await(c)
	if r.err != nil {
		s.Fatal(r.err)
	}
	if took := r.at.Sub(began); took > replacement() {
		s.Errorf("granted %s after the release", took)
	}
	s.release(r.held)
	if r := s.await(dead); r.err == nil {
		s.Error("the dead one was granted")
	}
}

// openSilent opens a backend whose requests leave no word when it stops.
func (s *suite) openSilent() (lock.Backend, func()) {
	s.Helper()
	if s.h.OpenDoomed == nil {
		s.Skip("the harness can't let a backend die")
	}
	return s.h.OpenDoomed(s.T)
}

// inTime tries what a machine spoils that stalls for most of a lease, as holders rightly give up then; a try tells whether
// it was in time. Three that were not are the holder's fault.
func (s *suite) inTime(try func() bool) {
	s.Helper()
	for range 3 {
		if try() {
			return
		}
		s.Log("the machine was too slow for the lease")
	}
	s.Fatal("not in time in any of three tries")
}

func (s *suite) renewed() {
	l, other := s.locker(), s.locker()
	s.inTime(func() bool {
		k := key("k")
		h := s.acquire(l, lock.Options{TTL: time.Second}, k)
		s.pause(h.Context(), 2500*time.Millisecond)
		_, err := other.Acquire(s.ctx(), []string{k}, lock.Options{})
		released := h.Release(s.ctx())
		cause := context.Cause(h.Context())
		if errors.Is(cause, lock.ErrUnrenewed) {
			return false
		}
		if !errors.Is(cause, lock.ErrReleased) || released != nil || !errors.Is(err, lock.ErrHeld) {
			s.Errorf("it ended by %v, and its release with %v; another got %v", cause, released, err)
		}
		return true
	})
}

// cutoff is a backend whose renewals can be made to fail.
type cutoff struct {
	lock.Backend

	cut    atomic.Bool
	failed atomic.Int32
}

var errCut = errors.New("cut off")

// Renew implements [lock.Backend].
func (c *cutoff) Renew(ctx context.Context, id string, ttl time.Duration) (lock.Grant, error) {
	if c.cut.Load() {
		c.failed.Add(1)
		return lock.Grant{}, errCut
	}
	return c.Backend.Renew(ctx, id, ttl)
}

// lostRenewals: L3, the holder knows before the next is granted; and what only fails for a while is not lost.
func (s *suite) lostRenewals() {
	b, _ := s.open()
	c := &cutoff{Backend: b}
	l, other := lock.New(c, lock.LockerOptions{}), s.locker()
	const ttl = 1200 * time.Millisecond
	for range count(2, 50) {
		k := key("k")
		var h *lock.Held
		s.inTime(func() bool {
			h = s.acquire(l, lock.Options{TTL: ttl, Wait: patience}, k)
			c.cut.Store(true)
			failed := c.failed.Load()
			s.eventually("two renewals fail", func() bool { return c.failed.Load() >= failed+2 || h.Context().Err() != nil })
			c.cut.Store(false)
			s.pause(h.Context(), ttl)
			switch cause := context.Cause(h.Context()); {
			case cause == nil:
				return true
			case !errors.Is(cause, lock.ErrUnrenewed):
				s.Fatalf("lost although renewals succeed again: %v", cause)
			}
			_ = h.Release(s.ctx()) // Lost or not: it may just not have expired.
			return false
		})

		c.cut.Store(true)
		next := s.async(s.ctx(), other, lock.Options{Wait: patience}, k)
		knew := told(h.Context(), patience)
		if cause := context.Cause(h.Context()); !errors.Is(cause, lock.ErrUnrenewed) || !errors.Is(cause, lock.ErrLost) {
			s.Errorf("cause %v", cause)
		}
		r := s.await(next)
		if r.err != nil {
			s.Fatal(r.err)
		}
		if !knew.Before(r.at) {
			s.Errorf("the next was granted %s before the holder knew", knew.Sub(r.at))
		}
		s.release(r.held)
		if err := h.Release(s.ctx()); !errors.Is(err, lock.ErrLost) {
			s.Errorf("release of a lost lock: %v", err)
		}
		c.cut.Store(false)
	}
}

// told waits for the end of a lock's context, or for a limit, and returns when its holder knew. What the machine was late
// by meanwhile in waking who asked for it, at worst, is taken off: of a process that does not run nothing is promised.
func told(ctx context.Context, limit time.Duration) time.Time {
	const nap = 2 * time.Millisecond
	timer := time.NewTimer(nap)
	defer timer.Stop()
	late, now := time.Duration(0), time.Now()
	for end := now.Add(limit); ctx.Err() == nil && now.Before(end); timer.Reset(nap) {
		began := now
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		now = time.Now()
		late = max(late, now.Sub(began)-nap)
	}
	return now.Add(-late)
}

// noRevival: a renewal that comes too late does not make a lock again, taken over or not.
func (s *suite) noRevival() {
	b, _ := s.open()
	k := key("k")
	r := request(lock.MinTTL, 0, k)
	g, err := b.Acquire(s.ctx(), r)
	if err != nil {
		s.Fatal(err)
	}
	s.pause(s.Context(), 2*lock.MinTTL)
	if _, err := b.Renew(s.ctx(), g.ID, 0); !errors.Is(err, lock.ErrLost) {
		s.Errorf("renewal of an expired lock: %v", err)
	}
	if err := b.Release(s.ctx(), g.ID); !errors.Is(err, lock.ErrLost) {
		s.Errorf("release of an expired lock: %v", err)
	}
	if err := b.Release(s.ctx(), uuid.NewString()); !errors.Is(err, lock.ErrLost) {
		s.Errorf("release of what never was: %v", err)
	}
	// In time it does, for as long as before, or as is said.
	r = request(time.Minute, 0, k)
	if g, err = b.Acquire(s.ctx(), r); err != nil {
		s.Fatal(err)
	}
	again, err := b.Renew(s.ctx(), g.ID, 0)
	if err != nil || again.ExpiresAt.Sub(g.ExpiresAt) > 30*time.Second || again.ExpiresAt.Before(g.ExpiresAt) || again.Tokens[k] != g.Tokens[k] {
		s.Errorf("renewed %+v, %v", again, err)
	}
	longer, err := b.Renew(s.ctx(), g.ID, time.Hour)
	if err != nil || longer.ExpiresAt.Sub(again.ExpiresAt) < 50*time.Minute {
		s.Errorf("renewed %+v, %v", longer, err)
	}
	if err := b.Release(s.ctx(), g.ID); err != nil {
		s.Error(err)
	}
}

func (s *suite) ownRelease() {
	l, other := s.locker(), s.locker()
	k := key("k")
	old := s.acquire(l, lock.Options{TTL: lock.MinTTL, NoRenewal: true}, k)
	h := s.acquire(other, lock.Options{Wait: patience}, k)
	if err := old.Release(s.ctx()); !errors.Is(err, lock.ErrLost) {
		s.Errorf("release of a lost lock: %v", err)
	}
	s.refused(l, k)
	s.release(h)
	if err := h.Release(s.ctx()); err != nil {
		s.Errorf("the second release: %v", err)
	}
}

func (s *suite) cancelledRelease() {
	l := s.locker()
	k := key("k")
	ctx, cancel := context.WithCancel(s.ctx())
	h, err := l.Acquire(ctx, []string{k}, lock.Options{})
	if err != nil {
		s.Fatal(err)
	}
	cancel()
	if err := h.Release(ctx); err != nil {
		s.Fatal(err)
	}
	s.release(s.acquire(l, lock.Options{}, k))
}

func (s *suite) maxHold() {
	l, other := s.locker(), s.locker()
	s.inTime(func() bool {
		k := key("k")
		began := time.Now()
		h := s.acquire(l, lock.Options{TTL: 600 * time.Millisecond, MaxHold: time.Second}, k)
		next := s.async(s.ctx(), other, lock.Options{Wait: patience, MaxHold: time.Minute}, k)
		<-h.Context().Done()
		held, cause := time.Since(began), context.Cause(h.Context())
		s.release(s.granted(next))
		if errors.Is(cause, lock.ErrUnrenewed) {
			return false
		}
		if !errors.Is(cause, lock.ErrHeldTooLong) {
			s.Errorf("cause %v", cause)
		}
		if held < 800*time.Millisecond || held > time.Duration(count(10000, 1100))*time.Millisecond {
			s.Errorf("held for %s", held)
		}
		return true
	})
}

func (s *suite) fenced() {
	if s.h.Fence == nil {
		s.Skip("the backend has no fence")
	}
	l, other := s.locker(), s.locker()
	k := key("k")
	old := s.acquire(l, lock.Options{TTL: lock.MinTTL, NoRenewal: true}, k)
	write := func(h *lock.Held, want error) {
		s.Helper()
		if err := s.h.Fence(s.ctx(), k, h.Token(k)); !errors.Is(err, want) {
			s.Errorf("a write at token %d: %v, want %v", h.Token(k), err, want)
		}
	}
	write(old, nil)
	h := s.acquire(other, lock.Options{Wait: patience}, k)
	write(old, nil) // No newer token has been seen yet.
	write(h, nil)
	write(old, lock.ErrStaleToken)
	write(h, nil)
	s.release(h)
	write(h, nil)
	write(old, lock.ErrStaleToken)
}
