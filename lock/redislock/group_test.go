package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// simple is a request that may wait behind others of its process.
func simple(ttl time.Duration) lock.Request {
	r := request(ttl, lock.Forever, "k")
	r.Owner, r.NewOwner = r.ID, true
	return r
}

// steady lets requests wait behind others of their process for as long as it takes, and turns last.
func steady(b *Backend) *Backend {
	b.idleFor, b.localFor, b.turnFor = time.Hour, time.Hour, time.Hour
	return b
}

// behind waits until n requests wait behind others of the process.
func behind(t *testing.T, b *Backend, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d wait behind others", n), func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.behind == n
	})
}

// lined waits until n requests are in line.
func lined(t *testing.T, b *Backend, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d are in line", n), func() bool {
		s, err := b.Snapshot(t.Context())
		return err == nil && len(s.Waiters) == n
	})
}

// passing is what the script is called by that passes a lock on.
func passing() string { return digest("tokens", "pass_next", "common", "pass") }

// forgetful fails the test unless a backend has forgotten all groups.
func forgetful(t *testing.T, b *Backend) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.groups) > 0 || b.behind != 0 || len(b.waiters) > 0 {
		t.Errorf("left are %d groups, %d behind others, %d that ask", len(b.groups), b.behind, len(b.waiters))
	}
}

// hold lets b hold the lock while somebody waits in line for its process, who is granted it when held is released.
func hold(t *testing.T, b *Backend) (held lock.Grant, first <-chan lock.Grant) {
	t.Helper()
	held = acquire(t, b, simple(time.Minute))
	first = later(t, b, simple(time.Minute))
	lined(t, b, 1)
	return held, first
}

// A process passes a lock on by one script each, in order of asking, to those that waited when its turn began. Then another process
// has its turn, which was in line before those that came later.
func TestTurns(t *testing.T) {
	t.Parallel()
	testredis.Each(t, func(t *testing.T, l testredis.Library) { //nolint:thelper // It is the test.
		server := testredis.Start(t)
		r := testredis.NewRelay(t, server.Addr())
		var seen counts
		b, other := steady(openBy(t, l, r.Addr(), Options{Observer: &seen})), openBy(t, l, server.Addr(), Options{})
		held, first := hold(t, b)
		theirs := later(t, other, simple(time.Minute))
		lined(t, b, 2)
		second := later(t, b, simple(time.Minute))
		behind(t, b, 1)
		third := later(t, b, simple(time.Minute))
		behind(t, b, 2)
		var passed atomic.Int64
		r.Hear(func(request string) bool { passed.Add(int64(strings.Count(request, passing()))); return false })

		testwait.Must(t, b.Release(t.Context(), held))
		last := held.Tokens["k"]
		next := func(what string, c <-chan lock.Grant) lock.Grant {
			t.Helper()
			select {
			case g := <-c:
				if g.Tokens["k"] <= last || !g.Waited {
					t.Errorf("%s: %+v after token %d", what, g, last)
				}
				last = g.Tokens["k"]
				if h, ok, err := b.Find(t.Context(), "k"); err != nil || !ok || h.ID != g.ID || h.Tokens["k"] != last {
					t.Errorf("%s: %+v, %t, %v holds it", what, h, ok, err)
				}
				return g
			case <-time.After(patience):
				t.Fatalf("%s was not granted the lock", what)
				return lock.Grant{}
			}
		}
		g := next("the first", first)
		late := later(t, b, simple(time.Minute))
		behind(t, b, 3)
		for i, c := range []<-chan lock.Grant{second, third} {
			testwait.Must(t, b.Release(t.Context(), g))
			g = next(fmt.Sprint("number ", i+2), c)
		}
		testwait.Must(t, testwait.Err(b.Renew(t.Context(), g.ID, 0)))
		if passed.Load() < 2 || seen.handedOver.Load() != 3 { // More often where the machine is so slow that it is asked again.
			t.Errorf("passed on %d times, %d hand-overs", passed.Load(), seen.handedOver.Load())
		}
		testwait.Must(t, b.Release(t.Context(), g))
		g = next("the other process", theirs)
		lined(t, b, 1)
		testwait.Must(t, other.Release(t.Context(), g))
		g = next("who came late", late)
		testwait.Must(t, b.Release(t.Context(), g))
		if err := b.Release(t.Context(), g); !errors.Is(err, lock.ErrLost) {
			t.Errorf("released twice: %v", err)
		}
		nothing(t, b)
		forgetful(t, b)
		forgetful(t, other)
	})
}

