package redislock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// fill writes until the server takes nothing more, not even the least.
func fill(t *testing.T, c rueidis.Client) {
	t.Helper()
	n := time.Now().UnixNano() // So that no name comes twice.
	for _, size := range []int{100_000, 1000, 1} {
		value := strings.Repeat("x", size)
		for refused := 0; refused < 10; n++ { // The server's own memory goes up and down a little.
			err := c.Do(t.Context(), c.B().Set().Key("fill:"+strconv.FormatInt(n, 10)).Value(value).Build()).Error()
			switch {
			case err == nil:
			case strings.HasPrefix(err.Error(), "OOM"):
				refused++
			default:
				t.Fatal(err)
			}
		}
	}
}

// TestFullMemory: a server whose memory is full grants nothing new, and keeps, ends and hands on what it has granted.
func TestFullMemory(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--maxmemory", "8mb", "--maxmemory-policy", "noeviction")
	admin := connect(t, server.Addr())
	b, other := open(t, server.Addr(), Options{}), open(t, server.Addr(), Options{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	acquire := func(b *Backend, r lock.Request) lock.Grant {
		t.Helper()
		g, err := b.Acquire(ctx, r)
		testwait.Must(t, err)
		return g
	}
	const lease, brief = time.Minute, 2 * time.Second
	held := map[string]lock.Grant{
		"one key":   acquire(b, request(lease, 0, "one")),
		"two keys":  acquire(b, request(lease, 0, "x", "y")),
		"one wants": acquire(b, request(lease, 0, "wanted")),
	}
	dead := acquire(b, request(brief, 0, "dead")) // Its holder renews it no more.
	limited := request(lease, 0, "limited")
	limited.MaxHold = lease
	held["a maximum hold"] = acquire(b, limited)
	granted := map[string]chan error{}
	for _, keys := range [][]string{{"wanted"}, {"dead"}, {"x", "y"}} {
		c := make(chan error, 1)
		granted[keys[0]] = c
		go func() {
			g, err := other.Acquire(ctx, request(lease, lock.Forever, keys...))
			if err == nil {
				_, err = other.Renew(ctx, g.ID, 0)
			}
			if err == nil {
				err = other.Release(ctx, lock.Grant{ID: g.ID})
			}
			c <- err
		}()
	}
	eventually(t, "they are in line", func() bool {
		s, err := b.Snapshot(ctx)
		return err == nil && len(s.Waiters) == len(granted)
	})

	// Requests in line are passed over after 1.2 s unless their process can say that they are alive.
	var stalled time.Duration
	for began, last := time.Now(), time.Now(); time.Since(began) < brief+brief/2; last = time.Now() {
		fill(t, admin) // Again and again: the server may have given some memory back.
		for what, g := range held {
			if _, err := b.Renew(ctx, g.ID, 0); err != nil {
				t.Fatalf("renewal, %s: %v", what, err)
			}
		}
		pause(t, brief/20)
		stalled = max(stalled, time.Since(last))
	}
	eventually(t, "nothing new is granted", func() bool {
		fill(t, admin)
		g, err := b.Acquire(ctx, request(lease, 0, "new"))
		if err == nil {
			err = b.Release(ctx, lock.Grant{ID: g.ID})
		}
		return err != nil && strings.Contains(err.Error(), "OOM")
	})
	await := func(key string) {
		t.Helper()
		select {
		case err := <-granted[key]:
			if err != nil && stalled > brief/4 {
				t.Skipf("the machine stalled for %s, and those in line were passed over: %v", stalled, err)
			}
			if err != nil {
				t.Errorf("the request in line for %s: %v", key, err)
			}
		case <-ctx.Done():
			t.Errorf("%s was not handed on", key)
		}
	}
	await("dead")
	if err := b.Release(ctx, lock.Grant{ID: dead.ID}); !errors.Is(err, lock.ErrLost) {
		t.Errorf("release of a lease that is over: %v", err)
	}
	for what, g := range held {
		if err := b.Release(ctx, g); err != nil {
			t.Errorf("release, %s: %v", what, err)
		}
	}
	await("wanted")
	await("x")
	testwait.Must(t, admin.Do(ctx, admin.B().Arbitrary("CONFIG", "SET", "maxmemory", "0").Build()).Error())
	testwait.Check(t, b.Release(ctx, acquire(b, request(lease, 0, "new", "one", "x", "wanted", "dead"))))
}
