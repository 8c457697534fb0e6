package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/lock"
)

// tokensGrow: L1, over releases, expiry and processes.
func (s *suite) tokensGrow() {
	a, b := s.locker(), s.locker()
	k, other := key("k"), key("other")
	last := int64(0)
	for i := range 12 {
		l := a
		if i%2 == 1 {
			l = b
		}
		o := lock.Options{Wait: patience}
		if i%3 == 0 {
			o.TTL, o.NoRenewal = lock.MinTTL, true
		}
		keys := []string{k}
		if i%4 == 0 {
			keys = []string{other, k, k}
		}
		h := s.acquire(l, o, keys...)
		if got := h.Token(k); got <= last {
			s.Fatalf("token %d after %d", got, last)
		}
		last = h.Token(k)
		if i%3 == 0 {
			<-h.Context().Done() // It is left to expire.
			continue
		}
		s.release(h)
	}
}

func (s *suite) allOrNothing() {
	l := s.locker()
	x, y := key("x"), key("y")
	h := s.acquire(l, lock.Options{}, y)
	s.refused(l, x, y)
	s.release(s.acquire(l, lock.Options{}, x))
	s.release(h)
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
	b, _ := s.open()
	l := lock.New(b, lock.LockerOptions{})
	k := key("k")
	h := s.acquire(l, lock.Options{}, k)
	began := time.Now()
	_, err := l.Acquire(s.ctx(), []string{k}, lock.Options{Wait: 150 * time.Millisecond})
	if took := time.Since(began); !errors.Is(err, lock.ErrHeld) || took < 150*time.Millisecond {
		s.Errorf("%v after %s; want ErrHeld after 150ms", err, took)
	}
	if n := s.waiting(b, k); n != 0 {
		s.Errorf("%d still wait", n)
	}
	s.release(h)
	s.release(s.acquire(l, lock.Options{}, k))
}

// inOrder: those who wait are served in the order in which they came, across processes. A process that the machine did not
// let say that it is alive loses its place; so there is more than one try, which chance would hardly pass.
func (s *suite) inOrder() {
	b, _ := s.open()
	lockers := []*lock.Locker{lock.New(b, lock.LockerOptions{}), s.locker()}
	var order []int
	for range count(3, 1) {
		if order = s.line(b, lockers); slices.IsSorted(order) {
			return
		}
	}
	s.Errorf("granted in the order %v", order)
}

