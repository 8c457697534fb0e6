package pglock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// TestLockedKeysDelayNoOtherLine: leases end while a session that does not go away has locked the rows of their keys, or of their grants, and
// somebody waits for each of them. Other lines go on: who waits there keeps its place, and is handed the lock when its holder's lease ends.
func TestLockedKeysDelayNoOtherLine(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"keys":   `SELECT FROM "some locks".lock_keys WHERE key LIKE $1 FOR UPDATE`,
		"grants": `SELECT FROM "some locks".lock_grants WHERE keys[1] LIKE $1 FOR UPDATE`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := database(t)
			b := open(t, url, Options{})
			l := lock.New(b, lock.LockerOptions{})
			stranger, err := pgx.Connect(t.Context(), url)
			testwait.Must(t, err)
			defer func() { _ = stranger.Close(context.WithoutCancel(t.Context())) }()
			const blocked = 24
			var giveUp func()
			// The rows must be locked before a lease is over: a machine that is too slow for it gets longer leases.
			ttl := 2 * time.Second
			leases := func(over bool) (n int) {
				testwait.Must(t, b.pool.QueryRow(t.Context(), testSchema.in(`SELECT count(*) FROM @lock_grants WHERE keys[1] LIKE $1 AND (expires_at < clock_timestamp()) = $2`),
					"blocked for "+ttl.String()+"%", over).Scan(&n))
				return n
			}
			for ; ; ttl *= 2 {
				giveUp = waitsFor(t, l, "blocked for "+ttl.String(), blocked, ttl)
				began := time.Now()
				waitFor(t, "all wait", func() bool {
					s, err := b.Snapshot(t.Context())
					return err == nil && len(s.Waiters) == blocked || time.Since(began) > ttl
				})
				_, err = stranger.Exec(t.Context(), `BEGIN`)
				testwait.Must(t, err)
				_, err = stranger.Exec(t.Context(), sql, "blocked for "+ttl.String()+"%")
				testwait.Must(t, err)
				s, err := b.Snapshot(t.Context())
				if err == nil && len(s.Waiters) == blocked && leases(false) == blocked {
					break
				}
				testwait.Check(t, testwait.Err(stranger.Exec(t.Context(), `ROLLBACK`)))
				giveUp()
			}
			for n := range 3 {
				// Its holder has died: nobody but the look after those that wait ends its lease.
				acquire(t, l, "free", lock.Options{TTL: time.Second, NoRenewal: true})
				second := make(chan *lock.Held, 1)
				go func() {
					h, err := l.Acquire(t.Context(), []string{"free"}, lock.Options{TTL: time.Minute, Wait: lock.Forever})
					testwait.Check(t, err)
					second <- h
				}()
				h := <-second
				if h == nil {
					break
				}
				if n > 0 {
					waitFor(t, "the others' leases are over", func() bool { return leases(true) == blocked })
					if s, err := b.Snapshot(t.Context()); err != nil || len(s.Waiters) != blocked {
						t.Errorf("%d wait in the other lines: %v", len(s.Waiters), err)
					}
				}
				testwait.Check(t, h.Release(t.Context()))
			}
			testwait.Must(t, stranger.Close(t.Context()))
			giveUp()
		})
	}
}

