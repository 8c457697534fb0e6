package redislock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tally"
	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/locktest"
)

// contendAt tells the processes of TestNoLostWakeUp where the server is.
const contendAt = "FAIRLEAD_TEST_CONTEND_AT"

func TestContender(t *testing.T) {
	locktest.Contend(t, func() lock.Backend {
		return open(t, os.Getenv(contendAt), Options{})
	})
}

func TestNoLostWakeUp(t *testing.T) {
	server := testredis.Start(t)
	locktest.WakeUps(t, "TestContender", contendAt+"="+server.Addr())
}

// A server whose clock is a day from the process's decides as any other.
func TestConformanceWithAWrongClock(t *testing.T) {
	t.Parallel()
	only := []string{ // In a short run: what has to do with time.
		"WaitLimit", "DeadHolderIsReplaced", "DeadWaiterIsPassedOver", "RenewalNeverRevives", "MaximumHold", "Histories",
	}
	if os.Getenv("FAIRLEAD_TORTURE") == "1" {
		only = nil
	}
	for name, by := range map[string]string{"ahead": " + 86400000", "behind": " - 86400000"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			locktest.Run(t, func(t *testing.T) locktest.Harness {
				t.Helper()
				h := harness(t, func(tb testing.TB) testredis.Conn { tb.Helper(); return testredis.Rueidis.Open(tb, server.Addr()) })
				for _, open := range []*func() (lock.Backend, func()){&h.Open, &h.OpenDoomed} {
					*open = skewed(t, *open, by)
				}
				return h
			}, only...)
		})
	}
}

// skewed opens backends whose scripts take the server's clock for one that is wrong by some milliseconds.
func skewed(t *testing.T, open func() (lock.Backend, func()), by string) func() (lock.Backend, func()) {
	t.Helper()
	const (
		clock = "clock[1] * 1000000 + clock[2]"
		id    = "'*'"
	)
	clocks := strings.NewReplacer(
		clock, clock+by+" * 1000", id, "string.format('%.0f-*', (function(t) return t[1] * 1000 + math.floor(t[2] / 1000)"+by+" end)(redis.call('TIME')))",
	)
	return func() (lock.Backend, func()) {
		b, stop := open()
		found := 0
		mine := b.(*Backend) //nolint:errcheck,forcetypeassert // The harness makes no others.
		mine.scripts = newScripts(func(name string) string {
			text := source(name)
			found += strings.Count(text, clock) + strings.Count(text, id)
			return clocks.Replace(text)
		})
		if found < 2 {
			t.Fatalf("the scripts ask for the time in %d places", found)
		}
		return b, stop
	}
}

// whileMoving returns a context that ends when nobody has called moved for as long as [patience]. However much there is to do, and however
// slow the machine, something moves.
func whileMoving(t *testing.T) (ctx context.Context, moved func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stuck := time.AfterFunc(patience, cancel)
	t.Cleanup(func() {
		stuck.Stop()
		cancel()
	})
	return ctx, func() { stuck.Reset(patience) }
}

// Scripts that the server has forgotten are sent again, whoever is waiting meanwhile.
func TestScriptFlush(t *testing.T) {
	t.Parallel()
	testredis.Each(t, scriptFlush)
}

func scriptFlush(t *testing.T, l testredis.Library) { //nolint:thelper // It is the test.
	server := testredis.Start(t)
	admin := connect(t, server.Addr())
	a, other := openBy(t, l, server.Addr(), Options{}), openBy(t, l, server.Addr(), Options{})
	ctx, moved := whileMoving(t)
	var all sync.WaitGroup
	for i := range 8 {
		b := []*Backend{a, other}[i%2]
		all.Go(func() {
			for range 25 {
				g, err := b.Acquire(ctx, request(10*time.Second, lock.Forever, "k"))
				if err != nil {
					t.Error(err)
					return
				}
				testwait.Check(t, testwait.Err(b.Renew(ctx, g.ID, 0)))
				testwait.Check(t, b.Release(ctx, lock.Grant{ID: g.ID}))
				moved()
			}
		})
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	for flushed := 0; ; flushed++ {
		select {
		case <-done:
			if flushed == 0 {
				t.Error("the scripts were never flushed")
			}
			return
		default:
		}
		testwait.Must(t, admin.Do(t.Context(), admin.B().ScriptFlush().Build()).Error())
		pause(t, 2*time.Millisecond)
	}
}

// A wake-up that nobody hears costs as long as a look: the waiting request is found granted by the next one.
func TestLostNotification(t *testing.T) {
	t.Parallel()
	testredis.Each(t, lostNotification)
}

func lostNotification(t *testing.T, l testredis.Library) { //nolint:thelper // It is the test.
	server := testredis.Start(t)
	admin := connect(t, server.Addr())
	var seen counts
	b, other := openBy(t, l, server.Addr(), Options{}), openBy(t, l, server.Addr(), Options{Observer: &seen})
	var worst time.Duration
	for range 5 {
		g := acquire(t, b, request(time.Minute, 0, "k"))
		r := request(time.Minute, lock.Forever, "k")
		granted := make(chan error, 1)
		go func() {
			g, err := other.Acquire(t.Context(), r)
			if err == nil {
				err = other.Release(t.Context(), lock.Grant{ID: g.ID})
			}
			granted <- err
		}()
		hears(t, b, other)
		// Who releases is told of another process, and so nobody hears of the grant.
		deaf := admin.B().Hset().Key(b.space+":w:"+r.ID).FieldValue().FieldValue("proc", "nobody").Build()
		testwait.Must(t, admin.Do(t.Context(), deaf).Error())
		released := time.Now()
		testwait.Must(t, b.Release(t.Context(), lock.Grant{ID: g.ID}))
		select {
		case err := <-granted:
			testwait.Must(t, err)
		case <-time.After(patience):
			t.Fatal("nobody looked")
		}
		worst = max(worst, time.Since(released))
	}
	t.Logf("found after %s at most", worst)
	if seen.found.Load() == 0 { // Of those whose places in line were kept by a slow machine.
		t.Error("no fallback was counted")
	}
}

// Where nothing can be subscribed to, locks are handed over all the same, by looking more often.
func TestSubscriptionRefused(t *testing.T) {
	t.Parallel()
	testredis.Each(t, subscriptionRefused)
}

func subscriptionRefused(t *testing.T, l testredis.Library) { //nolint:thelper // It is the test.
	server := testredis.Start(t)
	admin := connect(t, server.Addr())
	testwait.Must(t, admin.Do(t.Context(), admin.B().Arbitrary("ACL", "SETUSER", "default", "resetchannels").Build()).Error())
	var seen counts
	b, other := openBy(t, l, server.Addr(), Options{Observer: &seen}), openBy(t, l, server.Addr(), Options{Observer: &seen})
	ctx, moved := whileMoving(t)
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			b := []*Backend{b, other}[i%2]
			for range 5 {
				g, err := b.Acquire(ctx, request(10*time.Second, lock.Forever, "k"))
				if err != nil {
					t.Error(err)
					return
				}
				testwait.Check(t, b.Release(ctx, lock.Grant{ID: g.ID}))
				moved()
			}
		})
	}
	all.Wait()
	if b.hearing.Load() || other.hearing.Load() || seen.blind.Load() == 0 {
		t.Errorf("notifications arrived that the server refuses, or %d fallbacks were counted", seen.blind.Load())
	}
}

