package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestAuthenticateKeys(t *testing.T) {
	t.Parallel()
	store := newMemStore()
	admin := store.addKey(t, RoleAdmin, "a1")
	service := store.addKey(t, RoleService, "s1")
	dotted := "an.operators.own-admin-key-0123456789"
	testwait.Must(t, testwait.Err(EnsureAdminKey(t.Context(), store, dotted, "own", time.Now())))
	for _, jwtOptions := range []JWTOptions{{}, {Secret: testSecret()}} {
		a := newAuth(t, Options{Store: store, JWT: jwtOptions})
		for _, c := range []struct {
			in   string
			want Principal
			err  error
		}{
			{"Bearer " + admin, Principal{RoleAdmin, "key:a1", "", "test a1"}, nil},
			{"bearer  " + service, Principal{RoleService, "key:s1", "", "test s1"}, nil},
			{"Bearer " + dotted, Principal{RoleAdmin, "key:own", "", "first admin key"}, nil},
			{"Bearer " + admin + "x", Principal{}, ErrBadCredential},
			{"Bearer " + admin[:len(admin)-1], Principal{}, ErrBadCredential},
			{"Bearer " + strings.ToUpper(admin), Principal{}, ErrBadCredential},
			{"Basic " + admin, Principal{}, ErrBadCredential},
			{"", Principal{}, ErrNoCredential},
		} {
			for range 2 { // from the store, and from the cache
				if got, err := a.Authenticate(t.Context(), c.in); got != c.want || !errors.Is(err, c.err) {
					t.Errorf("Authenticate(%q) = %+v, %v", c.in, got, err)
				}
			}
		}
	}
}

// A store must not be believed when it returns another key, or one that can't
// be a key.
func TestUnusableKeys(t *testing.T) {
	t.Parallel()
	secret := strings.Repeat("k", 40)
	for name, key := range map[string]Key{
		"another hash": {ID: "x", Role: RoleAdmin, Hash: HashKey("other")},
		"user role":    {ID: "x", Role: RoleUser, Hash: HashKey(secret)},
		"no role":      {ID: "x", Hash: HashKey(secret)},
		"no id":        {Role: RoleAdmin, Hash: HashKey(secret)},
	} {
		store := newMemStore()
		store.keys[HashKey(secret)] = key
		a := newAuth(t, Options{Store: store})
		if p, err := a.Authenticate(t.Context(), "Bearer "+secret); !errors.Is(err, ErrBadCredential) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

func TestOneLookupForMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemStore()
		store.latency = 50 * time.Millisecond
		secret := store.addKey(t, RoleService, "s1")
		a := newAuth(t, Options{Store: store})
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				testwait.Check(t, testwait.Err(a.Authenticate(t.Context(), "Bearer "+secret)))
			})
		}
		wg.Wait()
		if n := store.lookups.Load(); n != 1 {
			t.Errorf("%d look-ups", n)
		}
	})
}

// A busy key is renewed in the background: one look-up a second, and no request
// ever waits for the store after the first.
func TestBusyKeyNeverWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemStore()
		store.latency = 100 * time.Millisecond
		secret := store.addKey(t, RoleService, "s1")
		a := newAuth(t, Options{Store: store})
		for i := range 3000 { // 30 s
			start := time.Now()
			testwait.Must(t, testwait.Err(a.Authenticate(t.Context(), "Bearer "+secret)))
			if waited := time.Since(start); i > 0 && waited > 0 {
				t.Fatalf("request %d waited %s", i, waited)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := store.lookups.Load(); n < 25 || n > 31 {
			t.Errorf("%d look-ups in 30 s", n)
		}
	})
}

// A look-up in the background that fails is tried again, still in the background.
func TestRenewalIsRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemStore()
		secret := store.addKey(t, RoleService, "s1")
		a := newAuth(t, Options{Store: store})
		for _, step := range []struct {
			after   time.Duration
			down    bool
			lookups int64
		}{
			{0, false, 1},
			{keyRefreshAfter, true, 2},
			{100 * time.Millisecond, false, 3},
			{keyRefreshAfter - time.Millisecond, false, 3},
		} {
			time.Sleep(step.after)
			store.set(func(s *memStore) { s.down = step.down })
			if _, err := a.Authenticate(t.Context(), "Bearer "+secret); err != nil {
				t.Fatalf("%+v: %v", step, err)
			}
			synctest.Wait()
			if n := store.lookups.Load(); n != step.lookups {
				t.Errorf("%+v: %d look-ups", step, n)
			}
		}
	})
}

