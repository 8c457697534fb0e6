package redislock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/internal/tally"
	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/redisclient"
	"github.com/fairlead-dev/fairlead/redisclient/goredisclient"
	"github.com/fairlead-dev/fairlead/redisclient/rueidisclient"
)

func request(ttl, wait time.Duration, keys ...string) lock.Request {
	return lock.Request{ID: uuid.NewString(), Keys: keys, Owner: uuid.NewString(), TTL: ttl, Wait: wait}
}

// Scripts reach for names that they were not told, which a cluster allows within one slot.
func TestConformanceOnACluster(t *testing.T) {
	t.Parallel()
	testredis.Each(t, conformanceOnACluster)
}

func conformanceOnACluster(t *testing.T, l testredis.Library) { //nolint:thelper // It is the test.
	if os.Getenv("FAIRLEAD_TORTURE") == "1" {
		t.Skip("the long run is that on one server")
	}
	server := testredis.StartCluster(t)
	suite(t, func(tb testing.TB) testredis.Conn { tb.Helper(); return l.OpenCluster(tb, server.Addr()) })
}

// A server that comes back without its memory knows no lock, no line and no counter. Holders learn that their locks are
// lost, waiters ask again, and tokens go on growing.
func TestRestartWithoutPersistence(t *testing.T) { //nolint:tparallel // One after the other: they are many.
	t.Parallel()
	often(t, func(t *testing.T, l testredis.Library) { //nolint:thelper // It is the test.
		forgets(t, l, tally.RedisKilled, func(server *testredis.Server) {
			server.Kill()
			server.Start()
		})
	})
}

// A server that loses its data while it goes on is as forgetful, and breaks no connection.
func TestFlush(t *testing.T) { //nolint:tparallel // As above.
	t.Parallel()
	often(t, func(t *testing.T, l testredis.Library) { //nolint:thelper // It is the test.
		forgets(t, l, tally.RedisFlushed, func(server *testredis.Server) {
			admin := server.Client(t)
			testwait.Must(t, admin.Do(t.Context(), admin.B().Flushall().Build()).Error())
		})
	})
}

// often runs a test with each client library: once, or many times in a long run.
func often(t *testing.T, test func(*testing.T, testredis.Library)) {
	t.Helper()
	for i := range testwait.Count(1, 20) {
		t.Run(fmt.Sprint(i), func(t *testing.T) { testredis.Each(t, test) })
	}
}

func forgets(t *testing.T, l testredis.Library, row string, forget func(*testredis.Server)) { //nolint:thelper // It is the test.
	counted := testwait.Recorder(t)
	server := testredis.Start(t)
	b, other := openBy(t, l, server.Addr(), Options{}), openBy(t, l, server.Addr(), Options{})
	locks := lock.New(b, lock.LockerOptions{})
	last := int64(0)
	hold := func(k string, ttl time.Duration) *lock.Held {
		h, err := locks.Acquire(t.Context(), []string{k}, lock.Options{TTL: ttl})
		testwait.Must(t, err)
		return h
	}
	for range 50 {
		h := hold("k", time.Minute)
		if h.Token("k") <= last {
			t.Fatalf("token %d after %d", h.Token("k"), last)
		}
		last = h.Token("k")
		testwait.Must(t, h.Release(t.Context()))
	}
	h := hold("k", 3*time.Second)                                       // It is renewed, and so noticed, soon.
	granted := later(t, other, request(time.Minute, lock.Forever, "k")) // It may have to outlast what the holder needs to be told.
	inLine(t, b)
	began := time.Now()
	counted.Fault(row, began)
	forget(server)
	select {
	case <-h.Context().Done():
	case <-time.After(patience):
		t.Fatal("the holder was not told")
	}
	if cause := context.Cause(h.Context()); !errors.Is(cause, lock.ErrLost) {
		t.Errorf("cause %v", cause)
	}
	select {
	case g := <-granted:
		counted.Answered(began, time.Now(), true)
		if g.Tokens["k"] <= h.Token("k") {
			t.Errorf("token %d after %d", g.Tokens["k"], h.Token("k"))
		}
		testwait.Check(t, other.Release(t.Context(), lock.Grant{ID: g.ID}))
	case <-time.After(patience):
		t.Fatal("the waiter was forgotten")
	}
	connected(t, b, "k")
	if err := h.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("release of a forgotten lock: %v", err)
	}
}

