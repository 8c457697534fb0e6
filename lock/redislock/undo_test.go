package redislock

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/rediskit"
	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/redisclient"
)

// digest is what a script is called by that was sent before.
func digest(names ...string) string {
	var text strings.Builder
	for _, n := range names {
		text.WriteString(source(n))
	}
	sum := sha1.Sum([]byte(text.String()))
	return hex.EncodeToString(sum[:])
}

// Those that come into line and leave it do not prolong a lease, of none of the keys that a grant has.
func TestComingAndLeavingProlongsNothing(t *testing.T) {
	t.Parallel()
	for _, keys := range [][]string{{"k"}, {"k", "l"}, {"j", "k"}} {
		t.Run(strings.Join(keys, " and "), func(t *testing.T) {
			t.Parallel()
			dead, b := pair(t)
			g := acquire(t, dead, request(time.Minute, 0, keys...))
			for try := range 50 {
				if _, err := b.Acquire(t.Context(), request(time.Minute, time.Millisecond, "k")); !errors.Is(err, lock.ErrHeld) {
					t.Fatalf("try %d: %v, want ErrHeld", try, err)
				}
				h, ok, err := b.Find(t.Context(), "k")
				if late := h.ExpiresAt.Sub(g.ExpiresAt); err != nil || !ok || late > 5*time.Millisecond { // As in TestFind.
					t.Fatalf("try %d: the lease is longer by %v: %+v, %v", try, late, h, err)
				}
			}
		})
	}
}

// Each victim is counted, and making it is no failure.
func TestVictimsAreCounted(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	var seen counts
	b := open(t, server.Addr(), Options{Observer: &seen})
	var all, ready sync.WaitGroup
	var victims atomic.Int64
	const rings = 10
	ready.Add(2 * rings)
	for i := range 2 * rings {
		all.Go(func() {
			q := request(time.Minute, lock.Forever, fmt.Sprint("k", i))
			owner := q.Owner
			g, err := b.Acquire(t.Context(), q)
			ready.Done()
			if err != nil {
				t.Error(err)
				return
			}
			ready.Wait()
			q = request(time.Minute, lock.Forever, fmt.Sprint("k", i^1))
			q.Owner = owner
			second, err := b.Acquire(t.Context(), q)
			if _, dead := errors.AsType[*lock.DeadlockError](err); dead {
				victims.Add(1)
			} else if err = errors.Join(err, b.Release(t.Context(), lock.Grant{ID: second.ID})); err != nil {
				t.Error(err)
			}
			testwait.Check(t, b.Release(t.Context(), lock.Grant{ID: g.ID}))
		})
	}
	all.Wait()
	if victims.Load() != rings {
		t.Errorf("of %d rings there were %d victims", rings, victims.Load())
	}
	// A victim may know before it is counted.
	eventually(t, "each victim is counted", func() bool { return seen.victims.Load() == rings })
}

// When the answer to a request that leaves the line is lost, the backend asks again. A caller who is refused holds nothing.
func TestLostAnswerOfLeaving(t *testing.T) {
	t.Parallel()
	testredis.Each(t, lostAnswerOfLeaving)
}

func lostAnswerOfLeaving(t *testing.T, l testredis.Library) { //nolint:thelper // It is the test.
	server := testredis.Start(t)
	r := testredis.NewRelay(t, server.Addr())
	holder := openBy(t, l, server.Addr(), Options{})
	other := openBy(t, l, r.Addr(), Options{})
	warm := &waiter{backend: holder, request: request(time.Second, 0, "warm")}
	if _, err := warm.leave(t.Context(), false, nil); err != nil { // The script is known then.
		t.Fatal(err)
	}
	g := acquire(t, holder, request(time.Minute, 0, "k"))
	var lost atomic.Int64
	leave := digest("tokens", "common", "leave")
	heard := func(request string) bool {
		if !strings.Contains(request, leave) || lost.Add(1) > 1 {
			return false
		}
		if err := holder.Release(t.Context(), lock.Grant{ID: g.ID}); err != nil { // At the last moment the lock is handed over.
			t.Error(err)
		}
		return true
	}
	r.Hear(heard)
	got, err := other.Acquire(t.Context(), request(time.Minute, 500*time.Millisecond, "k"))
	if err != nil || lost.Load() < 2 {
		t.Fatalf("the other got %v; it left %d times", err, lost.Load())
	}
	testwait.Check(t, other.Release(t.Context(), lock.Grant{ID: got.ID}))
	nothing(t, holder)
}

// When the answer to a release is lost, nobody knows whether it was this release that ended the lock: the client must not have
// asked again behind the backend's back, and said that the lock was not there any more.
func TestLostAnswerOfReleasing(t *testing.T) {
	t.Parallel()
	testredis.Each(t, func(t *testing.T, l testredis.Library) { //nolint:thelper // It is the test.
		r := testredis.NewRelay(t, testredis.Start(t).Addr())
		b := openBy(t, l, r.Addr(), Options{})
		g := acquire(t, b, request(time.Minute, 0, "k"))
		var drops atomic.Int64
		r.Hear(func(request string) bool {
			return strings.Contains(strings.ToUpper(request), "$4\r\nHDEL\r\n") && drops.Add(1) == 1
		})
		if err := b.Release(t.Context(), g); err == nil || errors.Is(err, lock.ErrLost) || drops.Load() != 1 {
			t.Errorf("released with %v after %d requests, want the error of the one that was lost", err, drops.Load())
		}
		nothing(t, b)
	})
}

