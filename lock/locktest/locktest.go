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
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/conformance"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// Harness is a store that the tests have for themselves.
type Harness struct {
	// Open returns one more backend on the store, as another process would have it. It is a [lock.Inspector], and is closed by
	// the returned function, or at the test's end.
	Open func() (b lock.Backend, stop func())
	// OpenDoomed opens a backend whose stop function crashes it: nothing is said any more, and nothing is undone.
	OpenDoomed func() (b lock.Backend, stop func())
	// Fence does a guarded write to a resource, in a transaction of its own. Nil: histories have no such writes.
	Fence func(ctx context.Context, resource string, token int64) error
	// LeavesGrants says that a request which is called off at the moment of its grant may leave the lock held until the lease
	// ends, as where the caller is not told what the store has done.
	LeavesGrants bool
	// BehindDeadWaiter names the promise of how long a request that is behind a dead process's waits after a release, where the
	// backend promises more than to replace dead holders.
	BehindDeadWaiter string
}

func tests() conformance.Suite[*suite] {
	of := conformance.NewTrial[*suite]
	return conformance.Suite[*suite]{
		of("TokensGrow", "L1", "tokens of a key grow over releases, expiry and two processes", (*suite).tokensGrow),
		of("AllOrNothing", "L1", "a request for several keys gets all of them or none", (*suite).allOrNothing),
		of("WaitLimit", "L1", "a request gives up at its wait limit, and leaves nothing behind", (*suite).waitLimit),
		of("InOrderOfAsking", "L1", "eight requests of two processes are granted in the order of asking", (*suite).inOrder),
		of("ContendersOnOneKey", "L1", "64 contenders never hold one key together", (*suite).contenders),
		of("ManyKeysInOpposingOrders", "L1", "requests for the same keys in different orders exclude each other and get on", (*suite).opposingOrders),
		of("SixtyFourKeys", "L1", "single keys and all 64 at once exclude each other", (*suite).sixtyFourKeys),
		of("ManyKeysDoNotStarve", "L1", "a request for two keys gets them while others keep taking one", (*suite).noStarvation),
		of("CancelledAtRandomMoments", "L3", "callers leave at any moment, and no lock and no place in line is left over", (*suite).cancelled),
		of("CancelledAtEveryPoint", "L3", "a caller leaves at each point at which its request looks, and the key becomes free", (*suite).cancelledEverywhere),
		of("DeadHolderIsReplaced", "L3", "the next waiter is granted a dead holder's lock within TTL + 2 s, and not before the TTL", (*suite).deadHolder),
		of("DeadWaiterIsPassedOver", "L3", "a waiter behind a dead one is granted after the release", (*suite).deadWaiter),
		of("LostRenewalsEndTheContextInTime", "L3", "a holder whose renewals fail knows before the next is granted", (*suite).lostRenewals),
		of("ShortLeases", "L3", "the shortest leases are kept, or known to be lost in time", (*suite).shortLeases),
		of("RenewalNeverRevives", "L3", "a renewal that comes too late revives nothing", (*suite).noRevival),
		of("ReleaseFreesItsOwnOnly", "L3", "a late release frees no lock but its own", (*suite).ownRelease),
		of("MaximumHold", "L3", "a lock ends at its maximum hold", (*suite).maxHold),
		of("DeadlockRings", "L4", "each ring of 2 to 8 owners is broken within 1 s, with one victim that is told the cycle", (*suite).rings),
		of("DeadlockOfManyKeys", "L4", "cycles that share owners are broken with no more victims than necessary", (*suite).knot),
		of("NoFalseVictims", "L4", "owners that only wait for each other are no victims", (*suite).noFalseVictims),
		of("HolderOvertakesThoseWhoWaitForIt", "L4", "a holder is not kept from a free key by those who wait for it", (*suite).overtaking),
		of("NestedLocksHaveOneOwner", "L4", "locks taken under a lock have its owner, and their deadlocks are found", (*suite).nested),
		of("FenceRefusesOldTokens", "L2", "a guarded write with an older token is refused once a newer one was seen", (*suite).fenced),
		of("ClosingAnswersWaiters", "L3", "a process that closes answers its waiters, and leaves no place in line", (*suite).closing),
		of("ElectionsHandOver", "D1", "candidates lead in turns, and each term is greater than the one before", (*suite).elections),
		of("ElectionsObserved", "D1", "an observer sees each leader, and terms only grow", (*suite).observed),
		of("ElectionsRun", "D1 L3", "one leads at a time, and a dead leader is replaced within TTL + 2 s", (*suite).leading),
		of("Histories", "L1 L2", "histories of concurrent clients fit a sequential lock", (*suite).histories),
	}
}

// Checks lists what the suite has, in order.
func Checks() []conformance.Check { return tests().Checks() }

// Run runs the suite, or only those of its checks that are named. Each check gets a harness of its own.
func Run[T conformance.Test[T]](t T, harness func(t T) Harness, only ...string) {
	t.Helper()
	conformance.Run(t, tests(), func(t T, _ conformance.Check) *suite {
		t.Parallel()
		s := &suite{TB: t, h: harness(t)}
		s.rng, s.seed = testwait.Rand(t)
		return s
	}, only...)
}

// suite is one check.
type suite struct {
	conformance.TB

	h    Harness
	rng  *rand.Rand // for the check's own goroutine
	seed uint64
}

// newRand is for one of a test's other goroutines.
func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) } //nolint:gosec // Repeatable, not secret.

// process opens one more backend, as another process would.
func (s *suite) process() (lock.Backend, *lock.Locker) {
	s.Helper()
	b, _ := s.h.Open()
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
const patience = testwait.Patience

func (s *suite) ctx() context.Context {
	s.Helper()
	return testwait.Context(s.TB, patience)
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
	ctx := s.ctx()
	for {
		h, err := l.Acquire(ctx, keys, o)
		if tooLate(o.TTL, err) {
			continue
		}
		testwait.Must(s.TB, err)
		return h
	}
}

// tooLate reports whether the shortest lease was over before its holder heard of it, as happens on a busy machine.
func tooLate(ttl time.Duration, err error) bool {
	return ttl == lock.MinTTL && errors.Is(err, lock.ErrLost)
}

func (s *suite) release(all ...*lock.Held) {
	s.Helper()
	for _, h := range all {
		testwait.Must(s.TB, h.Release(s.ctx()))
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
	testwait.Eventually(s.TB, patience, what, ok)
}

// waiting counts the requests that are in line for one of the keys, or for any key where none is named. Other tests may
// share what is behind the backend.
func (s *suite) waiting(b lock.Backend, keys ...string) int {
	s.Helper()
	snapshot, err := b.(lock.Inspector).Snapshot(s.ctx()) //nolint:errcheck,forcetypeassert // As [Harness] says.
	testwait.Must(s.TB, err)
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
	testwait.Must(s.TB, r.err)
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
