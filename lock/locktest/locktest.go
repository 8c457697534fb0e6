// Package locktest is the conformance suite of lock backends: every backend of package lock passes the same one.
//
// [Run] tests what package lock promises on real servers, through two backends on one store, as two processes would have
// them: growing tokens, exclusion and order under contention, many keys in opposing orders, cancellation at random
// points, expiry, lost renewals, deadlocks, and histories of concurrent operations against a sequential model. Random
// choices come from a seed that failures print, and that FAIRLEAD_SEED sets again. FAIRLEAD_TORTURE=1 makes the counts
// those of a long run. Of what is promised with a time, package testpromise judges the time.
package locktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// Harness is a store that the tests have for themselves.
type Harness struct {
	// Open returns one more backend on the store, as another process would have it. It is a [lock.Inspector], and is closed by
	// the returned function, or at the test's end.
	Open func(t testing.TB) (b lock.Backend, stop func())
	// OpenDoomed opens a backend whose stop function crashes it: nothing is said any more, and nothing is undone.
	OpenDoomed func(t testing.TB) (b lock.Backend, stop func())
	// Fence does a guarded write to a resource, in a transaction of its own. Nil: histories have no such writes.
	Fence func(ctx context.Context, resource string, token int64) error
	// LeavesGrants says that a request which is called off at the moment of its grant may leave the lock held until the lease
	// ends, as where the caller is not told what the store has done.
	LeavesGrants bool
	// BehindDeadWaiter names the promise of how long a request that is behind a dead process's waits after a release, where the
	// backend promises more than to replace dead holders.
	BehindDeadWaiter string
}

// Run runs the suite, or only those of its tests that are named. Each test gets a harness of its own.
func Run(t *testing.T, harness func(t *testing.T) Harness, only ...string) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(*suite)
	}{
		{"TokensGrow", (*suite).tokensGrow},
		{"AllOrNothing", (*suite).allOrNothing},
		{"WaitLimit", (*suite).waitLimit},
		{"InOrderOfAsking", (*suite).inOrder},
		{"ContendersOnOneKey", (*suite).contenders},
		{"ManyKeysInOpposingOrders", (*suite).opposingOrders},
		{"SixtyFourKeys", (*suite).sixtyFourKeys},
		{"ManyKeysDoNotStarve", (*suite).noStarvation},
		{"CancelledAtRandomMoments", (*suite).cancelled},
		{"CancelledAtEveryPoint", (*suite).cancelledEverywhere},
		{"DeadHolderIsReplaced", (*suite).deadHolder},
		{"DeadWaiterIsPassedOver", (*suite).deadWaiter},
		{"LostRenewalsEndTheContextInTime", (*suite).lostRenewals},
		{"ShortLeases", (*suite).shortLeases},
		{"RenewalNeverRevives", (*suite).noRevival},
		{"ReleaseFreesItsOwnOnly", (*suite).ownRelease},
		{"MaximumHold", (*suite).maxHold},
		{"DeadlockRings", (*suite).rings},
		{"DeadlockOfManyKeys", (*suite).knot},
		{"NoFalseVictims", (*suite).noFalseVictims},
		{"HolderOvertakesThoseWhoWaitForIt", (*suite).overtaking},
		{"NestedLocksHaveOneOwner", (*suite).nested},
		{"FenceRefusesOldTokens", (*suite).fenced},
		{"ClosingAnswersWaiters", (*suite).closing},
		{"ElectionsHandOver", (*suite).elections},
		{"ElectionsObserved", (*suite).observed},
		{"ElectionsRun", (*suite).leading},
		{"Histories", (*suite).histories},
	} {
		if len(only) > 0 && !slices.Contains(only, test.name) {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := &suite{T: t, h: harness(t)}
			s.rng, s.seed = testwait.Rand(t)
			test.run(s)
		})
	}
}

// suite is one test.
type suite struct {
	*testing.T

	h    Harness
	rng  *rand.Rand // for the test's own goroutine
	seed uint64
}

// newRand is for one of a test's other goroutines.
func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) } //nolint:gosec // Repeatable, not secret.

// process opens one more backend, as another process would.
func (s *suite) process() (lock.Backend, *lock.Locker) {
	s.Helper()
	b, _ := s.h.Open(s.T)
	return b, lock.New(b, lock.LockerOptions{})
}

func (s *suite) locker() *lock.Locker {
	s.Helper()
	_, l := s.process()
	return l
}

// key is a name that is new.
func key(prefix string) string { return prefix + "-" + uuid.NewString() }

func newKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = key(fmt.Sprint("k", i))
	}
	return keys
}

// patience bounds what should be quick on an idle machine, and may run on a busy one.
const patience = 30 * time.Second

func (s *suite) ctx() context.Context {
	s.Helper()
	return testwait.Context(s.T, patience)
}

