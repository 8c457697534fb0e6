package locktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// tokensGrow: over releases, expiry and processes.
func (s *suite) tokensGrow() {
	lockers := []*lock.Locker{s.locker(), s.locker()}
	k, other := key("k"), key("other")
	last := int64(0)
	for i := range 12 {
		o, keys := lock.Options{Wait: patience}, []string{k}
		if i%3 == 0 {
			o.TTL, o.NoRenewal = lock.MinTTL, true
		}
		if i%4 == 0 {
			keys = []string{other, k, k}
		}
		h := s.acquire(lockers[i%2], o, keys...)
		if h.Token(k) <= last {
			s.Fatalf("token %d after %d", h.Token(k), last)
		}
		last = h.Token(k)
		if o.NoRenewal {
			<-h.Context().Done() // It is left to expire.
		} else {
			s.release(h)
		}
	}
}

func (s *suite) allOrNothing() {
	l := s.locker()
	x, y := key("x"), key("y")
	h := s.acquire(l, lock.Options{}, y)
	s.refused(l, x, y)
	s.release(s.acquire(l, lock.Options{}, x), h)
	both := s.acquire(l, lock.Options{}, y, x)
	if len(both.Tokens()) != 2 {
		s.Errorf("tokens %v", both.Tokens())
	}
	s.refused(l, x)
	s.refused(l, y)
	s.release(both)
	s.release(s.acquire(l, lock.Options{}, x))
}

func (s *suite) waitLimit() {
	b, l := s.process()
	k := key("k")
	h := s.acquire(l, lock.Options{}, k)
	const limit = 150 * time.Millisecond
	began := time.Now()
	_, err := l.Acquire(s.ctx(), []string{k}, lock.Options{Wait: limit})
	if took := time.Since(began); !errors.Is(err, lock.ErrHeld) || took < limit {
		s.Errorf("%v after %s; want ErrHeld after %s", err, took, limit)
	}
	if n := s.waiting(b, k); n != 0 {
		s.Errorf("%d still wait", n)
	}
	s.release(h)
	s.release(s.acquire(l, lock.Options{}, k))
}

// inOrder: eight requests of two processes for one key are granted in the order in which they came.
func (s *suite) inOrder() {
	b, l := s.process()
	lockers := []*lock.Locker{l, s.locker()}
	sorted(s, func() []int64 {
		k := key("k")
		h := s.acquire(l, lock.Options{}, k)
		tokens := make([]int64, 8) // in the order of asking
		var all sync.WaitGroup
		for i := range tokens {
			c := s.next(lockers[i%2], k)
			s.inLine(b, k, i+1)
			all.Go(func() {
				r := <-c
				if r.err != nil {
					s.Error(r.err)
					return
				}
				tokens[i] = r.held.Token(k)
				s.is("release", r.held.Release(s.ctx()), nil)
			})
		}
		s.refused(l, k)
		s.release(h)
		all.Wait()
		return tokens
	})
}

// exclusive lets workers of two processes take keys and release them, again and again. It checks that no two hold a key at
// once, that each key's tokens grow, and that no wake-up is lost. choose gives the keys of one round of a worker, by index.
func (s *suite) exclusive(workers, rounds int, keys []string, choose func(rng *rand.Rand, worker, round int) []int) {
	lockers := []*lock.Locker{s.locker(), s.locker()}
	inside, last := make([]atomic.Int32, len(keys)), make([]atomic.Int64, len(keys))
	var all sync.WaitGroup
	ctx := testwait.Context(s.TB, 4*patience)
	began := time.Now()
	for i := range workers {
		seed := s.rng.Uint64()
		all.Go(func() {
			rng := newRand(seed)
			for round := range rounds {
				chosen := choose(rng, i, round)
				names := make([]string, len(chosen))
				for j, c := range chosen {
					names[j] = keys[c]
				}
				h, err := lockers[i%2].Acquire(ctx, names, lock.Options{Wait: lock.Forever})
				if err != nil {
					s.Error(err)
					return
				}
				for _, c := range chosen {
					if inside[c].Add(1) != 1 {
						s.Errorf("two hold key %d", c)
					}
					if before := last[c].Swap(h.Token(keys[c])); before >= h.Token(keys[c]) {
						s.Errorf("key %d: token %d after %d", c, h.Token(keys[c]), before)
					}
				}
				for _, c := range chosen {
					inside[c].Add(-1)
				}
				s.is("release", h.Release(ctx), nil)
			}
		})
	}
	all.Wait()
	s.Logf("%.0f locks a second", float64(workers*rounds)/time.Since(began).Seconds())
}

