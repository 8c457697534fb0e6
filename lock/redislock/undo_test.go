package redislock

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// relay connects clients with a server, and lets a test know what they say.
type relay struct {
	net.Listener

	heard atomic.Pointer[func(request string) (lose bool)] // what is answered to a request is lost, and its connection
	mu    sync.Mutex
	to    string // the server's address
	conns []net.Conn
	all   sync.WaitGroup
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testwait.Must(t, err)
	r := &relay{Listener: l, to: to}
	r.all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			out, err := net.Dial("tcp", r.to)
			if err != nil {
				_ = in.Close()
			} else {
				r.conns = append(r.conns, in, out)
				r.pass(in, out)
			}
			r.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.turn("")
		r.all.Wait()
	})
	return r
}

// pass passes on what is said on a connection until one of its ends is closed.
func (r *relay) pass(in, out net.Conn) {
	var lost atomic.Bool
	copying := func(from, to net.Conn, look func(said string)) {
		b := make([]byte, 64<<10)
		for {
			n, err := from.Read(b)
			if look(string(b[:n])); err != nil || from == out && lost.Load() {
				_, _ = in.Close(), out.Close()
				return
			}
			_, _ = to.Write(b[:n])
		}
	}
	r.all.Go(func() {
		copying(in, out, func(said string) {
			if f := r.heard.Load(); f != nil && (*f)(said) {
				lost.Store(true)
			}
		})
	})
	r.all.Go(func() { copying(out, in, func(string) {}) })
}

// turn cuts all connections and makes new ones elsewhere.
func (r *relay) turn(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
}

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
	server := testredis.Start(t)
	r := newRelay(t, server.Addr())
	holder := open(t, server.Addr(), Options{})
	other := open(t, r.Addr().String(), Options{})
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
	r.heard.Store(&heard)
	got, err := other.Acquire(t.Context(), request(time.Minute, 500*time.Millisecond, "k"))
	if err != nil || lost.Load() < 2 {
		t.Fatalf("the other got %v; it left %d times", err, lost.Load())
	}
	testwait.Check(t, other.Release(t.Context(), lock.Grant{ID: got.ID}))
	nothing(t, holder)
}

// A request that was refused is not in line, even if its wait limit was over while it looked which requests it may overtake.
func TestRefusedWhileItLooks(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	r := newRelay(t, server.Addr())
	first := open(t, r.Addr().String(), Options{})
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
	r.heard.Store(&heard)
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
	brief := func(client rueidis.Client) *Backend {
		b := on(t, client, Options{})
		b.scripts = newScripts(func(name string) string { return strings.Replace(source(name), "60000 --", "1000 --", 1) })
		return b
	}
	b := brief(connect(t, server.Addr()))
	client := connect(t, server.Addr())
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