// When the answer to a request for a lock is lost, it is asked again by its id, and has one grant.
func TestLostAnswerOfAcquiring(t *testing.T) {
	t.Parallel()
	testredis.Each(t, func(t *testing.T, l testredis.Library) { //nolint:thelper // It is the test.
		r := testredis.NewRelay(t, testredis.Start(t).Addr())
		b := openBy(t, l, r.Addr(), Options{})
		testwait.Must(t, b.Release(t.Context(), acquire(t, b, request(time.Minute, 0, "k")))) // The script is known then.
		var asked atomic.Int64
		script := digest("acquire_free", "tokens", "common", "acquire")
		r.Hear(func(request string) bool { return strings.Contains(request, script) && asked.Add(1) == 1 })
		g := acquire(t, b, request(time.Minute, 0, "k"))
		if s, err := b.Snapshot(t.Context()); err != nil || len(s.Holders) != 1 || s.Holders[0].ID != g.ID || asked.Load() != 2 {
			t.Errorf("%+v, %v after %d requests", s, err, asked.Load())
		}
		testwait.Check(t, b.Release(t.Context(), g))
		nothing(t, b)
	})
}

// A request that was refused is not in line, even if its wait limit was over while it looked which requests it may overtake.
func TestRefusedWhileItLooks(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	r := testredis.NewRelay(t, server.Addr())
	first := open(t, r.Addr(), Options{})
	other := open(t, server.Addr(), Options{})
	if _, err := first.Snapshot(t.Context()); err != nil { // The script is known then.
		t.Fatal(err)
	}
	q := request(time.Minute, 0, "a")
	held := acquire(t, first, q)
	got := later(t, other, request(time.Minute, lock.Forever, "a", "b"))
	inLine(t, other)
	const limit = 150 * time.Millisecond
	late := time.Now().Add(limit + 20*time.Millisecond)
	var looked, released atomic.Bool
	graph, acquire := digest("tokens", "common", "graph"), digest("acquire_free", "tokens", "common", "acquire")
	heard := func(request string) bool {
		switch {
		case strings.Contains(request, graph):
			looked.Store(true)
			pause(t, time.Until(late)) // The network is slow.
		case strings.Contains(request, acquire) && looked.Load() && released.CompareAndSwap(false, true):
			if err := other.Release(t.Context(), lock.Grant{ID: held.ID}); err != nil { // by the same owner, elsewhere
				t.Error(err)
			}
		}
		return false
	}
	r.Hear(heard)
	q.ID, q.Keys, q.Wait = request(0, 0).ID, []string{"b"}, limit
	if _, err := first.Acquire(t.Context(), q); !errors.Is(err, lock.ErrHeld) || !released.Load() {
		t.Fatalf("refused with %v; released: %t", err, released.Load())
	}
	g := <-got
	if s, err := other.Snapshot(t.Context()); err != nil || len(s.Waiters) > 0 {
		t.Errorf("who got ErrHeld waits: %+v, %v", s.Waiters, err)
	}
	testwait.Check(t, other.Release(t.Context(), lock.Grant{ID: g.ID}))
	nothing(t, other)
}

// Of processes that died in line nothing remains for long, though others wait. What is kept for a minute is kept for a second
// here.
func TestDeadWaitersAreForgotten(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	brief := func(client redisclient.Client) *Backend {
		b := on(t, client, Options{})
		b.scripts = newScripts(func(name string) string { return strings.Replace(source(name), "60000 --", "1000 --", 1) })
		return b
	}
	b := brief(testredis.Rueidis.Open(t, server.Addr()))
	client := testredis.Rueidis.Open(t, server.Addr())
	doomed := brief(client)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var living string
	for i := range 6 {
		k := fmt.Sprint("k", i)
		testwait.Must(t, testwait.Err(b.Acquire(t.Context(), request(time.Hour, 0, k))))
		waits, q := doomed, request(time.Minute, lock.Forever, k)
		if i == 0 {
			waits, living = b, q.ID
		}
		all.Go(func() { _, _ = waits.Acquire(ctx, q) })
	}
	listed := func() []string {
		ids, err := rediskit.Texts(b.client.Eval(t.Context(), "return redis.call('ZRANGE', KEYS[1], 0, -1)", []string{b.space + ":waiters"}, nil))
		testwait.Check(t, err)
		return ids
	}
	// On a slow machine the living one may be forgotten, too, and asks again.
	dead := func(id string) bool { return id != living }
	eventually(t, "all wait", func() bool { return len(listed()) == 6 })
	client.Close()
	doomed.Close()
	eventually(t, "the dead are forgotten", func() bool { return !slices.ContainsFunc(listed(), dead) })
	pause(t, time.Second)
	if ids := listed(); slices.ContainsFunc(ids, dead) {
		t.Errorf("%q are listed, want %q alone, which is alive", ids, living)
	}
	eventually(t, "the living one is in line", func() bool { return len(listed()) == 1 })
	cancel()
	all.Wait()
}

// An id that was never a grant matches nothing.
func TestStrangeIDs(t *testing.T) {
	t.Parallel()
	b, g, both := kept(t)
	for _, id := range []string{"", "/", "//", "/x", "/y", "//y", "x", "y", g.ID + "/", "/" + g.ID, g.ID[:8]} {
		_, renewed := b.Renew(t.Context(), id, 0)
		for _, err := range []error{b.Release(t.Context(), lock.Grant{ID: id, Tokens: map[string]int64{"y": 1}}), b.Release(t.Context(), lock.Grant{ID: id}), renewed} {
			if !errors.Is(err, lock.ErrLost) {
				t.Errorf("%q: %v", id, err)
			}
		}
	}
	if _, err := b.Acquire(t.Context(), request(time.Minute, 0, "y")); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("nobody is in line for y: %v", err)
	}
	testwait.Check(t, b.Release(t.Context(), lock.Grant{ID: g.ID}))
	if g := <-both; !g.Waited {
		t.Errorf("granted %+v", g)
	}
}