// is fails the test unless an error is the one that it should be.
func (s *suite) is(what string, err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Errorf("%s: %v, want %v", what, err, want)
	}
}

func (s *suite) acquire(l *lock.Locker, o lock.Options, keys ...string) *lock.Held {
	s.Helper()
	h, err := l.Acquire(s.ctx(), keys, o)
	testwait.Must(s.T, err)
	return h
}

func (s *suite) release(all ...*lock.Held) {
	s.Helper()
	for _, h := range all {
		testwait.Must(s.T, h.Release(s.ctx()))
	}
}

// free fails the test unless the keys are free, or become so in time.
func (s *suite) free(l *lock.Locker, keys ...string) {
	s.Helper()
	s.release(s.acquire(l, lock.Options{Wait: patience}, keys...))
}

// refused fails the test unless another holds one of the keys.
func (s *suite) refused(l *lock.Locker, keys ...string) {
	s.Helper()
	_, err := l.Acquire(s.ctx(), keys, lock.Options{})
	s.is(fmt.Sprintf("acquire %q", keys), err, lock.ErrHeld)
}

func (s *suite) eventually(what string, ok func() bool) {
	s.Helper()
	testwait.Eventually(s.T, patience, what, ok)
}

// waiting counts the requests that are in line for one of the keys, or for any key where none is named. Other tests may
// share what is behind the backend.
func (s *suite) waiting(b lock.Backend, keys ...string) int {
	s.Helper()
	snapshot, err := b.(lock.Inspector).Snapshot(s.ctx()) //nolint:errcheck,forcetypeassert // As [Harness] says.
	testwait.Must(s.T, err)
	n := 0
	for _, w := range snapshot.Waiters {
		if len(keys) == 0 || slices.ContainsFunc(w.Keys, func(k string) bool { return slices.Contains(keys, k) }) {
			n++
		}
	}
	return n
}

// inLine waits until n requests are in line for a key.
func (s *suite) inLine(b lock.Backend, k string, n int) {
	s.Helper()
	s.eventually(fmt.Sprintf("%d are in line", n), func() bool { return s.waiting(b, k) == n })
}

// sorted runs what must have an order. A process that the machine kept from renewing its place in line loses that place.
// Therefore there is more than one try, and chance would hardly pass it.
func sorted[T cmp.Ordered](s *suite, try func() []T) {
	s.Helper()
	var order []T
	for range testwait.Count(3, 1) {
		if order = try(); slices.IsSorted(order) {
			return
		}
	}
	s.Errorf("in the order %v", order)
}

// result is how an acquisition in the background ended.
type result struct {
	held *lock.Held
	err  error
	at   time.Time
}

// async acquires in the background.
func (s *suite) async(ctx context.Context, l *lock.Locker, o lock.Options, keys ...string) <-chan result {
	c := make(chan result, 1)
	go func() {
		h, err := l.Acquire(ctx, keys, o)
		c <- result{h, err, time.Now()}
	}()
	return c
}

// next acquires in the background, as the next in line.
func (s *suite) next(l *lock.Locker, k string) <-chan result {
	s.Helper()
	return s.async(s.ctx(), l, lock.Options{Wait: patience}, k)
}

func (s *suite) await(c <-chan result) result {
	s.Helper()
	select {
	case r := <-c:
		return r
	case <-time.After(patience):
		s.Fatalf("no answer within %s", patience)
		return result{}
	}
}

// granted waits for a grant, ends it, and returns when it came.
func (s *suite) granted(c <-chan result) time.Time {
	s.Helper()
	r := s.await(c)
	testwait.Must(s.T, r.err)
	s.release(r.held)
	return r.at
}

// ended waits for the end of a lock's context, or for a limit, and returns when its holder knew of it. The delay with which
// the machine wakes a goroutine, at worst, is subtracted: nothing is promised of a process that does not run.
func ended(ctx context.Context, limit time.Duration) time.Time {
	now, late := nap(ctx, limit)
	return now.Add(-late)
}

// nap sleeps a little, again and again, until ctx ends or the limit is over. It returns the time, and by how much the machine
// was late in waking it, at worst.
func nap(ctx context.Context, limit time.Duration) (now time.Time, late time.Duration) {
	const span = 2 * time.Millisecond
	timer := time.NewTimer(span)
	defer timer.Stop()
	now = time.Now()
	for end := now.Add(limit); ctx.Err() == nil && now.Before(end); timer.Reset(span) {
		began := now
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		now = time.Now()
		late = max(late, now.Sub(began)-span)
	}
	return now, late
}

// knewFirst fails the test if the next in line was granted a lock before its holder knew that it had lost it.
func (s *suite) knewFirst(knew, granted time.Time) {
	s.Helper()
	if !knew.Before(granted) {
		s.Errorf("the next was granted %s before the holder knew", knew.Sub(granted))
	}
}