// connected waits until the connection by which a key is released answers. On a slow machine the holder's clock may have ended the lease
// before anything was sent over the connection that broke: then the release would be the first to fail.
func connected(t *testing.T, b *Backend, key string) {
	t.Helper()
	eventually(t, "the holder is connected", func() bool { return testwait.Err(b.client.HDel(t.Context(), b.hash(key), "x")) == nil })
}

// setToken makes a token the last one.
func setToken(t *testing.T, b *Backend, ms, n int64) {
	t.Helper()
	_, err := b.client.Eval(t.Context(), "return redis.call('XADD', KEYS[1], ARGV[1], '', '')", b.state, []string{fmt.Sprintf("%d-%d", ms, n)})
	testwait.Must(t, err)
}

// Where the server's clock has been set back, the last token keeps tokens growing, one by one, and past the end of its
// millisecond.
func TestTokensGrowWhenTheClockIsBehind(t *testing.T) {
	t.Parallel()
	b := alone(t)
	future := time.Now().Add(24 * time.Hour).Truncate(time.Millisecond).Add(996 * time.Microsecond).UnixMicro()
	setToken(t, b, future/1000, future%1000)
	for i := range int64(8) {
		keys := []string{"other", fmt.Sprint("k", i)}[:1+i%2] // of one key, or of several
		g := acquire(t, b, request(time.Minute, 0, keys...))
		if g.Tokens["other"] != future+1+i {
			t.Errorf("token %d, want %d", g.Tokens["other"], future+1+i)
		}
		testwait.Must(t, b.Release(t.Context(), lock.Grant{ID: g.ID}))
	}
}

// A millisecond that gave more tokens than a thousand, as the clock was behind it, does not reach into those that come when
// the clock has caught up.
func TestTokensGrowWhenTheClockCatchesUp(t *testing.T) {
	t.Parallel()
	b := alone(t)
	last, enough := int64(0), false
	for by := 300 * time.Millisecond; !enough; by *= 2 { // A slow machine gets more time for them.
		future, ahead := time.Now().Add(by).UnixMilli(), 0
		setToken(t, b, future, 990)
		for time.Now().UnixMilli() < future+200 {
			g := acquire(t, b, request(time.Minute, 0, "k"))
			if g.Tokens["k"] <= last {
				t.Fatalf("token %d after %d", g.Tokens["k"], last)
			}
			last = g.Tokens["k"]
			if last > time.Now().UnixMicro() {
				ahead++
			}
			testwait.Must(t, b.Release(t.Context(), g))
		}
		enough = ahead >= 20
	}
}

// When nobody holds or waits, only the counters are left, so that there may be any number of names.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	c := connect(t, server.Addr())
	b := open(t, server.Addr(), Options{})
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for n := range 20 {
				g, err := b.Acquire(t.Context(), request(10*time.Second, lock.Forever, fmt.Sprint("k", (i+n)%5), fmt.Sprint("k", n%3)))
				if err != nil {
					t.Error(err)
					return
				}
				testwait.Check(t, b.Release(t.Context(), lock.Grant{ID: g.ID}))
			}
		})
	}
	all.Wait()
	left, err := c.Do(t.Context(), c.B().Keys().Pattern("*").Build()).AsStrSlice()
	slices.Sort(left)
	if err != nil || !slices.Equal(left, []string{b.space, b.space + ":tokens"}) {
		t.Errorf("left are %q, %v", left, err)
	}
}

// counts is an observer.
type counts struct{ expired, victims, handedOver, blind, found, passing atomic.Int64 }

func (c *counts) Expired(n int) { c.expired.Add(int64(n)) }
func (c *counts) Victim()       { c.victims.Add(1) }
func (c *counts) HandedOver()   { c.handedOver.Add(1) }

func (c *counts) Fallback(reason string) {
	map[string]*atomic.Int64{FallbackBlind: &c.blind, FallbackFound: &c.found, FallbackPassing: &c.passing}[reason].Add(1)
}

