// Package locktest is the conformance suite of lock backends: every backend of package lock passes the same one.
//
// [Run] tries what package lock promises on real servers, through two backends on one store, as two processes would have
// them: tokens that grow, exclusion and order under contention, many keys in opposing orders, cancellation at random
// points, expiry, lost renewals, deadlocks, and histories of concurrent operations against a sequential model. Random
// choices come from a seed that failures print, and that FAIRLEAD_SEED sets again. FAIRLEAD_TORTURE=1 makes the counts
// those of a long run.
package locktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/lock"
)

// Harness is a store that the tests have for themselves.
type Harness struct {
	// Open returns one more backend on the store, as another process would have it. It is closed by the returned function,
	// or at the test's end.
	Open func(t testing.TB) (b lock.Backend, stop func())
	// OpenDoomed is Open of a backend that stop lets die: without a word, and without anything being undone. Nil: there is
	// no such thing.
	OpenDoomed func(t testing.TB) (b lock.Backend, stop func())
	// Fence does a guarded write to a resource, in a transaction of its own. Nil: the backend has no fence.
	Fence func(ctx context.Context, resource string, token int64) error
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
		{"RenewalKeepsTheLock", (*suite).renewed},
		{"LostRenewalsEndTheContextInTime", (*suite).lostRenewals},
		{"HungRenewalEndsTheContextInTime", (*suite).hungRenewal},
		{"ShortLeases", (*suite).shortLeases},
		{"RenewalNeverRevives", (*suite).noRevival},
		{"ReleaseFreesItsOwnOnly", (*suite).ownRelease},
		{"ReleaseUnderCancelledContext", (*suite).cancelledRelease},
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
			s.rng, s.seed = seeded(t)
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

// torture reports whether the long counts are asked for.
func torture() bool { return os.Getenv("FAIRLEAD_TORTURE") == "1" }

// count is a number of repetitions.
func count(normal, long int) int {
	if torture() {
		return long
	}
	return normal
}

func seeded(t *testing.T) (*rand.Rand, uint64) {
	t.Helper()
	seed := rand.Uint64() //nolint:gosec // A seed of a test.
	if given := os.Getenv("FAIRLEAD_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("FAIRLEAD_SEED=%d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0)), seed //nolint:gosec // Repeatable, not secret.
}

// locker opens one more process.
func (s *suite) locker() *lock.Locker {
	s.Helper()
	return lock.New(s.backend(), lock.LockerOptions{})
}

func (s *suite) backend() lock.Backend {
	s.Helper()
	b, _ := s.open()
	return b
}

func (s *suite) open() (lock.Backend, func()) {
	s.Helper()
	return s.h.Open(s.T)
}

// key is a name that is new.
func key(prefix string) string { return prefix + "-" + uuid.NewString() }

// patience bounds what should be quick on an idle machine, and may run on a busy one.
const patience = 30 * time.Second

func (s *suite) ctx() context.Context {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	s.Cleanup(cancel)
	return ctx
}

func (s *suite) acquire(l *lock.Locker, o lock.Options, keys ...string) *lock.Held {
	s.Helper()
	h, err := l.Acquire(s.ctx(), keys, o)
	if err != nil {
		s.Fatal(err)
	}
	return h
}

func (s *suite) release(h *lock.Held) {
	s.Helper()
	if err := h.Release(s.ctx()); err != nil {
		s.Fatal(err)
	}
}

// refused fails unless the keys are held by another.
func (s *suite) refused(l *lock.Locker, keys ...string) {
	s.Helper()
	h, err := l.Acquire(s.ctx(), keys, lock.Options{})
	if !errors.Is(err, lock.ErrHeld) {
		s.Errorf("acquire %q: %v, %v; want ErrHeld", keys, h, err)
	}
}

// eventually polls until ok holds.
func (s *suite) eventually(what string, ok func() bool) {
	s.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			s.Fatalf("%s: not within %s", what, patience)
		}
		s.pause(s.Context(), 3*time.Millisecond)
	}
}

// pause lets time pass, or returns early when ctx ends.
func (s *suite) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// waiting counts the requests that are in line for one of the keys, or for any key where none is named, if the backend
// can tell. Other tests may share what is behind the backend.
func (s *suite) waiting(b lock.Backend, keys ...string) int {
	s.Helper()
	i, ok := b.(lock.Inspector)
	if !ok {
		s.Skip("the backend can't be looked into")
	}
	snapshot, err := i.Snapshot(s.ctx())
	if err != nil {
		s.Fatal(err)
	}
	n := 0
	for _, w := range snapshot.Waiters {
		if len(keys) == 0 || slices.ContainsFunc(w.Keys, func(k string) bool { return slices.Contains(keys, k) }) {
			n++
		}
	}
	return n
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

func (s *suite) granted(c <-chan result) *lock.Held {
	s.Helper()
	r := s.await(c)
	if r.err != nil {
		s.Fatal(r.err)
	}
	return r.held
}
