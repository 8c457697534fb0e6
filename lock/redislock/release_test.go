package redislock

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/rediskit"
	"github.com/fairlead-dev/fairlead/internal/testredis"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// contended opens two backends, as two processes would, on a server of their own, and lets the second wait for a lock of the first.
func contended(t *testing.T, ttl time.Duration) (holder, other *Backend, seen *counts, held lock.Grant, granted <-chan lock.Grant) {
	t.Helper()
	server := testredis.Start(t)
	seen = new(counts)
	holder = open(t, server.Addr(), Options{Observer: seen})
	other = open(t, server.Addr(), Options{Observer: seen})
	held = acquire(t, holder, request(ttl, 0, "k"))
	return holder, other, seen, held, later(t, other, request(10*time.Second, lock.Forever, "k"))
}

// hears waits until the second of a pair waits and is told of grants.
func hears(t *testing.T, holder, other *Backend) {
	t.Helper()
	eventually(t, "the other waits and hears", func() bool {
		s, err := holder.Snapshot(t.Context())
		return err == nil && len(s.Waiters) == 1 && other.hearing.Load()
	})
}

// nothing fails unless there is nothing left but what is counted.
func nothing(t *testing.T, b *Backend) {
	t.Helper()
	left, err := rediskit.Texts(b.client.Eval(t.Context(), "return redis.call('KEYS', '*')", nil, nil))
	left = slices.DeleteFunc(left, func(s string) bool { return s == b.space || s == b.space+":tokens" })
	if err != nil || len(left) > 0 {
		t.Errorf("left are %q, %v", left, err)
	}
}

// Releasing a grant that somebody waits for hands it on.
func TestReleasedGrantsAreHandedOn(t *testing.T) {
	t.Parallel()
	found := int64(0)
	const n = 10
	for range n {
		holder, other, seen, held, granted := contended(t, time.Minute)
		hears(t, holder, other)
		testwait.Must(t, holder.Release(t.Context(), held))
		g := <-granted
		found += seen.found.Load()
		if !g.Waited || g.Tokens["k"] <= held.Tokens["k"] || seen.handedOver.Load() != 1 || seen.expired.Load() != 0 {
			t.Errorf("granted %+v; %d handed over, %d expired", g, seen.handedOver.Load(), seen.expired.Load())
		}
		if err := holder.Release(t.Context(), held); !errors.Is(err, lock.ErrLost) {
			t.Errorf("released again: %v", err)
		}
		testwait.Check(t, other.Release(t.Context(), g))
		nothing(t, holder)
	}
	if found > n/2 { // On a slow machine, some are found by looking before they are heard.
		t.Errorf("%d of %d hand-overs were found, not heard", found, n)
	}
}

// A lock that somebody waits for is not dropped without being handed on.
func TestNothingIsLetGoOf(t *testing.T) {
	t.Parallel()
	holder, other, _, held, granted := contended(t, time.Hour)
	hears(t, holder, other)
	if released, err := holder.drop(t.Context(), held.ID); released || err != nil {
		t.Fatalf("let go: %t, %v", released, err)
	}
	if h, ok, err := other.Find(t.Context(), "k"); err != nil || !ok || h.ID != held.ID {
		t.Errorf("then %+v, %t, %v holds it, want %s", h, ok, err, held.ID)
	}
	if g, err := holder.Renew(t.Context(), held.ID, 0); err != nil || g.ID != held.ID || g.Tokens["k"] != held.Tokens["k"] {
		t.Errorf("renewed: %+v, %v", g, err)
	}
	if released, err := holder.drop(t.Context(), held.ID); released || err != nil {
		t.Fatalf("let go after a renewal: %t, %v", released, err)
	}
	testwait.Must(t, holder.Release(t.Context(), held))
	if g := <-granted; !g.Waited {
		t.Errorf("granted %+v", g)
	}
}

