package pglock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// handOvers counts them.
type handOvers struct{ n atomic.Int64 }

func (*handOvers) Expired(int)   {}
func (*handOvers) Victim()       {}
func (h *handOvers) HandedOver() { h.n.Add(1) }

// line makes n requests for a key, one after the other, each in line before the next one asks, and returns what they get.
func line(t *testing.T, b *Backend, k string, n int, ttl time.Duration) []<-chan *lock.Held {
	t.Helper()
	l := lock.New(b, lock.LockerOptions{})
	seen := waitersOn(t, b, k) // Some of them may have the lock, and go while we look.
	all := make([]<-chan *lock.Held, n)
	for i := range all {
		c := make(chan *lock.Held, 1)
		all[i] = c
		go func() {
			h, err := l.Acquire(t.Context(), []string{k}, lock.Options{Wait: lock.Forever, TTL: ttl})
			if err != nil && t.Context().Err() == nil && !errors.Is(err, lock.ErrClosed) {
				t.Error(err)
			}
			c <- h
		}()
		waitFor(t, "the request is in line", func() bool {
			now := waitersOn(t, b, k)
			added := slices.IndexFunc(now, func(id string) bool { return !slices.Contains(seen, id) })
			if added >= 0 {
				seen = append(seen, now[added])
			}
			return added >= 0
		})
	}
	return all
}

func waitersOn(t *testing.T, b *Backend, k string) (ids []string) {
	t.Helper()
	s, err := b.Snapshot(t.Context())
	testwait.Must(t, err)
	for _, w := range s.Waiters {
		if slices.Contains(w.Keys, k) {
			ids = append(ids, w.ID)
		}
	}
	return ids
}

func got(t *testing.T, c <-chan *lock.Held) *lock.Held {
	t.Helper()
	select {
	case h := <-c:
		if h == nil {
			t.Fatal("the request failed")
		}
		return h
	case <-time.After(testwait.Patience):
		t.Fatal("nothing was granted")
	}
	return nil
}

func let(t *testing.T, h *lock.Held) {
	t.Helper()
	testwait.Must(t, h.Release(t.Context()))
}

// inCohort reports whether a lock is passed on by a cohort.
func (b *Backend) inCohort(h *lock.Held) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cohorts[uuid.MustParse(h.ID())] != nil
}

// whoever waits for the next grant, takes it out of those that are waited for, and tells whose it is.
func whoever(t *testing.T, all *[]<-chan *lock.Held) (i int, h *lock.Held) {
	t.Helper()
	cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(time.After(testwait.Patience))}}
	for _, c := range *all {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)})
	}
	at, v, _ := reflect.Select(cases)
	h, granted := reflect.TypeAssert[*lock.Held](v)
	if !granted || h == nil {
		t.Fatal("nothing was granted")
	}
	*all = slices.Delete(*all, at-1, at)
	return at - 1, h
}

// running lets requests wait in line and has the first two of them hold the lock for no time, so that the third holds it
// as one of a cohort. It returns what the three got, and the others. A machine that is slow may need many keys: requests
// that it keeps silent lose their places in line, too.
func running(t *testing.T, b *Backend, n int, ttl time.Duration) (k string, three [3]*lock.Held, others []<-chan *lock.Held) {
	t.Helper()
	pgtest.Needs(t, pgkit.Functions)
	for try, began := 0, time.Now(); time.Since(began) < testwait.Patience; try++ {
		k = fmt.Sprintf("k%d-%s", try, uuid.NewString())
		first := acquire(t, lock.New(b, lock.LockerOptions{}), k, lock.Options{})
		all := line(t, b, k, n, ttl)
		let(t, first)
		inOrder := true
		for i := range three {
			if i > 0 {
				let(t, three[i-1])
			}
			var at int
			at, three[i] = whoever(t, &all)
			inOrder = inOrder && at == 0
		}
		if inOrder && b.inCohort(three[2]) {
			return k, three, all
		}
		let(t, three[2])
		for len(all) > 0 {
			_, h := whoever(t, &all)
			let(t, h)
		}
	}
	t.Fatal("no cohort came about")
	return "", three, nil
}