// crowd is a process whose requests for the key wait, oldest first.
type crowd struct {
	backend *Backend
	holds   lock.Grant
	waiting []<-chan lock.Grant
}

// join lets another request wait; n do behind others then.
func (c *crowd) join(t *testing.T, n int) {
	t.Helper()
	c.waiting = append(c.waiting, later(t, c.backend, simple(time.Minute)))
	behind(t, c.backend, n)
}

// next waits until the oldest request is granted the lock.
func (c *crowd) next(t *testing.T) {
	t.Helper()
	select {
	case c.holds = <-c.waiting[0]:
		c.waiting = c.waiting[1:]
	case <-time.After(patience):
		t.Fatal("the oldest request was not granted the lock")
	}
}

// turn has so many requests hold the lock one after the other, each of which is back before it goes on.
func (c *crowd) turn(t *testing.T, grants int) {
	t.Helper()
	for range grants {
		c.next(t)
		c.join(t, len(c.waiting)+1)
		testwait.Must(t, c.backend.Release(t.Context(), c.holds))
	}
}

// Where all that want the lock are crowds, a turn has several rounds, and those that come back have the lock again.
func TestTurnsOfCrowds(t *testing.T) {
	t.Parallel()
	b, other := pair(t)
	held, first := hold(t, steady(b))
	ours := &crowd{backend: b, waiting: []<-chan lock.Grant{first}}
	theirs := &crowd{backend: other, waiting: []<-chan lock.Grant{later(t, steady(other), simple(time.Minute))}}
	lined(t, b, 2)
	const size = leastCrowd + 1
	for _, c := range []*crowd{ours, theirs} {
		for n := range size - 1 {
			c.join(t, n+1)
		}
	}
	testwait.Must(t, b.Release(t.Context(), held))
	ours.turn(t, size) // The other one came alone.
	theirs.turn(t, maxRounds*size)
	ours.turn(t, maxRounds*size)
	for _, c := range []*crowd{theirs, ours} {
		for len(c.waiting) > 0 {
			c.next(t)
			testwait.Must(t, c.backend.Release(t.Context(), c.holds))
		}
		forgetful(t, c.backend)
	}
	nothing(t, b)
}

// All groups have the same number of rounds, and one where somebody is alone, or many are in one group.
func TestRounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		others crowds
		size   int
		want   int
	}{
		{crowds{}, 16, 1}, // Nobody is in line, or too many are.
		{crowds{1, 16}, 16, 1},
		{crowds{16, 16}, 1, 1},
		{crowds{16, 16}, 16, 3},
		{crowds{4, 4}, 4, 3},
		{crowds{4, 30}, 4, 2},
		{crowds{4, 4}, 30, 2},
		{crowds{4, 200}, 4, 1},
	} {
		if got := c.others.rounds(c.size); got != c.want {
			t.Errorf("%d rounds of %d beside %+v, want %d", got, c.size, c.others, c.want)
		}
	}
}

// A turn ends when its time is over, while others are in line.
func TestTurnsEnd(t *testing.T) {
	t.Parallel()
	b, other := pair(t)
	steady(b).turnFor = 0
	held, first := hold(t, b)
	theirs := later(t, other, simple(time.Minute))
	lined(t, b, 2)
	second := later(t, b, simple(time.Minute))
	behind(t, b, 1)
	testwait.Must(t, b.Release(t.Context(), held))
	testwait.Must(t, b.Release(t.Context(), <-first))
	g := <-theirs
	select {
	case g := <-second:
		t.Errorf("granted %+v before the other process", g)
	default:
	}
	testwait.Must(t, other.Release(t.Context(), g))
	testwait.Must(t, b.Release(t.Context(), <-second))
	nothing(t, b)
	forgetful(t, b)
}

// While nobody is in line, a process keeps passing the lock on, and a request that comes into line is next.
func TestPassingOnWithoutRivals(t *testing.T) {
	t.Parallel()
	b, other := pair(t)
	held, g := hold(t, steady(b))
	testwait.Must(t, b.Release(t.Context(), held))
	last := <-g
	for range 2 * maxTurn {
		next := later(t, b, simple(time.Minute))
		behind(t, b, 1)
		testwait.Must(t, b.Release(t.Context(), last))
		last = <-next
	}
	theirs := later(t, other, simple(time.Minute))
	lined(t, b, 1)
	mine := later(t, b, simple(time.Minute))
	behind(t, b, 1)
	testwait.Must(t, b.Release(t.Context(), last))
	testwait.Must(t, other.Release(t.Context(), <-theirs))
	testwait.Must(t, b.Release(t.Context(), <-mine))
	nothing(t, b)
	forgetful(t, b)
}

