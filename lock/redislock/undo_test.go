package redislock

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// relay passes on what a client says to a server, and lets a test know before.
type relay struct {
	net.Listener

	heard atomic.Pointer[func(request string) (lose bool)] // what is answered to a request is lost, and its connection
}

func newRelay(t *testing.T, to int) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testwait.Must(t, err)
	r := &relay{Listener: l}
	var all sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", to))
			if err != nil {
				_ = in.Close()
				continue
			}
			mu.Lock()
			conns = append(conns, in, out)
			mu.Unlock()
			var lost atomic.Bool
			all.Go(func() {
				b := make([]byte, 64<<10)
				for {
					n, err := in.Read(b)
					if err != nil {
						_ = out.Close()
						return
					}
					if f := r.heard.Load(); f != nil && (*f)(string(b[:n])) {
						lost.Store(true)
					}
					_, _ = out.Write(b[:n])
				}
			})
			all.Go(func() {
				b := make([]byte, 64<<10)
				for {
					n, err := out.Read(b)
					if err != nil || lost.Load() {
						_ = in.Close()
						_ = out.Close()
						return
					}
					_, _ = in.Write(b[:n])
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return r
}

func (r *relay) port() int { return r.Addr().(*net.TCPAddr).Port } //nolint:errcheck,forcetypeassert // A TCP listener's.

// digest is what a script is called by that was sent before.
func digest(names ...string) string {
	var text strings.Builder
	for _, n := range names {
		text.WriteString(source(n))
	}
	sum := sha1.Sum([]byte(text.String()))
	return hex.EncodeToString(sum[:])
}

// A request whose caller has gone holds nothing, though the client has several connections, of which one may be faster.
func TestCancelledRequestsHoldNothing(t *testing.T) {
	t.Parallel()
	port := pgtest.Port(t)
	start(t, port)
	b, _ := open(t, connect(t, single(), port), Options{})
	var all sync.WaitGroup
	var cancelled atomic.Int64
	stop := time.Now().Add(3 * time.Second)
	for w := range 32 {
		all.Go(func() {
			for i := 0; time.Now().Before(stop); i++ {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(3000))*time.Microsecond)
				g, err := b.Acquire(ctx, request(time.Hour, 0, fmt.Sprint("k", w, "/", i)))
				cancel()
				if err != nil {
					cancelled.Add(1)
				} else if err := b.ReleaseGrant(t.Context(), g); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	s, err := b.Snapshot(t.Context())
	if err != nil || len(s.Holders) > 0 || cancelled.Load() == 0 {
		t.Errorf("of %d requests that were called off %d are held, %v", cancelled.Load(), len(s.Holders), err)
	}
}

// Those that come into line and leave it do not prolong a lease, of none of the keys that a grant has.
func TestComingAndLeavingProlongsNothing(t *testing.T) {
	t.Parallel()
	for _, keys := range [][]string{{"k"}, {"k", "l"}, {"j", "k"}} {
		t.Run(strings.Join(keys, " and "), func(t *testing.T) {
			t.Parallel()
			port := pgtest.Port(t)
			start(t, port)
			dead, _ := open(t, connect(t, single(), port), Options{})
			b, _ := open(t, connect(t, single(), port), Options{})
			g, err := dead.Acquire(t.Context(), request(time.Minute, 0, keys...))
			testwait.Must(t, err)
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
	port := pgtest.Port(t)
	start(t, port)
	var seen counts
	b, _ := open(t, connect(t, single(), port), Options{Observer: &seen})
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
			} else if err = errors.Join(err, b.Release(t.Context(), second.ID)); err != nil {
				t.Error(err)
			}
			testwait.Check(t, b.Release(t.Context(), g.ID))
		})
	}
	all.Wait()
	if victims.Load() != rings {
		t.Errorf("of %d rings there were %d victims", rings, victims.Load())
	}
	// A victim may know before it is counted.
	eventually(t, "each victim is counted", func() bool { return seen.victims.Load() == rings })
}

// Where the answer to a request that leaves the line is lost, it is asked again: who is told that it has nothing has nothing.
func TestLostAnswerOfLeaving(t *testing.T) {
	t.Parallel()
	port := pgtest.Port(t)
	start(t, port)
	r := newRelay(t, port)
	holder, _ := open(t, connect(t, single(), port), Options{})
	other, _ := open(t, connect(t, single(), r.port()), Options{})
	warm := &waiter{backend: holder, request: request(time.Second, 0, "warm")}
	if _, err := warm.leave(t.Context(), false, nil); err != nil { // The script is known then.
		t.Fatal(err)
	}
	g, err := holder.Acquire(t.Context(), request(time.Minute, 0, "k"))
	testwait.Must(t, err)
	var lost atomic.Int64
	leave := digest("tokens", "common", "leave")
	heard := func(request string) bool {
		if !strings.Contains(request, leave) || lost.Add(1) > 1 {
			return false
		}
		if err := holder.Release(t.Context(), g.ID); err != nil { // At the last moment the lock is handed over.
			t.Error(err)
		}
		return true
	}
	r.heard.Store(&heard)
	got, err := other.Acquire(t.Context(), request(time.Minute, 500*time.Millisecond, "k"))
	if err != nil || lost.Load() < 2 {
		t.Fatalf("the other got %v; it left %d times", err, lost.Load())
	}
	testwait.Check(t, other.Release(t.Context(), got.ID))
	nothing(t, holder)
}

// Who is refused is not in line, though its wait limit was over while it looked whom it may overtake.
func TestRefusedWhileItLooks(t *testing.T) {
	t.Parallel()
	port := pgtest.Port(t)
	start(t, port)
	r := newRelay(t, port)
	first, _ := open(t, connect(t, single(), r.port()), Options{})
	other, _ := open(t, connect(t, single(), port), Options{})
	if _, err := first.Snapshot(t.Context()); err != nil { // The script is known then.
		t.Fatal(err)
	}
	q := request(time.Minute, 0, "a")
	held, err := first.Acquire(t.Context(), q)
	testwait.Must(t, err)
	got := make(chan lock.Grant, 1)
	go func() {
		g, err := other.Acquire(t.Context(), request(time.Minute, lock.Forever, "a", "b"))
		testwait.Check(t, err)
		got <- g
	}()
	eventually(t, "the other waits", func() bool { s, err := other.Snapshot(t.Context()); return err == nil && len(s.Waiters) == 1 })
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
			if err := other.Release(t.Context(), held.ID); err != nil { // by the same owner, elsewhere
				t.Error(err)
			}
		}
		return false
	}
	r.heard.Store(&heard)
	q.ID, q.Keys, q.Wait = request(0, 0).ID, []string{"b"}, limit
	if _, err := first.Acquire(t.Context(), q); !errors.Is(err, lock.ErrHeld) || !released.Load() {
		t.Fatalf("refused with %v; released: %t", err, released.Load())
	}
	g := <-got
	if s, err := other.Snapshot(t.Context()); err != nil || len(s.Waiters) > 0 {
		t.Errorf("who got ErrHeld waits: %+v, %v", s.Waiters, err)
	}
	testwait.Check(t, other.Release(t.Context(), g.ID))
	nothing(t, other)
}

// Of processes that died in line nothing remains for long, though others wait. What is kept for a minute is kept for a second
// here.
func TestDeadWaitersAreForgotten(t *testing.T) {
	t.Parallel()
	port := pgtest.Port(t)
	start(t, port)
	brief := func(client rueidis.Client) *Backend {
		b, _ := open(t, client, Options{})
		b.scripts = newScripts(func(name string) string { return strings.Replace(source(name), "60000 --", "1000 --", 1) })
		return b
	}
	b := brief(connect(t, single(), port))
	client := connect(t, single(), port)
	doomed := brief(client)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var living string
	for i := range 6 {
		k := fmt.Sprint("k", i)
		if _, err := b.Acquire(t.Context(), request(time.Hour, 0, k)); err != nil {
			t.Fatal(err)
		}
		waits, q := doomed, request(time.Minute, lock.Forever, k)
		if i == 0 {
			waits, living = b, q.ID
		}
		all.Go(func() { _, _ = waits.Acquire(ctx, q) })
	}
	listed := func() []string {
		ids, err := b.client.Do(t.Context(), b.client.B().Zrange().Key(b.space+":waiters").Min("0").Max("-1").Build()).AsStrSlice()
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

// What is no grant's id is nothing's.
func TestStrangeIDs(t *testing.T) {
	t.Parallel()
	b, g, both := kept(t)
	for _, id := range []string{"", "/", "//", "/x", "/y", "//y", "x", "y", g.ID + "/", "/" + g.ID, g.ID[:8]} {
		_, renewed := b.Renew(t.Context(), id, 0)
		for _, err := range []error{b.ReleaseGrant(t.Context(), lock.Grant{ID: id, Tokens: map[string]int64{"y": 1}}), b.Release(t.Context(), id), renewed} {
			if !errors.Is(err, lock.ErrLost) {
				t.Errorf("%q: %v", id, err)
			}
		}
	}
	if _, err := b.Acquire(t.Context(), request(time.Minute, 0, "y")); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("nobody is in line for y: %v", err)
	}
	testwait.Check(t, b.Release(t.Context(), g.ID))
	if g := <-both; !g.Waited {
		t.Errorf("granted %+v", g)
	}
}