// Of what holders that died left to expire nothing remains, and what is alive is listed, of this namespace alone.
func TestTheExpiredIsForgotten(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	c := connect(t, server.Addr())
	const special = `all*?[a-z]\^`
	b := open(t, server.Addr(), Options{Namespace: special})
	other := open(t, server.Addr(), Options{Namespace: "all or nothing"})
	testwait.Must(t, testwait.Err(other.Acquire(t.Context(), request(time.Hour, 0, "theirs"))))
	const n = 2500
	alive := map[string]bool{}
	for i := range n {
		keys := []string{fmt.Sprint("dead", i), fmt.Sprint("also/", i)}[:1+i%2]
		testwait.Must(t, testwait.Err(b.Acquire(t.Context(), request(lock.MinTTL, 0, keys...))))
		keys = []string{fmt.Sprint("alive/", i), fmt.Sprint("too", i), special + fmt.Sprint(i)}[:1+i%3]
		g := acquire(t, b, request(time.Hour, 0, keys...))
		alive[g.ID] = true
	}
	pause(t, 2*lock.MinTTL)
	s, err := b.Snapshot(t.Context())
	if err != nil || len(s.Holders) != n {
		t.Fatalf("%d holders, %v; want %d", len(s.Holders), err, n)
	}
	for _, h := range s.Holders {
		if !alive[h.ID] {
			t.Errorf("%+v is listed", h)
		}
		if err := b.Release(t.Context(), lock.Grant{ID: h.ID}); err != nil {
			t.Errorf("release what is listed as %+v: %v", h, err)
		}
	}
	left, err := c.Do(t.Context(), c.B().Keys().Pattern("*").Build()).AsStrSlice()
	left = slices.DeleteFunc(left, func(s string) bool { return strings.HasPrefix(s, other.space) || s == b.space+":tokens" })
	if err != nil || len(left) > 0 {
		t.Errorf("left are %q, %v", left, err)
	}
}

// A caller that gives up on a silent server is not kept for long, however much time it has left.
func TestGivingUpOnASilentServer(t *testing.T) {
	t.Parallel()
	testredis.Each(t, givingUpOnASilentServer)
}

func givingUpOnASilentServer(t *testing.T, l testredis.Library) { //nolint:thelper // It is the test.
	server := testredis.Start(t)
	admin := connect(t, server.Addr())
	var client redisclient.Client // One that does not give up by itself, as after 10 s or 3 s.
	if l == testredis.GoRedis {
		c := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: -1})
		t.Cleanup(func() { _ = c.Close() })
		client = goredisclient.New(c)
	} else {
		client = rueidisclient.New(connectWith(t, server.Addr(), rueidis.ClientOption{ForceSingleClient: true, ConnWriteTimeout: time.Hour}))
	}
	b := on(t, client, Options{})
	t.Cleanup(server.Kill) // Before the clients are closed, which wait for answers.
	testwait.Must(t, admin.Do(t.Context(), admin.B().ClientPause().Timeout(600_000).All().Build()).Error())
	long := patience // The server would be silent for ten minutes.
	if os.Getenv("FAIRLEAD_TORTURE") == "1" {
		long = answerWithin + cleanupTimeout + time.Second
	}
	var all sync.WaitGroup
	for name, limit := range map[string]time.Duration{"without a deadline": 0, "with a late one": time.Hour} {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			if limit > 0 {
				ctx, cancel = context.WithTimeout(t.Context(), limit)
			}
			time.AfterFunc(50*time.Millisecond, cancel)
			began := time.Now()
			_, err := b.Acquire(ctx, request(time.Second, lock.Forever, name))
			cancel()
			if took := time.Since(began); !errors.Is(err, context.Canceled) || took > long {
				t.Errorf("%s: %v after %v", name, err, took)
			}
		})
	}
	all.Wait()
}

// Connections that break lose neither a lock that is renewed nor a place in line.
func TestBrokenConnections(t *testing.T) {
	t.Parallel()
	testredis.Each(t, brokenConnections)
}