// When the answer to passing a lock on is lost, it is passed on once all the same. When no answer comes at all, the release
// returns an error, and the next one finds out by itself whether it has the lock.
func TestLostAnswerOfPassingOn(t *testing.T) {
	t.Parallel()
	for _, lost := range []int64{1, 1 << 62} {
		testredis.Each(t, func(t *testing.T, l testredis.Library) { //nolint:thelper // It is the test.
			server := testredis.Start(t)
			r := testredis.NewRelay(t, server.Addr())
			var seen counts
			b, admin := steady(openBy(t, l, r.Addr(), Options{Observer: &seen})), open(t, server.Addr(), Options{})
			held, first := hold(t, b)
			testwait.Must(t, b.Release(t.Context(), held))
			g := <-first
			testwait.Must(t, testwait.Err(b.ask(t.Context(), b.scripts.pass, "x", b.hash("x"), "x", "x", "\n1\n0\n0\n0\n0\nx\nx", "1", "00"))) // Known then.
			r2 := simple(time.Minute)
			second := later(t, b, r2)
			behind(t, b, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var asked atomic.Int64
			r.Hear(func(request string) bool {
				if !strings.Contains(request, passing()) {
					return false
				}
				n := asked.Add(1)
				if n == 3 {
					cancel()
				}
				return n <= lost
			})
			if err := b.Release(ctx, g); (err == nil) != (lost == 1) || errors.Is(err, lock.ErrLost) {
				t.Errorf("released with %v after %d answers were lost", err, asked.Load())
			}
			got := <-second
			if h, ok, err := admin.Find(t.Context(), "k"); err != nil || !ok || h.ID != got.ID || h.Tokens["k"] != got.Tokens["k"] || got.Tokens["k"] <= g.Tokens["k"] {
				t.Errorf("granted %+v, held by %+v, %v", got, h, err)
			}
			if (seen.passing.Load() == 1) != (lost > 1) {
				t.Errorf("%d fallbacks were counted", seen.passing.Load())
			}
			testwait.Must(t, b.Release(t.Context(), got))
			nothing(t, admin)
			forgetful(t, b)
		})
	}
}

// When the answer is lost of passing a lock on to another process, the next one of this process is in line once.
func TestLostAnswerOfYielding(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	r := testredis.NewRelay(t, server.Addr())
	b, other := steady(open(t, r.Addr(), Options{})), open(t, server.Addr(), Options{})
	b.turnFor = 0
	held, first := hold(t, b)
	theirs := later(t, other, simple(time.Minute))
	lined(t, other, 2)
	second := later(t, b, simple(time.Minute))
	behind(t, b, 1)
	testwait.Must(t, b.Release(t.Context(), held))
	g := <-first
	testwait.Must(t, testwait.Err(b.ask(t.Context(), b.scripts.pass, "x", b.hash("x"), "x", "x", "\n1\n0\n0\n0\n0\nx\nx", "1", "00"))) // Known then.
	var asked atomic.Int64
	r.Hear(func(request string) bool { return strings.Contains(request, passing()) && asked.Add(1) == 1 })
	testwait.Must(t, b.Release(t.Context(), g))
	g = <-theirs
	lined(t, other, 1)
	if asked.Load() < 2 {
		t.Errorf("asked %d times", asked.Load())
	}
	testwait.Must(t, other.Release(t.Context(), g))
	testwait.Must(t, b.Release(t.Context(), <-second))
	nothing(t, other)
	forgetful(t, b)
}

// A holder whose lease is over, as that of a process that was stopped, or whose server has lost its memory, passes nothing on.
func TestPassingOnWhatIsLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, b, other *Backend, g lock.Grant) lock.Grant{
		"to another": func(t *testing.T, b, other *Backend, g lock.Grant) lock.Grant {
			t.Helper()
			testwait.Must(t, other.Release(t.Context(), lock.Grant{ID: g.ID})) // As if it were over.
			return acquire(t, other, simple(time.Minute))
		},
		"with the server's memory": func(t *testing.T, b, other *Backend, g lock.Grant) lock.Grant {
			t.Helper()
			testwait.Must(t, testwait.Err(b.client.Eval(t.Context(), "return redis.call('FLUSHALL')", b.state, nil)))
			return acquire(t, other, simple(time.Minute))
		},
		"to nobody": func(t *testing.T, b, other *Backend, g lock.Grant) lock.Grant {
			t.Helper()
			testwait.Must(t, other.Release(t.Context(), lock.Grant{ID: g.ID}))
			return lock.Grant{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, other := pair(t)
			held, first := hold(t, steady(b))
			testwait.Must(t, b.Release(t.Context(), held))
			g := <-first
			second := later(t, b, simple(time.Minute))
			behind(t, b, 1)
			theirs := lose(t, b, other, g)
			if err := b.Release(t.Context(), g); !errors.Is(err, lock.ErrLost) {
				t.Errorf("released: %v", err)
			}
			if theirs.ID != "" {
				lined(t, b, 1)
				testwait.Must(t, other.Release(t.Context(), theirs))
			}
			got := <-second
			if got.Tokens["k"] <= max(g.Tokens["k"], theirs.Tokens["k"]) {
				t.Errorf("token %d after %d and %d", got.Tokens["k"], g.Tokens["k"], theirs.Tokens["k"])
			}
			testwait.Must(t, b.Release(t.Context(), got))
			nothing(t, b)
			forgetful(t, b)
		})
	}
}