// A request that joined the line and left it again delays nobody.
func TestReleasingWhatNobodyWaitsForAnyMore(t *testing.T) {
	t.Parallel()
	b := alone(t)
	held := acquire(t, b, request(time.Minute, 0, "k"))
	if _, err := b.Acquire(t.Context(), request(time.Minute, 20*time.Millisecond, "k")); !errors.Is(err, lock.ErrHeld) {
		t.Fatalf("the other got %v, want ErrHeld", err)
	}
	if h, ok, err := b.Find(t.Context(), "k"); err != nil || !ok || h.ID != held.ID {
		t.Errorf("then %+v, %t, %v holds it, want %s", h, ok, err, held.ID)
	}
	if released, err := b.drop(t.Context(), held.ID); !released || err != nil {
		t.Errorf("released: %t, %v", released, err)
	}
	nothing(t, b)
}

// A lease that is over is lost, whether somebody was in line, or took the key, or not.
func TestReleasingAnExpiredGrant(t *testing.T) {
	t.Parallel()
	t.Run("that nobody wanted", func(t *testing.T) {
		t.Parallel()
		server := testredis.Start(t)
		b := open(t, server.Addr(), Options{})
		g := acquire(t, b, request(lock.MinTTL, 0, "k"))
		pause(t, 2*lock.MinTTL)
		if err := b.Release(t.Context(), g); !errors.Is(err, lock.ErrLost) {
			t.Errorf("released: %v, want ErrLost", err)
		}
		nothing(t, b)
	})
	t.Run("that somebody else has", func(t *testing.T) {
		t.Parallel()
		holder, other, _, held, granted := contended(t, lock.MinTTL)
		g := <-granted
		if err := holder.Release(t.Context(), held); !errors.Is(err, lock.ErrLost) {
			t.Errorf("released: %v, want ErrLost", err)
		}
		if h, ok, err := other.Find(t.Context(), "k"); err != nil || !ok || h.ID != g.ID {
			t.Errorf("then %+v, %t, %v holds it, want %s", h, ok, err, g.ID)
		}
	})
	t.Run("that a dead process is in line for", func(t *testing.T) {
		t.Parallel()
		server := testredis.Start(t)
		var seen counts
		holder := open(t, server.Addr(), Options{Observer: &seen})
		client := testredis.Rueidis.Open(t, server.Addr())
		doomed := on(t, client, Options{})
		held := acquire(t, holder, request(time.Minute, 0, "k"))
		ended := make(chan error, 1)
		go func() {
			_, err := doomed.Acquire(t.Context(), request(time.Minute, lock.Forever, "k"))
			ended <- err
		}()
		inLine(t, holder)
		client.Close()
		doomed.Close()
		if err := <-ended; err == nil {
			t.Fatal("the doomed one was granted the lock")
		}
		s, err := holder.Snapshot(t.Context()) // Its last words may have been that it is out of line: then Redis itself ends the lease.
		testwait.Must(t, err)
		held, err = holder.Renew(t.Context(), held.ID, lock.MinTTL) // Nobody else notices that it ends.
		testwait.Must(t, err)
		pause(t, 2*lock.MinTTL)
		if err := holder.Release(t.Context(), held); !errors.Is(err, lock.ErrLost) {
			t.Errorf("released: %v, want ErrLost", err)
		}
		if n := seen.expired.Load(); n != int64(len(s.Waiters)) {
			t.Errorf("%d leases were said to have expired, want %d", n, len(s.Waiters))
		}
		// The dead are passed over as soon as they are not said to be alive.
		g := acquire(t, holder, request(time.Second, 10*time.Second, "k"))
		testwait.Check(t, holder.Release(t.Context(), g))
		nothing(t, holder)
	})
}

// A release whose answer is lost reports that, and hands the lock on all the same.
func TestReleaseOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	holder, other, _, held, granted := contended(t, time.Hour)
	hears(t, holder, other)
	lost := errors.New("the answer was lost")
	testwait.Must(t, holder.Release(t.Context(), lock.Grant{ID: held.ID}))
	if err := holder.release(t.Context(), held.ID, lost); !errors.Is(err, lost) {
		t.Errorf("released: %v, want %v", err, lost)
	}
	if h, ok, err := holder.Find(t.Context(), "k"); err != nil || !ok || h.ID == held.ID {
		t.Errorf("then %+v, %t, %v holds it; want the next in line", h, ok, err)
	}
	<-granted
}
