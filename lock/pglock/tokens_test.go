package pglock

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// TestTokensAfterLostGrants takes the tables back to an earlier state, in which one key has an older token and another has no
// row, as a restore does. Each token after the jump is greater than every one before, whichever way a lock is asked for.
func TestTokensAfterLostGrants(t *testing.T) {
	t.Parallel()
	url := database(t)
	p := pool(t, url)
	l := lock.New(open(t, url, Options{}), lock.LockerOptions{})
	var most int64
	grant := func(o lock.Options, keys ...string) (least int64) {
		t.Helper()
		h, err := l.Acquire(t.Context(), keys, o)
		testwait.Must(t, err)
		testwait.Must(t, h.Release(t.Context()))
		least = math.MaxInt64
		for _, token := range h.Tokens() {
			least, most = min(least, token), max(most, token)
		}
		return least
	}
	rewind := func() {
		t.Helper()
		for _, sql := range []string{`UPDATE @lock_keys SET token = 1 WHERE key = 'old'`, `DELETE FROM @lock_keys WHERE key <> 'old'`} {
			testwait.Must(t, testwait.Err(p.Exec(t.Context(), testSchema.in(sql))))
		}
	}
	for range 10 {
		grant(lock.Options{}, "old")
		grant(lock.Options{}, "new")
		grant(lock.Options{}, "both", "old")
	}
	rewind()
	if token := grant(lock.Options{}, "new"); token != 1 {
		t.Fatalf("the restore was not one: token %d", token)
	}
	rewind()
	kept, err := l.Acquire(t.Context(), []string{"old"}, lock.Options{})
	testwait.Must(t, err)
	for range 2 {
		before := most
		floor, err := testSchema.AdvanceTokens(t.Context(), p, 100)
		testwait.Must(t, err)
		if floor <= before {
			t.Errorf("the floor is %d, and %d was given before", floor, before)
		}
		for i, keys := range [][]string{{"new"}, {fmt.Sprint("made of one", floor)}, {fmt.Sprint("made of two", floor), "new"}} {
			if token := grant(lock.Options{}, keys...); token <= floor || token <= before {
				t.Errorf("request %d, for %q: token %d after the jump to %d, and %d was given before", i, keys, token, floor, before)
			}
		}
	}
	// Who had a lock has it still, with its token, and the next one's is greater.
	if err := kept.Context().Err(); err != nil {
		t.Error(err)
	}
	testwait.Must(t, kept.Release(t.Context()))
	if token := grant(lock.Options{}, "old"); token <= kept.Token("old")+200 {
		t.Errorf("token %d after %d", token, kept.Token("old"))
	}
	for _, by := range []int64{0, -1, math.MaxInt64} {
		if _, err := testSchema.AdvanceTokens(t.Context(), p, by); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("by %d: %v", by, err)
		}
	}
}

// TestRequestDuringTheJump asks for new keys while the transaction of a jump is open: it has not committed its floor yet.
func TestRequestDuringTheJump(t *testing.T) {
	t.Parallel()
	url := database(t)
	p := pool(t, url)
	l := lock.New(open(t, url, Options{}), lock.LockerOptions{})
	testwait.Must(t, acquire(t, l, "warm", lock.Options{}).Release(t.Context())) // So that statements are prepared.
	tx, err := p.Begin(t.Context())
	testwait.Must(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	floor, err := testSchema.AdvanceTokens(t.Context(), tx, LostGrants)
	testwait.Must(t, err)
	requests := [][]string{{"one"}, {"two", "three"}}
	held := make(chan *lock.Held, len(requests))
	for _, keys := range requests {
		go func() {
			h, err := l.Acquire(testwait.Context(t, soon), keys, lock.Options{})
			testwait.Check(t, err)
			held <- h
		}()
	}
	testwait.Eventually(t, soon, "both requests wait for the table", func() (both bool) {
		testwait.Must(t, p.QueryRow(t.Context(), `SELECT count(*) = 2 FROM pg_locks JOIN pg_database d ON d.oid = database
			WHERE datname = current_database() AND NOT granted AND relation = $1::regclass`,
			pgx.Identifier{string(testSchema), "lock_keys"}.Sanitize()).Scan(&both))
		return both
	})
	testwait.Must(t, tx.Commit(t.Context()))
	for range requests {
		h := <-held
		if h == nil {
			continue
		}
		for key, token := range h.Tokens() {
			if token <= floor {
				t.Errorf("%s has token %d after the jump to %d", key, token, floor)
			}
		}
		testwait.Check(t, h.Release(t.Context()))
	}
}