// Whatever the store does after it, a revocation is in force within 5 s.
func TestRevocationIsInForce(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(*memStore){
		"quick":    func(*memStore) {},
		"slow":     func(s *memStore) { s.latency = 1900 * time.Millisecond },
		"too slow": func(s *memStore) { s.latency = 10 * time.Second },
		"deaf":     func(s *memStore) { s.latency, s.deaf = 7*time.Second, true },
		"hanging":  func(s *memStore) { s.hang = true },
		"down":     func(s *memStore) { s.down = true },
	} {
		// The trouble may come before the revocation, so that an answer from
		// before it arrives after it.
		for _, lead := range []time.Duration{0, time.Second, 3 * time.Second} {
			for _, pace := range []time.Duration{10 * time.Millisecond, 700 * time.Millisecond, 1900 * time.Millisecond} {
				t.Run(fmt.Sprintf("%s/%s/%s", name, lead, pace), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { revoke(t, trouble, lead, pace) })
				})
			}
		}
	}
}

func revoke(t *testing.T, trouble func(*memStore), lead, pace time.Duration) {
	t.Helper()
	store := newMemStore()
	secret := store.addKey(t, RoleAdmin, "a1")
	a := newAuth(t, Options{Store: store})
	accepted := func() bool {
		_, err := a.Authenticate(t.Context(), "Bearer "+secret)
		return err == nil
	}
	for range 50 {
		if !accepted() {
			t.Fatal("the key is refused before it is revoked")
		}
		time.Sleep(pace)
	}
	store.set(trouble)
	for start := time.Now(); time.Since(start) < lead; time.Sleep(pace) {
		accepted()
	}
	testwait.Must(t, store.RevokeKey(t.Context(), "a1"))
	revokedAt := time.Now()
	var last time.Duration
	for time.Since(revokedAt) < 20*time.Second {
		if accepted() {
			last = time.Since(revokedAt)
		}
		time.Sleep(pace)
	}
	time.Sleep(10 * time.Second) // A deaf store is still answering.
	if last >= 5*time.Second {   // The contract, whatever the constants.
		t.Errorf("accepted %s after its revocation", last)
	}
}

func TestStoreOutage(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]func(*memStore){
		"down":    func(s *memStore) { s.down = true },
		"hanging": func(s *memStore) { s.hang = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newMemStore()
				secret := store.addKey(t, RoleService, "s1")
				a := newAuth(t, Options{Store: store})
				testwait.Must(t, testwait.Err(a.Authenticate(t.Context(), "Bearer "+secret)))
				store.set(outage)
				begin := time.Now()
				time.Sleep(1900 * time.Millisecond)
				for time.Since(begin) < 3500*time.Millisecond {
					start := time.Now()
					if _, err := a.Authenticate(t.Context(), "Bearer "+secret); err != nil {
						t.Fatalf("refused after %s: %v", time.Since(begin), err)
					}
					if waited := time.Since(start); waited > keyGraceWait {
						t.Fatalf("waited %s", waited)
					}
					time.Sleep(100 * time.Millisecond)
				}
				time.Sleep(keyGrace - time.Since(begin))
				start := time.Now()
				_, err := a.Authenticate(t.Context(), "Bearer "+secret)
				if !errors.Is(err, ErrUnavailable) || time.Since(start) > keyLookupTimeout {
					t.Fatalf("after the grace: %v in %s", err, time.Since(start))
				}
				// A stranger is not told that its key is bad, for it may not be.
				if _, err := a.Authenticate(t.Context(), "Bearer stranger"); !errors.Is(err, ErrUnavailable) {
					t.Fatalf("stranger: %v", err)
				}
				store.set(func(s *memStore) { s.down, s.hang = false, false })
				if _, err := a.Authenticate(t.Context(), "Bearer "+secret); err != nil {
					t.Fatalf("when the store is back: %v", err)
				}
			})
		})
	}
}