// A replica takes over that has not heard of the newest grants. What it knows of goes on, tokens go on growing, and who
// holds what it does not know of is told, and refused by a fence.
func TestReplicaTakesOver(t *testing.T) { //nolint:tparallel // One after the other: they are many.
	t.Parallel()
	for i := range testwait.Count(1, 50) {
		t.Run(fmt.Sprint(i), replicaTakesOver)
	}
}

func replicaTakesOver(t *testing.T) {
	counted := testwait.Recorder(t)
	first := testredis.Start(t)
	second := testredis.Start(t, "--replicaof", strings.ReplaceAll(first.Addr(), ":", " "))
	replica := connect(t, second.Addr())
	relay := testredis.NewRelay(t, first.Addr())
	b, other := open(t, relay.Addr(), Options{}), open(t, relay.Addr(), Options{})
	l := lock.New(b, lock.LockerOptions{})

	known, err := l.Acquire(t.Context(), []string{"known"}, lock.Options{TTL: patience})
	testwait.Must(t, err)
	eventually(t, "the replica knows of the lock", func() bool {
		n, err := replica.Do(t.Context(), replica.B().Exists().Key(b.space+":h:known").Build()).AsInt64()
		return err == nil && n == 1
	})
	// From now on it hears nothing more.
	testwait.Must(t, replica.Do(t.Context(), replica.B().Arbitrary("REPLICAOF", "NO", "ONE").Build()).Error())
	unknown, err := l.Acquire(t.Context(), []string{"unknown"}, lock.Options{TTL: 3 * time.Second})
	testwait.Must(t, err)
	began := time.Now()
	counted.Fault(tally.RedisFailedOver, began)
	first.Kill()
	relay.Turn(second.Addr())
	// A request that is made for the first time takes another way through the script than one that is repeated.
	eventually(t, "the other is connected", func() bool {
		_, _, err := other.client.Get(t.Context(), "x")
		return err == nil
	})
	g := acquire(t, other, request(time.Minute, lock.Forever, "unknown"))
	counted.Answered(began, time.Now(), true)
	if g.Tokens["unknown"] <= unknown.Token("unknown") {
		t.Errorf("token %d after %d", g.Tokens["unknown"], unknown.Token("unknown"))
	}
	select {
	case <-unknown.Context().Done():
	case <-time.After(patience):
		t.Fatal("the holder was not told")
	}
	if cause := context.Cause(unknown.Context()); !errors.Is(cause, lock.ErrLost) {
		t.Errorf("cause %v", cause)
	}
	connected(t, b, "unknown")
	if err := unknown.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("release of a lock that is another's: %v", err)
	}
	testwait.Check(t, other.Release(t.Context(), lock.Grant{ID: g.ID}))
	if _, err := other.Acquire(t.Context(), request(time.Second, 0, "known")); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("what the replica knew of: %v, want ErrHeld", err)
	}
	if known.Context().Err() != nil {
		t.Errorf("lost: %v", context.Cause(known.Context()))
	}
	testwait.Check(t, known.Release(t.Context()))
}

func TestFind(t *testing.T) {
	t.Parallel()
	b := alone(t)
	if _, ok, err := b.Find(t.Context(), "k"); ok || err != nil {
		t.Errorf("found what nobody holds: %v", err)
	}
	g := acquire(t, b, request(time.Minute, 0, "k", "l"))
	h, ok, err := b.Find(t.Context(), "l")
	late := h.ExpiresAt.Sub(g.ExpiresAt) // The server counts leases in whole milliseconds.
	if err != nil || !ok || h.ID != g.ID || h.Owner != g.Owner || h.Tokens["k"] != g.Tokens["k"] || late < -time.Millisecond || late > 5*time.Millisecond {
		t.Errorf("found %+v, %v, %v; want %+v", h, ok, err, g)
	}
	testwait.Check(t, b.Release(t.Context(), lock.Grant{ID: g.ID}))
}
