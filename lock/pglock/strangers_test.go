package pglock

import (
	"context"
	"errors"
	"fmt"
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
		"keys":   `SELECT FROM "some locks".lock_keys WHERE key LIKE 'blocked%' FOR UPDATE`,
		"grants": `SELECT FROM "some locks".lock_grants WHERE keys[1] LIKE 'blocked%' FOR UPDATE`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := database(t)
			b := open(t, url, Options{})
			l := lock.New(b, lock.LockerOptions{})
			ctx, giveUp := context.WithCancel(t.Context())
			const blocked = 24
			waiting := make(chan error, blocked)
			for i := range blocked {
				key := fmt.Sprint("blocked ", i)
				acquire(t, l, key, lock.Options{TTL: 2 * time.Second, NoRenewal: true})
				go func() {
					_, err := l.Acquire(ctx, []string{key}, lock.Options{TTL: time.Minute, Wait: lock.Forever})
					waiting <- err
				}()
			}
			stranger, err := pgx.Connect(t.Context(), url)
			testwait.Must(t, err)
			defer func() { _ = stranger.Close(context.WithoutCancel(t.Context())) }()
			waitFor(t, "all wait", func() bool { s, err := b.Snapshot(t.Context()); return err == nil && len(s.Waiters) == blocked })
			_, err = stranger.Exec(t.Context(), `BEGIN`)
			testwait.Must(t, err)
			_, err = stranger.Exec(t.Context(), sql)
			testwait.Must(t, err)
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
				if n > 0 { // By now the others' leases are over.
					if s, err := b.Snapshot(t.Context()); err != nil || len(s.Waiters) != blocked {
						t.Errorf("%d wait in the other lines: %v", len(s.Waiters), err)
					}
				}
				testwait.Check(t, h.Release(t.Context()))
			}
			testwait.Must(t, stranger.Close(t.Context()))
			giveUp()
			for range blocked {
				if err := <-waiting; err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		})
	}
}