func (s *suite) contenders() {
	s.exclusive(64, testwait.Count(3, 50), newKeys(1), func(*rand.Rand, int, int) []int { return []int{0} })
}

// opposingOrders: requests for the same keys, named in different orders, do not block each other for ever.
func (s *suite) opposingOrders() {
	s.exclusive(16, testwait.Count(6, 200), newKeys(6), func(rng *rand.Rand, _, _ int) []int {
		return rng.Perm(6)[:2+rng.IntN(3)]
	})
}

// sixtyFourKeys: single keys out of 64 and all of them at once exclude each other.
func (s *suite) sixtyFourKeys() {
	s.exclusive(16, testwait.Count(6, 200), newKeys(64), func(rng *rand.Rand, worker, round int) []int {
		if (round+worker)%6 == 0 {
			return rng.Perm(64)
		}
		return []int{rng.IntN(64)}
	})
}

// noStarvation: a request for two keys gets them although others keep taking them one by one.
func (s *suite) noStarvation() {
	l, other := s.locker(), s.locker()
	keys := newKeys(2)
	ctx, cancel := context.WithCancel(s.Context())
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				h, err := other.Acquire(ctx, keys[i%2:i%2+1], lock.Options{Wait: lock.Forever})
				if err != nil {
					return // The test is over.
				}
				_ = h.Release(ctx) // Under a cancelled context, too.
			}
		})
	}
	for range 5 {
		s.release(s.acquire(l, lock.Options{Wait: lock.Forever}, keys...))
	}
	cancel()
	all.Wait()
}

// cancelled: callers leave at any moment, also while others leave, and no lock stays with nobody, nor anybody in line.
func (s *suite) cancelled() {
	b, l := s.process()
	lockers := []*lock.Locker{l, s.locker()}
	const workers = 8
	shared, own := newKeys(4), newKeys(workers)
	var granted, left atomic.Int64
	var all sync.WaitGroup
	end, ttl := time.Now().Add(time.Duration(testwait.Count(2, 60))*time.Second), time.Hour
	if s.h.LeavesGrants {
		ttl = 5 * time.Second
	}
	for i := range workers {
		rng := newRand(s.rng.Uint64())
		all.Go(func() {
			for time.Now().Before(end) || (granted.Load() == 0 || left.Load() == 0) && s.Context().Err() == nil && !s.Failed() {
				k := own[i] // It is free, or soon will be.
				if rng.IntN(2) == 0 {
					k = shared[rng.IntN(len(shared))]
				}
				limit := time.Duration(rng.IntN(10_000)) * time.Microsecond
				if rng.IntN(8) == 0 { // Someone has the time that it takes.
					limit = time.Minute
				}
				ctx, cancel := context.WithTimeout(s.Context(), limit)
				h, err := lockers[i%2].Acquire(ctx, []string{k}, lock.Options{Wait: lock.Forever, TTL: ttl})
				switch {
				case err == nil:
					granted.Add(1)
					s.is("release", h.Release(ctx), nil)
				case errors.Is(err, context.DeadlineExceeded):
					left.Add(1)
				default:
					s.Error(err)
				}
				cancel()
			}
		})
	}
	all.Wait()
	s.Logf("%d were granted, %d called off", granted.Load(), left.Load())
	if granted.Load() == 0 || left.Load() == 0 {
		s.Error("nothing was tried")
	}
	for _, k := range slices.Concat(shared, own) {
		s.free(l, k)
		s.eventually("nobody waits", func() bool { return s.waiting(b, k) == 0 })
	}
}

func (s *suite) closing() {
	b, stop := s.h.Open()
	l, other := lock.New(b, lock.LockerOptions{}), s.locker()
	k := key("k")
	h := s.acquire(other, lock.Options{}, k)
	c := s.async(s.ctx(), l, lock.Options{Wait: lock.Forever}, k)
	s.inLine(b, k, 1)
	stop()
	s.is("the waiter", s.await(c).err, lock.ErrClosed)
	_, err := l.Acquire(s.ctx(), []string{key("free")}, lock.Options{})
	s.is("acquire after close", err, lock.ErrClosed)
	s.release(h)
	s.free(other, k) // The waiter may be leaving the line still, where that takes a message.
}