// What is refused is remembered for no longer than a second, so that a key works
// as soon as it exists.
func TestRefusalIsShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemStore()
		a := newAuth(t, Options{Store: store})
		secret := strings.Repeat("later-", 8)
		for range 1000 {
			if _, err := a.Authenticate(t.Context(), "Bearer "+secret); !errors.Is(err, ErrBadCredential) {
				t.Fatal(err)
			}
		}
		if n := store.lookups.Load(); n != 1 {
			t.Errorf("%d look-ups for one bad key", n)
		}
		testwait.Must(t, testwait.Err(EnsureAdminKey(t.Context(), store, secret, "k", time.Now())))
		time.Sleep(refusalFresh)
		if _, err := a.Authenticate(t.Context(), "Bearer "+secret); err != nil {
			t.Errorf("a second later: %v", err)
		}
	})
}

// A flood of different bad keys neither hammers the store, nor fills the memory,
// nor stops a key that is in use.
func TestFloodOfStrangers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemStore()
		secret := store.addKey(t, RoleService, "s1")
		a := newAuth(t, Options{Store: store})
		testwait.Must(t, testwait.Err(a.Authenticate(t.Context(), "Bearer "+secret)))
		store.set(func(s *memStore) { s.latency = 10 * time.Millisecond })
		time.Sleep(keyGrace) // The key must be looked up amid the flood.

		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() {
				_, err := a.Authenticate(t.Context(), fmt.Sprintf("Bearer stranger-%d", i))
				if !errors.Is(err, ErrBadCredential) && !errors.Is(err, ErrUnavailable) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		start := time.Now()
		testwait.Check(t, testwait.Err(a.Authenticate(t.Context(), "Bearer "+secret)))
		if waited := time.Since(start); waited > 10*time.Millisecond {
			t.Errorf("the known key waited %s", waited)
		}
		wg.Wait()
		if n := store.maxFlight.Load(); n > strangerLookups+1 {
			t.Errorf("%d look-ups at once", n)
		}
	})
}

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := newCache[int](10)
	for i := range 1000 {
		hash := sha256.Sum256(fmt.Append(nil, i))
		c.put(&hash, i)
		if v, ok := c.get(&hash); !ok || v != i {
			t.Fatalf("%d is not what was put", v)
		}
		c.put(&hash, -i)
		if n := len(c.entries); n > 10 {
			t.Fatalf("%d entries", n)
		}
	}
	hash := sha256.Sum256(fmt.Append(nil, 999))
	c.remove(&hash)
	if _, ok := c.get(&hash); ok {
		t.Error("removed and still there")
	}
}

// One client that hangs up must not fail the others that wait for the same key.
func TestHangingUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemStore()
		store.latency = time.Second
		secret := store.addKey(t, RoleService, "s1")
		a := newAuth(t, Options{Store: store})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := a.Authenticate(ctx, "Bearer "+secret); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.Canceled) {
				t.Errorf("who hung up: %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if _, err := a.Authenticate(t.Context(), "Bearer "+secret); err != nil {
				t.Errorf("who stayed: %v", err)
			}
		})
		synctest.Wait()
		cancel()
		wg.Wait()
	})
}

func TestClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemStore()
		store.hang = true
		a := newAuth(t, Options{Store: store})
		start := time.Now()
		time.AfterFunc(time.Millisecond, a.Close)
		if _, err := a.Authenticate(t.Context(), "Bearer anything"); !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
		if waited := time.Since(start); waited > time.Millisecond {
			t.Errorf("a look-up outlived Close by %s", waited)
		}
	})
}

func TestNewNeedsStore(t *testing.T) {
	t.Parallel()
	if _, err := New(Options{}); !errors.Is(err, ErrInvalidOptions) {
		t.Error(err)
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	store := newMemStore()
	secret := "Bearer " + store.addKey(t, RoleService, "s1")
	a := newAuth(t, Options{Store: store, JWT: JWTOptions{Secret: testSecret()}, Now: func() time.Time { return time.Unix(1, 0) }})
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() {
		testwait.Must(t, testwait.Err(a.Authenticate(ctx, secret)))
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