// line lets eight wait for one key, and returns the order in which they are granted.
func (s *suite) line(b lock.Backend, lockers []*lock.Locker) (order []int) {
	s.Helper()
	k := key("k")
	h := s.acquire(lockers[0], lock.Options{}, k)
	const n = 8
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range n {
		c := s.async(s.ctx(), lockers[i%2], lock.Options{Wait: patience}, k)
		s.eventually("the request is in line", func() bool { return s.waiting(b, k) == i+1 })
		all.Go(func() {
			r := <-c
			if r.err != nil {
				s.Error(r.err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if err := r.held.Release(s.ctx()); err != nil {
				s.Error(err)
			}
		})
	}
	s.refused(lockers[0], k)
	s.release(h)
	all.Wait()
	if len(order) != n {
		s.Errorf("granted: %v", order)
	}
	return order
}

// contenders: exclusion, growing tokens and no lost wake-up under 64 contenders on one key.
func (s *suite) contenders() {
	lockers := []*lock.Locker{s.locker(), s.locker()}
	k := key("k")
	const n = 64
	rounds := count(3, 50)
	var inside atomic.Int32
	var last atomic.Int64
	var all sync.WaitGroup
	ctx, cancel := context.WithTimeout(s.Context(), 4*patience)
	defer cancel()
	for i := range n {
		all.Go(func() {
			for range rounds {
				h, err := lockers[i%2].Acquire(ctx, []string{k}, lock.Options{Wait: lock.Forever})
				if err != nil {
					s.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					s.Error("two are inside")
				}
				if before := last.Swap(h.Token(k)); before >= h.Token(k) {
					s.Errorf("token %d after %d", h.Token(k), before)
				}
				inside.Add(-1)
				if err := h.Release(ctx); err != nil {
					s.Error(err)
				}
			}
		})
	}
	began := time.Now()
	all.Wait()
	s.Logf("%.0f hand-overs a second", float64(n*rounds)/time.Since(began).Seconds())
}

// opposingOrders: whoever names the same keys in another order is in nobody's way for ever.
func (s *suite) opposingOrders() {
	lockers := []*lock.Locker{s.locker(), s.locker()}
	keys := make([]string, 6)
	for i := range keys {
		keys[i] = key(fmt.Sprint("k", i))
	}
	inside := make([]atomic.Int32, len(keys))
	var all sync.WaitGroup
	ctx, cancel := context.WithTimeout(s.Context(), 4*patience)
	defer cancel()
	for i := range 16 {
		seed := s.rng.Uint64()
		all.Go(func() {
			rng := newRand(seed)
			for range count(6, 200) {
				chosen := rng.Perm(len(keys))[:2+rng.IntN(3)]
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
				}
				for _, c := range chosen {
					inside[c].Add(-1)
				}
				if err := h.Release(ctx); err != nil {
					s.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// sixtyFourKeys: single keys out of 64 and all of them at once exclude each other.
func (s *suite) sixtyFourKeys() {
	lockers := []*lock.Locker{s.locker(), s.locker()}
	keys := make([]string, 64)
	for i := range keys {
		keys[i] = key(fmt.Sprint("k", i))
	}
	inside := make([]atomic.Int32, len(keys))
	last := make([]atomic.Int64, len(keys))
	ctx, cancel := context.WithTimeout(s.Context(), 4*patience)
	defer cancel()
	var all sync.WaitGroup
	for i := range 16 {
		seed := s.rng.Uint64()
		all.Go(func() {
			rng := newRand(seed)
			for round := range count(6, 200) {
				low, high := 0, len(keys)
				if (round+i)%6 != 0 {
					low = rng.IntN(len(keys))
					high = low + 1
				}
				h, err := lockers[i%2].Acquire(ctx, keys[low:high], lock.Options{Wait: lock.Forever})
				if err != nil {
					s.Error(err)
					return
				}
				for k := low; k < high; k++ {
					if inside[k].Add(1) != 1 {
						s.Errorf("two hold key %d", k)
					}
					if before := last[k].Swap(h.Token(keys[k])); before >= h.Token(keys[k]) {
						s.Errorf("key %d: token %d after %d", k, h.Token(keys[k]), before)
					}
				}
				for k := low; k < high; k++ {
					inside[k].Add(-1)
				}
				if err := h.Release(ctx); err != nil {
					s.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// noStarvation: a request for two keys gets them although others keep taking them one by one.
func (s *suite) noStarvation() {
	l, other := s.locker(), s.locker()
	x, y := key("x"), key("y")
	ctx, cancel := context.WithCancel(s.Context())
	var all sync.WaitGroup
	for i := range 4 {
		k := []string{x, y}[i%2]
		all.Go(func() {
			for ctx.Err() == nil {
				h, err := other.Acquire(ctx, []string{k}, lock.Options{Wait: lock.Forever})
				if err != nil {
					return // The test is over.
				}
				_ = h.Release(ctx) // Under a cancelled context, too.
			}
		})
	}
	for range 5 {
		s.release(s.acquire(l, lock.Options{Wait: lock.Forever}, x, y))
	}
	cancel()
	all.Wait()
}

// cancelled: whatever the point at which a caller goes, nothing is left behind but what expires.
func (s *suite) cancelled() {
	b, _ := s.open()
	l := lock.New(b, lock.LockerOptions{})
	k := key("k")
	for i := range count(60, 1000) {
		h := s.acquire(l, lock.Options{Wait: patience}, k)
		ctx, cancel := context.WithCancel(s.ctx())
		c := s.async(ctx, l, lock.Options{Wait: patience}, k)
		s.pause(s.Context(), time.Duration(s.rng.IntN(12000))*time.Microsecond)
		if i%2 == 0 {
			cancel()
			s.release(h)
		} else {
			go cancel()
			s.release(h)
		}
		r := s.await(c)
		if r.err == nil {
			s.release(r.held)
		} else if !errors.Is(r.err, context.Canceled) {
			s.Fatalf("round %d: %v", i, r.err)
		}
		cancel()
	}
	if n := s.waiting(b, k); n != 0 {
		s.Errorf("%d still wait", n)
	}
	s.release(s.acquire(l, lock.Options{Wait: patience}, k))
}

func (s *suite) closing() {
	b, stop := s.open()
	l, other := lock.New(b, lock.LockerOptions{}), s.locker()
	k := key("k")
	h := s.acquire(other, lock.Options{}, k)
	c := s.async(s.ctx(), l, lock.Options{Wait: lock.Forever}, k)
	s.eventually("the request is in line", func() bool { return s.waiting(b, k) == 1 })
	stop()
	if r := s.await(c); !errors.Is(r.err, lock.ErrClosed) {
		s.Errorf("the waiter got %v", r.err)
	}
	if _, err := l.Acquire(s.ctx(), []string{key("free")}, lock.Options{}); !errors.Is(err, lock.ErrClosed) {
		s.Errorf("acquire after close: %v", err)
	}
	s.release(h)
	// The waiter may be leaving the line still, where that takes a message.
	s.release(s.acquire(other, lock.Options{Wait: lock.Forever}, k))
}
