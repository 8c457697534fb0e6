package locktest

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
	"github.com/fairlead-dev/fairlead/lock"
)

// request is one without a locker.
func request(ttl time.Duration, k string) lock.Request {
	return lock.Request{ID: uuid.Must(uuid.NewV7()).String(), Keys: []string{k}, Owner: uuid.NewString(), TTL: ttl}
}

// deadHolder: the next in line is granted a dead holder's lock when the lease has ended, and soon.
func (s *suite) deadHolder() {
	next := s.locker()
	const ttl = 700 * time.Millisecond
	testpromise.Check(s.TB, "lock-after-death", func() time.Duration {
		s.Helper()
		doomed, stop := s.h.Open()
		k := key("k")
		began := time.Now()
		// It is granted, and its process is never heard of again.
		_, err := doomed.Acquire(s.ctx(), request(ttl, k))
		testwait.Must(s.TB, err)
		c := s.next(next, k)
		stop()
		took := s.granted(c).Sub(began)
		if took < ttl-lock.Margin(ttl) {
			s.Errorf("replaced after %s; want after the TTL of %s", took, ttl)
		}
		return took - ttl
	})
}

// deadWaiter: a request behind waiters whose process crashed is granted soon after the release.
func (s *suite) deadWaiter() {
	b, l := s.process()
	// A dead waiter whose turn comes is a dead holder.
	testpromise.Check(s.TB, cmp.Or(s.h.BehindDeadWaiter, "lock-after-death"), func() time.Duration { return s.passDeadWaiter(b, l) })
}

func (s *suite) passDeadWaiter(b lock.Backend, l *lock.Locker) time.Duration {
	s.Helper()
	doomed, stop := s.h.OpenDoomed()
	k := key("k")
	h := s.acquire(l, lock.Options{}, k)
	dead := s.async(s.ctx(), lock.New(doomed, lock.LockerOptions{}), lock.Options{Wait: lock.Forever}, k)
	s.inLine(b, k, 1)
	c := s.next(l, k)
	s.inLine(b, k, 2)
	stop()
	s.release(h)
	began := time.Now()
	took := s.granted(c).Sub(began)
	if r := s.await(dead); r.err == nil {
		s.Error("the dead one was granted")
	}
	return took
}

// inTime runs a test that a machine spoils if it stalls for most of a lease, since holders rightly give up then. try reports
// whether it was in time; all of its times are to be made longer. If five tries are not, with leases that are sixteen times as long in the end, the holder is at
// fault.
func (s *suite) inTime(try func(longer func(time.Duration) time.Duration) bool) {
	s.Helper()
	for times := int64(1); times <= 16; times *= 2 {
		if try(func(d time.Duration) time.Duration { return time.Duration(times * int64(d)) }) {
			return
		}
		s.Logf("the machine was too slow for the lease, %d times as long as the first", times)
	}
	s.Fatal("not in time in any of five tries")
}

// cutoff is a backend whose renewals can be made to fail.
type cutoff struct {
	lock.Backend

	cut    atomic.Bool
	failed atomic.Int32
}

// Renew implements [lock.Backend].
func (c *cutoff) Renew(ctx context.Context, id string, ttl time.Duration) (lock.Grant, error) {
	if c.cut.Load() {
		c.failed.Add(1)
		return lock.Grant{}, errors.New("cut off")
	}
	return c.Backend.Renew(ctx, id, ttl)
}

// lostRenewals: renewals keep a lock, also if some fail for a while, and a holder whose renewals all fail knows before the next
// is granted.
func (s *suite) lostRenewals() {
	b, _ := s.process()
	c := &cutoff{Backend: b}
	l, other := lock.New(c, lock.LockerOptions{}), s.locker()
	for range testwait.Count(2, 50) {
		var k string
		var h *lock.Held
		s.inTime(func(longer func(time.Duration) time.Duration) bool {
			ttl := longer(1200 * time.Millisecond)
			k = key("k")
			h = s.acquire(l, lock.Options{TTL: ttl, Wait: patience}, k)
			c.cut.Store(true)
			failed := c.failed.Load()
			s.eventually("two renewals fail", func() bool { return c.failed.Load() >= failed+2 || h.Context().Err() != nil })
			c.cut.Store(false)
			wait.For(h.Context(), ttl)
			_, err := other.Acquire(s.ctx(), []string{k}, lock.Options{})
			switch cause := context.Cause(h.Context()); {
			case cause == nil:
				s.is("another's acquire", err, lock.ErrHeld)
				return true
			case !errors.Is(cause, lock.ErrUnrenewed):
				s.Fatalf("lost although renewals succeed again: %v", cause)
			}
			_ = h.Release(s.ctx()) // Lost or not: it may just not have expired.
			return false
		})
		c.cut.Store(true)
		next := s.next(other, k)
		knew := ended(h.Context(), patience)
		s.is("cause", context.Cause(h.Context()), lock.ErrUnrenewed)
		s.knewFirst(knew, s.granted(next))
		c.cut.Store(false)
		s.is("release of a lost lock", h.Release(s.ctx()), lock.ErrLost)
	}
}