// A holder that never releases its lock keeps those behind it for no longer than its lease.
func TestForgottenByItsHolder(t *testing.T) {
	t.Parallel()
	b := alone(t)
	held, first := hold(t, b)
	testwait.Must(t, b.Release(t.Context(), held))
	testwait.Must(t, testwait.Err(b.Renew(t.Context(), (<-first).ID, 300*time.Millisecond)))
	got := <-later(t, b, simple(time.Minute))
	testwait.Must(t, b.Release(t.Context(), got))
	nothing(t, b)
	forgetful(t, b)
}

// Whoever leaves while it waits behind others, or while the lock is being passed on to it, holds nothing then, and the next one is
// granted the lock. Closing answers those that wait.
func TestLeavingTheGroup(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	r := testredis.NewRelay(t, server.Addr())
	b := steady(open(t, r.Addr(), Options{}))
	held, first := hold(t, b)
	testwait.Must(t, b.Release(t.Context(), held))
	g := <-first
	leave := func() (cancel func(), ended <-chan error) {
		ctx, cancel := context.WithCancel(t.Context())
		c := make(chan error, 1)
		go func() { c <- testwait.Err(b.Acquire(ctx, simple(time.Minute))) }()
		return cancel, c
	}
	cancel, ended := leave()
	behind(t, b, 1)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("while it waited: %v", err)
	}
	limited := simple(time.Minute)
	limited.Wait = time.Millisecond
	if _, err := b.Acquire(t.Context(), limited); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("after its wait limit: %v", err)
	}
	cancel, ended = leave()
	behind(t, b, 1)
	second := later(t, b, simple(time.Minute))
	behind(t, b, 2)
	var once atomic.Bool
	r.Hear(func(request string) bool {
		if strings.Contains(request, passing()) && once.CompareAndSwap(false, true) {
			cancel() // The server has not been asked yet.
		}
		return false
	})
	testwait.Must(t, b.Release(t.Context(), g))
	if err := <-ended; !errors.Is(err, context.Canceled) || !once.Load() {
		t.Errorf("while the lock was passed on: %v, %t", err, once.Load())
	}
	g = <-second
	_, ended = leave()
	behind(t, b, 1)
	b.Close()
	if err := <-ended; !errors.Is(err, lock.ErrClosed) {
		t.Errorf("at the end: %v", err)
	}
	testwait.Must(t, b.Release(t.Context(), g))
	forgetful(t, b)
}

// Groups of locks that nobody releases are forgotten.
func TestGroupsAreForgotten(t *testing.T) {
	t.Parallel()
	b := &Backend{groups: map[string]*group{}, waiters: map[string]*waiter{}, idleFor: time.Hour}
	waits := simple(time.Minute)
	for i := range manyGroups {
		b.groups[fmt.Sprint(i)] = &group{holder: "x"}
	}
	b.groups["busy"] = &group{holder: "x", moved: time.Now()}
	b.forgetAt = manyGroups
	if b.join(&waiter{backend: b, request: waits}) {
		t.Error("it waits behind others")
	}
	var left []string
	for key := range b.groups {
		left = append(left, key)
	}
	if slices.Sort(left); !slices.Equal(left, []string{"busy", "k"}) {
		t.Errorf("left are %q", left)
	}
}
