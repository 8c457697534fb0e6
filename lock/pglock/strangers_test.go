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