// noRevival: a renewal that comes too late does not revive a lock, whether or not another has taken it over.
func (s *suite) noRevival() {
	b, _ := s.process()
	k := key("k")
	acquire := func(ttl time.Duration) lock.Grant {
		ctx := s.ctx()
		for {
			g, err := b.Acquire(ctx, request(ttl, k))
			if tooLate(ttl, err) {
				continue
			}
			testwait.Must(s.TB, err)
			return g
		}
	}
	g := acquire(lock.MinTTL)
	wait.For(s.Context(), 2*lock.MinTTL)
	_, err := b.Renew(s.ctx(), g.ID, 0)
	s.is("renewal of an expired lock", err, lock.ErrLost)
	s.is("release of an expired lock", b.Release(s.ctx(), g), lock.ErrLost)
	s.is("release of what never was", b.Release(s.ctx(), lock.Grant{ID: uuid.NewString()}), lock.ErrLost)
	old := g.ID
	g = acquire(time.Minute)
	_, err = b.Renew(s.ctx(), old, 0)
	s.is("renewal of an expired lock whose key another has", err, lock.ErrLost)
	// In time it does, for as long as before, or as is said.
	again, err := b.Renew(s.ctx(), g.ID, 0)
	if err != nil || again.ExpiresAt.Sub(g.ExpiresAt) > 30*time.Second || again.ExpiresAt.Before(g.ExpiresAt) || again.Tokens[k] != g.Tokens[k] {
		s.Errorf("renewed %+v, %v", again, err)
	}
	longer, err := b.Renew(s.ctx(), g.ID, time.Hour)
	if err != nil || longer.ExpiresAt.Sub(again.ExpiresAt) < 50*time.Minute {
		s.Errorf("renewed %+v, %v", longer, err)
	}
	s.is("release", b.Release(s.ctx(), lock.Grant{ID: g.ID}), nil)
}

// ownRelease: a release frees what its own acquisition holds and nothing else, also under a context that is cancelled.
func (s *suite) ownRelease() {
	l, other := s.locker(), s.locker()
	k := key("k")
	old := s.acquire(l, lock.Options{TTL: lock.MinTTL, NoRenewal: true}, k)
	ctx, cancel := context.WithCancel(s.ctx())
	defer cancel()
	h, err := other.Acquire(ctx, []string{k}, lock.Options{Wait: patience})
	testwait.Must(s.TB, err)
	s.is("release of a lost lock", old.Release(s.ctx()), lock.ErrLost)
	s.refused(l, k)
	cancel()
	testwait.Must(s.TB, h.Release(ctx))
	s.release(h, s.acquire(l, lock.Options{}, k)) // The second release returns what the first did.
}

func (s *suite) maxHold() {
	l, other := s.locker(), s.locker()
	s.inTime(func(longer func(time.Duration) time.Duration) bool {
		k := key("k")
		began := time.Now()
		h := s.acquire(l, lock.Options{TTL: longer(600 * time.Millisecond), MaxHold: longer(time.Second)}, k)
		next := s.async(s.ctx(), other, lock.Options{Wait: patience, MaxHold: time.Minute}, k)
		<-h.Context().Done()
		held, cause := time.Since(began), context.Cause(h.Context())
		s.granted(next)
		if errors.Is(cause, lock.ErrUnrenewed) {
			return false
		}
		s.is("cause", cause, lock.ErrHeldTooLong)
		if held < longer(800*time.Millisecond) {
			s.Errorf("held for %s", held)
		}
		return true
	})
}

func (s *suite) fenced() {
	if s.h.Fence == nil {
		s.Skip("there is no guarded write")
	}
	k := key("k")
	old := s.acquire(s.locker(), lock.Options{TTL: lock.MinTTL, NoRenewal: true}, k)
	write := func(h *lock.Held, want error) {
		s.Helper()
		s.is("a write", s.h.Fence(s.ctx(), k, h.Token(k)), want)
	}
	write(old, nil)
	h := s.acquire(s.locker(), lock.Options{Wait: patience}, k)
	write(old, nil) // No newer token has been seen yet.
	write(h, nil)
	write(old, lock.ErrStaleToken)
	write(h, nil)
	s.release(h)
	write(h, nil)
	write(old, lock.ErrStaleToken)
}

// shortLeases: leases shorter than any interval at which somebody looks are kept or are known to be lost, and end in
// time for those who wait. A lease or maximum hold too short to be of use is refused.
func (s *suite) shortLeases() {
	b, l := s.process()
	_, err := l.Acquire(s.ctx(), []string{key("k")}, lock.Options{TTL: lock.MinTTL - 1})
	s.is("a TTL below the minimum", err, lock.ErrInvalid)
	for _, hold := range []time.Duration{-1, 1, time.Microsecond, lock.MinTTL - 1} {
		_, err := l.Acquire(s.ctx(), []string{key("k")}, lock.Options{MaxHold: hold})
		s.is("a maximum hold of "+hold.String(), err, lock.ErrInvalid)
		r := request(time.Second, key("k"))
		r.MaxHold = hold
		_, err = b.Acquire(s.ctx(), r)
		s.is("the same, asked of the backend", err, lock.ErrInvalid)
	}
	other := s.locker()
	late, rounds := 0, testwait.Count(6, 100)
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
	testwait.Must(s.TB, err)
	next := s.async(s.ctx(), other, lock.Options{TTL: lock.MinTTL, Wait: patience}, k)
	limit := 4 * lock.MinTTL
	if o.NoRenewal {
		limit = patience // It ends by itself.
	}
	knew := ended(h.Context(), limit)
	lost := h.Context().Err() != nil
	// A lease so short may end while it is released.
	release := func(h *lock.Held) {
		if err := h.Release(s.ctx()); err != nil && !errors.Is(err, lock.ErrLost) {
			s.Error(err)
		}
	}
	switch {
	case !lost && o.NoRenewal:
		s.Fatal("a lease that nobody renews is trusted for ever")
	case !lost:
		release(h)
	default:
		s.is("cause", context.Cause(h.Context()), lock.ErrLost)
	}
	r := s.await(next)
	if errors.Is(r.err, lock.ErrLost) {
		return false
	}
	testwait.Must(s.TB, r.err)
	if lost {
		s.knewFirst(knew, r.at)
	}
	release(r.held)
	return true
}