// waitsFor takes so many keys for a lease that nobody renews, and has somebody wait for each until the returned function is called.
func waitsFor(t *testing.T, l *lock.Locker, prefix string, n int, ttl time.Duration) (giveUp func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for i := range n {
		key := fmt.Sprint(prefix, " ", i)
		acquire(t, l, key, lock.Options{TTL: ttl, NoRenewal: true})
		waiting.Go(func() {
			if _, err := l.Acquire(ctx, []string{key}, lock.Options{TTL: time.Minute, Wait: lock.Forever}); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	return func() {
		cancel()
		waiting.Wait()
	}
}

// TestLockedRowAndALimit: a session that does not go away has locked the row of a key, or the table of keys. A request that has a limit, of
// its own or its context's, ends while that lasts, and leaves nothing behind: the key is free when the stranger has gone.
func TestLockedRowAndALimit(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"row":   `SELECT FROM "some locks".lock_keys FOR UPDATE`,
		"table": `LOCK TABLE "some locks".lock_keys IN ACCESS EXCLUSIVE MODE`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := database(t)
			l := lock.New(open(t, url, Options{}), lock.LockerOptions{})
			testwait.Must(t, acquire(t, l, "key", lock.Options{}).Release(t.Context())) // So that its row is there.
			stranger, err := pgx.Connect(t.Context(), url)
			testwait.Must(t, err)
			defer func() { _ = stranger.Close(context.WithoutCancel(t.Context())) }()
			for _, statement := range []string{`BEGIN`, sql} {
				testwait.Must(t, testwait.Err(stranger.Exec(t.Context(), statement)))
			}
			brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			var requests sync.WaitGroup
			ask := func(ctx context.Context, limit time.Duration, want error) {
				requests.Go(func() {
					if _, err := l.Acquire(ctx, []string{"key"}, lock.Options{Wait: limit}); !errors.Is(err, want) {
						t.Errorf("%v: %v", limit, err)
					}
				})
			}
			ask(t.Context(), 0, ErrLocked)
			ask(t.Context(), 100*time.Millisecond, ErrLocked)
			ask(brief, lock.Forever, context.DeadlineExceeded)
			requests.Wait()
			testwait.Must(t, stranger.Close(t.Context()))
			testwait.Must(t, acquire(t, l, "key", lock.Options{Wait: lock.Forever}).Release(t.Context()))
		})
	}
}

// TestLockedRowLeavesConnections: a session that does not go away has locked the row of a key that many ask for. They wait with two connections at
// most, one for those who ask and one to give up, so that other keys are locked and released meanwhile.
func TestLockedRowLeavesConnections(t *testing.T) {
	t.Parallel()
	url := database(t)
	b := open(t, url, Options{})
	l := lock.New(b, lock.LockerOptions{})
	testwait.Must(t, acquire(t, l, "key", lock.Options{}).Release(t.Context())) // So that its row is there.
	stranger, err := pgx.Connect(t.Context(), url)
	testwait.Must(t, err)
	defer func() { _ = stranger.Close(context.WithoutCancel(t.Context())) }()
	for _, statement := range []string{`BEGIN`, `SELECT FROM "some locks".lock_keys WHERE key = 'key' FOR UPDATE`} {
		testwait.Must(t, testwait.Err(stranger.Exec(t.Context(), statement)))
	}
	ended := make(chan struct{}, 1024)
	ctx, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	askers := 2 * int(b.pool.Config().MaxConns)
	for range askers {
		asking.Go(func() {
			for ctx.Err() == nil {
				if _, err := l.Acquire(ctx, []string{"key"}, lock.Options{}); ctx.Err() == nil && !errors.Is(err, ErrLocked) {
					t.Error(err)
				}
				ended <- struct{}{}
			}
		})
	}
	looker := pool(t, url) // Not the stranger: within its transaction PostgreSQL would show it the same activity again and again.
	waiting := func() int {
		return count(t, looker, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event IN ('transactionid', 'tuple')`)
	}
	waitFor(t, "one waits for the row", func() bool { return waiting() > 0 })
	most := 0
	for range 2 * askers { // Each is given up once, and asks again.
		for over := false; !over; {
			h := acquire(t, l, "other", lock.Options{Wait: lock.Forever})
			testwait.Must(t, h.Release(t.Context()))
			most = max(most, waiting())
			select {
			case <-ended:
				over = true
			default:
			}
		}
	}
	if most > 2 {
		t.Errorf("%d connections waited for the row", most)
	}
	stop()
	testwait.Must(t, stranger.Close(t.Context()))
	asking.Wait()
}