func brokenConnections(t *testing.T, l testredis.Library) { //nolint:thelper // It is the test.
	server := testredis.Start(t)
	killer := connect(t, server.Addr())
	b, other := openBy(t, l, server.Addr(), Options{}), openBy(t, l, server.Addr(), Options{})
	g := acquire(t, b, request(time.Minute, 0, "k"))
	granted := make(chan error, 1)
	go func() {
		g, err := other.Acquire(t.Context(), request(time.Minute, lock.Forever, "k"))
		if err == nil {
			err = other.Release(t.Context(), lock.Grant{ID: g.ID})
		}
		granted <- err
	}()
	eventually(t, "the other hears", other.hearing.Load)
	for range 20 {
		for _, kind := range []string{"normal", "pubsub"} {
			kill := killer.B().Arbitrary("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes").Build()
			testwait.Must(t, killer.Do(t.Context(), kill).Error())
		}
		testwait.Must(t, testwait.Err(b.Renew(t.Context(), g.ID, 0)))
		pause(t, 100*time.Millisecond)
	}
	testwait.Must(t, b.Release(t.Context(), lock.Grant{ID: g.ID}))
	testwait.Check(t, <-granted)
	eventually(t, "it hears again", func() bool {
		g := acquire(t, b, request(time.Minute, 0, "k2"))
		defer func() { _ = b.Release(t.Context(), lock.Grant{ID: g.ID}) }()
		return other.hearing.Load()
	})
}

// A grant is heard by the process that waits well before it would find it by looking.
func TestHandOverIsHeard(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	var seen counts
	b, other := open(t, server.Addr(), Options{}), open(t, server.Addr(), Options{Observer: &seen})
	const n = 20
	for range n {
		g := acquire(t, b, request(10*time.Second, lock.Forever, "k"))
		var done sync.WaitGroup
		done.Go(func() {
			g, err := other.Acquire(t.Context(), request(10*time.Second, lock.Forever, "k"))
			if err == nil {
				err = other.Release(t.Context(), lock.Grant{ID: g.ID})
			}
			testwait.Check(t, err)
		})
		hears(t, b, other)
		testwait.Must(t, b.Release(t.Context(), lock.Grant{ID: g.ID}))
		done.Wait()
	}
	// On a slow machine, some are found by looking before they are heard.
	if found := seen.found.Load(); found > n/2 {
		t.Errorf("%d of %d hand-overs were found, not heard", found, n)
	}
}

func TestInvalidRequests(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	c := testredis.Rueidis.Open(t, server.Addr())
	if _, err := New(c, Options{Namespace: "a{b}"}); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("a namespace with braces: %v", err)
	}
	b := on(t, c, Options{})
	b.maxWaiters = 1
	for _, r := range []lock.Request{
		request(time.Second, 0), request(time.Second, 0, "a\nb"), request(0, 0, "a"),
		{ID: "x", Keys: []string{"a"}, Owner: "a\nb", TTL: time.Second},
		{ID: "x/a", Keys: []string{"a"}, Owner: "x", TTL: time.Second},
	} {
		if _, err := b.Acquire(t.Context(), r); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	g := acquire(t, b, request(time.Minute, 0, "a"))
	waits := make(chan error, 1)
	go func() {
		_, err := b.Acquire(t.Context(), request(time.Minute, lock.Forever, "a"))
		waits <- err
	}()
	inLine(t, b)
	if _, err := b.Acquire(t.Context(), request(time.Minute, lock.Forever, "a")); !errors.Is(err, lock.ErrTooManyWaiters) {
		t.Errorf("one too many: %v", err)
	}
	testwait.Check(t, b.Release(t.Context(), lock.Grant{ID: g.ID}))
	testwait.Check(t, <-waits)
}

// kept lets one hold x, and another be in line for x and y, so that y is free and kept.
func kept(t *testing.T) (b *Backend, g lock.Grant, both <-chan lock.Grant) {
	t.Helper()
	b = alone(t)
	g = acquire(t, b, request(time.Minute, 0, "x"))
	both = later(t, b, request(time.Minute, lock.Forever, "x", "y"))
	inLine(t, b)
	return b, g, both
}

// A key that is free, but for which somebody is in line who waits for another one, too, is not given to who comes later.
func TestFreeKeysAreKeptForThoseInLine(t *testing.T) {
	t.Parallel()
	b, g, both := kept(t)
	if _, err := b.Acquire(t.Context(), request(time.Minute, 0, "y")); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("who came later got %v, want ErrHeld", err)
	}
	testwait.Check(t, b.Release(t.Context(), lock.Grant{ID: g.ID}))
	if g := <-both; len(g.Tokens) != 2 || !g.Waited {
		t.Errorf("granted %+v", g)
	}
}
