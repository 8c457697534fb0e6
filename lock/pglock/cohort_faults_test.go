package pglock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// free waits until nobody has a key.
func free(t *testing.T, b *Backend, k string) {
	t.Helper()
	waitFor(t, k+" is free", func() bool {
		_, held, err := b.Find(t.Context(), k)
		return err == nil && !held
	})
}

// TestSettlingWithoutAnswer: the tables were told who of a cohort has the lock, but the process did not learn that. It
// releases all the same, and renews.
func TestSettlingWithoutAnswer(t *testing.T) {
	t.Parallel()
	url := database(t)
	direct := pool(t, url)
	for _, renewed := range []bool{false, true} {
		b := open(t, url, Options{})
		k, three, _ := running(t, b, 3, time.Minute)
		b.mu.Lock()
		c := b.cohorts[uuid.MustParse(three[2].ID())]
		for c == nil { // The machine was slow, and the tables have been told already.
			b.mu.Unlock()
			let(t, three[2])
			k, three, _ = running(t, b, 3, time.Minute)
			b.mu.Lock()
			c = b.cohorts[uuid.MustParse(three[2].ID())]
		}
		h := three[2]
		c.settler.Stop()
		served, tickets := c.servedRows()
		base, token := c.base.id.String(), c.holder.token
		b.mu.Unlock()
		testwait.Must(t, testwait.Err(direct.Exec(t.Context(), b.st.Settle, k, base, served, tickets, h.ID(), h.ID(), token, 1000)))
		if renewed {
			testwait.Check(t, testwait.Err(b.Renew(t.Context(), h.ID(), 0)))
		}
		let(t, h)
		free(t, b, k)
	}
}

// TestOperatorEndsACohort: whoever ends the lock of a cohort by what the tables have is heeded by a renewal, also where the
// tables have granted the lock again to who still has it.
func TestOperatorEndsACohort(t *testing.T) {
	t.Parallel()
	b := open(t, database(t), Options{})
	k, three, _ := running(t, b, 3, time.Minute)
	waitFor(t, "the lock is ended", func() bool { // It may get another name after the look.
		held, _, err := b.Find(t.Context(), k)
		testwait.Must(t, err)
		var done Released
		if err := Transact(t.Context(), b.run, "operator", func(ctx context.Context, tx pgx.Tx) (err error) {
			done, err = b.ReleaseIn(ctx, tx, uuid.MustParse(held.ID))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return done.Held
	})
	if _, err := b.Renew(t.Context(), three[2].ID(), 0); !errors.Is(err, lock.ErrLost) {
		t.Errorf("renewed: %v", err)
	}
	free(t, b, k)
}

// TestFailedReleaseOfACohortIsRepeated: what the tables could not be told is told by the next try.
func TestFailedReleaseOfACohortIsRepeated(t *testing.T) {
	t.Parallel()
	b := open(t, database(t), Options{})
	k, three, _ := running(t, b, 3, time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Release(ctx, lock.Grant{ID: three[2].ID()}); err == nil {
		t.Error("released under a context that has ended")
	}
	testwait.Check(t, b.Release(t.Context(), lock.Grant{ID: three[2].ID()}))
	free(t, b, k)
}

// TestCloseTellsWhoHasTheLock: the locks that a closed backend leaves are in the tables as they are.
func TestCloseTellsWhoHasTheLock(t *testing.T) {
	t.Parallel()
	url := database(t)
	b := open(t, url, Options{})
	other := open(t, url, Options{})
	_, three, _ := running(t, b, 3, time.Minute)
	b.Close()
	testwait.Check(t, testwait.Err(other.Renew(t.Context(), three[2].ID(), 0)))
	let(t, three[2])
}

// TestLateRequestIsRefused: what is carried out after its caller has gone grants nothing.
func TestLateRequestIsRefused(t *testing.T) {
	t.Parallel()
	b := open(t, database(t), Options{})
	w := &waiter{
		backend: b, unsure: true, granted: make(chan *lock.Grant, 1), wait: lock.Forever,
		request: request{id: uuid.New(), keys: []string{"k"}, owner: "gone", ttl: time.Hour.Microseconds()},
	}
	w.abandon(t.Context())
	if _, end, _ := b.askTogether(t.Context(), w); end != undecided {
		t.Errorf("the late request was decided: %v", end)
	}
	free(t, b, "k")
	if ids := waitersOn(t, b, "k"); len(ids) > 0 {
		t.Errorf("%v wait", ids)
	}
}

// TestRequestWhoseOwnRowIsDead: a request got in line, did not learn of it, and was silent for so long that nobody counts it any more. It
// asks again, and gets in line anew.
func TestRequestWhoseOwnRowIsDead(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Functions)
	b := open(t, database(t), Options{})
	h := acquire(t, lock.New(b, lock.LockerOptions{}), "k", lock.Options{TTL: time.Hour})
	w := &waiter{
		backend: b, granted: make(chan *lock.Grant, 1), wait: lock.Forever,
		request: request{id: uuid.New(), keys: []string{"k"}, owner: "slow", ttl: time.Hour.Microseconds()},
	}
	first, end, err := b.askTogether(t.Context(), w)
	testwait.Must(t, err)
	if end != decided || first.ticket == 0 {
		t.Fatalf("%+v, %v", first, end)
	}
	for _, dead := range []string{`alive_until = clock_timestamp()`, `cycle = '{slow}'`} {
		testwait.Must(t, testwait.Err(b.pool.Exec(t.Context(), testSchema.in(`UPDATE @lock_waiters SET `+dead+` WHERE owner = 'slow'`))))
		w.unsure = true
		again, err := w.ask(t.Context())
		testwait.Must(t, err)
		if again.ticket <= first.ticket {
			t.Errorf("ticket %d, was %d", again.ticket, first.ticket)
		}
		var rows, places int
		testwait.Must(t, b.pool.QueryRow(t.Context(), testSchema.in(`SELECT (SELECT count(*) FROM @lock_waiters), (SELECT count(*) FROM @lock_queue)`)).Scan(&rows, &places))
		if rows != 1 || places != 1 {
			t.Errorf("%d rows and %d places in line", rows, places)
		}
		first = again
	}
	w.abandon(t.Context())
	let(t, h)
}

// TestLeavingIsTriedAgain: a waiter that could not leave the line is granted the lock, which does not stay with it.
func TestLeavingIsTriedAgain(t *testing.T) {
	t.Parallel()
	var fail atomic.Bool
	b := open(t, database(t), Options{})
	run := b.run
	b.run = func(ctx context.Context, name string, fn func(context.Context, pgx.Tx) error) error {
		if name == "lock leave" && fail.Swap(false) {
			return errors.New("this once")
		}
		return run(ctx, name, fn)
	}
	l := lock.New(b, lock.LockerOptions{})
	h := acquire(t, l, "k", lock.Options{TTL: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := l.Acquire(ctx, []string{"k"}, lock.Options{TTL: time.Hour, Wait: lock.Forever})
		done <- err
	}()
	waitFor(t, "the request is in line", func() bool { return len(waitersOn(t, b, "k")) == 1 })
	fail.Store(true)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	let(t, h)
	free(t, b, "k")
}