// TestCohort: requests of one process that follow each other pass the lock on in order, under tokens that grow; the tables
// learn who has it if one keeps it.
func TestCohort(t *testing.T) {
	t.Parallel()
	const n = 8
	var seen handOvers
	b := open(t, database(t), Options{Observer: &seen})
	k, three, others := running(t, b, n, time.Minute)
	h, before := three[2], seen.n.Load()
	if err := b.Release(t.Context(), lock.Grant{ID: three[1].ID()}); !errors.Is(err, lock.ErrLost) {
		t.Errorf("released again: %v", err)
	}
	if _, err := b.Renew(t.Context(), three[1].ID(), 0); !errors.Is(err, lock.ErrLost) {
		t.Errorf("renewed what was passed on: %v", err)
	}
	waitFor(t, "the tables tell who has the lock", func() bool {
		held, _, err := b.Find(t.Context(), k)
		return err == nil && held.ID == h.ID() && held.Owner == h.Owner() && held.Tokens[k] == h.Token(k) && !b.inCohort(h)
	})
	if ids := waitersOn(t, b, k); len(ids) != n-3 {
		t.Errorf("%v wait", ids)
	}
	for _, other := range three[:2] {
		if err := b.Release(t.Context(), lock.Grant{ID: other.ID()}); !errors.Is(err, lock.ErrLost) {
			t.Errorf("released again: %v", err)
		}
	}
	testwait.Check(t, testwait.Err(b.Renew(t.Context(), h.ID(), 0)))
	last := h.Token(k)
	let(t, h)
	for _, c := range others {
		h := got(t, c)
		if h.Token(k) <= last {
			t.Errorf("token %d after %d", h.Token(k), last)
		}
		last = h.Token(k)
		let(t, h)
	}
	let(t, acquire(t, lock.New(b, lock.LockerOptions{}), k, lock.Options{}))
	if got := seen.n.Load(); got != before+n-3 {
		t.Errorf("%d hand-overs after %d", got, before)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.cohorts)+len(b.runs)+len(b.asking)+len(b.waiters) != 0 {
		t.Errorf("%d cohorts, %d runs, %d keys asked for, %d waiters are left", len(b.cohorts), len(b.runs), len(b.asking), len(b.waiters))
	}
}

// TestCohortIsRenewed: a renewal that comes before the tables know the holder tells them.
func TestCohortIsRenewed(t *testing.T) {
	t.Parallel()
	b := open(t, database(t), Options{})
	k, three, _ := running(t, b, 4, time.Minute)
	g, err := b.Renew(t.Context(), three[2].ID(), time.Minute)
	if err != nil || g.Owner != three[2].Owner() || g.Tokens[k] != three[2].Token(k) || g.TTL != time.Minute {
		t.Fatalf("%+v, %v", g, err)
	}
	let(t, three[2])
}

// TestCohortSkipsWhoHasLeft: an successor whose caller has gone is passed over, and leaves nothing behind.
func TestCohortSkipsWhoHasLeft(t *testing.T) {
	t.Parallel()
	b := open(t, database(t), Options{})
	l := lock.New(b, lock.LockerOptions{})
	for round := range 20 {
		k := fmt.Sprint("k", round)
		first := acquire(t, l, k, lock.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 2)
		before := line(t, b, k, 2, time.Minute)
		for range cap(left) {
			go func() {
				h, err := l.Acquire(ctx, []string{k}, lock.Options{Wait: lock.Forever})
				if err == nil {
					err = h.Release(context.WithoutCancel(ctx))
				}
				left <- err
			}()
		}
		waitFor(t, "they are in line", func() bool { return len(waitersOn(t, b, k)) == 4 })
		all := slices.Concat(before, line(t, b, k, 2, time.Minute))
		let(t, first)
		_, h := whoever(t, &all)
		let(t, h)
		_, h = whoever(t, &all)
		cancel() // At about the time at which it would be their turn.
		let(t, h)
		for range cap(left) {
			if err := <-left; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		for len(all) > 0 {
			_, h := whoever(t, &all)
			let(t, h)
		}
		if ids := waitersOn(t, b, k); len(ids) > 0 {
			t.Errorf("%v still wait", ids)
		}
	}
}

// TestCohortOfADeadProcess: when a process dies whose requests pass a lock on, another one gets it after the lease, under
// a newer token than any of them had.
func TestCohortOfADeadProcess(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Functions)
	const ttl = 2 * time.Second
	url := database(t)
	other := open(t, url, Options{})
	testpromise.Check(t, "lock-after-death", func() time.Duration {
		p := pool(t, url)
		doomed := New(p, Options{Schema: testSchema})
		k, three, _ := running(t, doomed, 6, ttl)
		behind := line(t, other, k, 1, ttl)
		p.Close()
		died := time.Now()
		doomed.Close()
		h := got(t, behind[0])
		took := time.Since(died)
		if h.Token(k) <= three[2].Token(k) {
			t.Errorf("token %d after %d", h.Token(k), three[2].Token(k))
		}
		let(t, h)
		return took - ttl
	})
}

// TestDeadlockOfACohort: a cycle through a lock that was passed on is found.
func TestDeadlockOfACohort(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Functions)
	url := database(t)
	b := open(t, url, Options{})
	far := open(t, url, Options{})
	testpromise.Check(t, "deadlock", func() time.Duration { return deadlockOfACohort(t, b, far) })
}

// deadlockOfACohort returns how long after its last request the cycle was broken.
func deadlockOfACohort(t *testing.T, b, far *Backend) time.Duration {
	t.Helper()
	l := lock.New(far, lock.LockerOptions{})
	x := acquire(t, l, "m", lock.Options{Wait: testwait.Patience})
	k, three, _ := running(t, b, 4, time.Minute)
	victim := make(chan error, 2)
	ask := func(ctx context.Context, l *lock.Locker, k string) {
		h, err := l.Acquire(ctx, []string{k}, lock.Options{Wait: testwait.Patience})
		if err == nil {
			err = h.Release(context.WithoutCancel(ctx))
		}
		victim <- err
	}
	go ask(three[2].Context(), lock.New(b, lock.LockerOptions{}), "m")
	began := time.Now()
	go ask(x.Context(), l, k)
	err := <-victim
	if _, ok := errors.AsType[*lock.DeadlockError](err); !ok {
		t.Errorf("got %v", err)
	}
	took := time.Since(began)
	let(t, x)
	let(t, three[2])
	t.Logf("the other one: %v", <-victim) // It has got what the victim gave up, or it was called off with its own lock.
	return took
}

// TestManyInOneProcess: those of one process and those of another get the lock one at a time and in order, also where
// they keep it for longer than a cohort passes it on.
func TestManyInOneProcess(t *testing.T) {
	t.Parallel()
	url := database(t)
	var inside atomic.Int64
	var last atomic.Int64
	var all sync.WaitGroup
	for range 2 {
		b := open(t, url, Options{})
		l := lock.New(b, lock.LockerOptions{})
		for i := range 12 {
			all.Go(func() {
				for round := range 12 {
					h, err := l.Acquire(t.Context(), []string{"k"}, lock.Options{Wait: lock.Forever})
					if err != nil {
						t.Error(err)
						return
					}
					if inside.Add(1) != 1 {
						t.Error("two hold the lock")
					}
					if before := last.Swap(h.Token("k")); before >= h.Token("k") {
						t.Errorf("token %d after %d", h.Token("k"), before)
					}
					if (i+round)%11 == 0 { // This one keeps the lock for some time: there is nothing to wait for.
						time.Sleep(time.Duration(i) * 9 * time.Millisecond)
					}
					inside.Add(-1)
					testwait.Check(t, h.Release(t.Context()))
				}
			})
		}
	}
	all.Wait()
}

// TestAskedAgain: a request that is made again, since nobody knows what became of it, is recognised.
func TestAskedAgain(t *testing.T) {
	t.Parallel()
	b := open(t, database(t), Options{})
	r := lock.Request{ID: uuid.NewString(), Keys: []string{"k"}, Owner: "o", TTL: time.Minute, Wait: time.Second}
	first, err := b.Acquire(t.Context(), r)
	testwait.Must(t, err)
	second, err := b.Acquire(t.Context(), r)
	if err != nil || second.Tokens["k"] != first.Tokens["k"] || len(waitersOn(t, b, "k")) > 0 {
		t.Errorf("%+v, then %+v, %v; %v wait", first, second, err, waitersOn(t, b, "k"))
	}
	testwait.Check(t, b.Release(t.Context(), second))
}

// TestDatabaseOfOtherHabits: a database whose transactions are of another isolation level by default has the same locks.
func TestDatabaseOfOtherHabits(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		url := database(t)
		conn, err := pgx.Connect(t.Context(), url)
		testwait.Must(t, err)
		testwait.Must(t, testwait.Err(conn.Exec(t.Context(), fmt.Sprintf(
			`DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET default_transaction_isolation = %%L', current_database(), '%s'); END $$`, level))))
		testwait.Must(t, conn.Close(t.Context()))
		b := open(t, url, Options{})
		began := time.Now()
		first := acquire(t, lock.New(b, lock.LockerOptions{}), "k", lock.Options{})
		others := line(t, b, "k", 6, time.Minute)
		let(t, first)
		for _, c := range others {
			let(t, got(t, c))
		}
		t.Logf("%s: %s", level, time.Since(began))
	}
}

// TestInstallBringsOlderTablesUpToDate installs over tables from before there were functions.
func TestInstallBringsOlderTablesUpToDate(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, nil)
	p := pool(t, url)
	if _, err := p.Exec(t.Context(), `CREATE SCHEMA "some locks"; SET search_path TO "some locks"; `+tablesSQL+`; RESET search_path`, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		testwait.Must(t, testSchema.Install(t.Context(), p))
	}
	b := open(t, url, Options{})
	let(t, acquire(t, lock.New(b, lock.LockerOptions{}), "k", lock.Options{}))
}
