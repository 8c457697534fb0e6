package pglock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// takeTurns has workers lock and unlock keys of their own, so many times each, and returns the last tokens.
func takeTurns(t *testing.T, b *Backend, keys []string, times int) map[string]int64 {
	t.Helper()
	l := lock.New(b, lock.LockerOptions{})
	var all sync.WaitGroup
	last := make([]int64, len(keys))
	for i, k := range keys {
		all.Go(func() {
			for range times {
				h, err := l.Acquire(t.Context(), []string{k}, lock.Options{Wait: lock.Forever, TTL: time.Minute})
				if err != nil {
					t.Errorf("%s: %v", k, err)
					return
				}
				if token := h.Tokens()[k]; token <= last[i] {
					t.Errorf("%s: token %d after %d", k, token, last[i])
				} else {
					last[i] = token
				}
				testwait.Check(t, h.Release(t.Context()))
			}
		})
	}
	all.Wait()
	tokens := map[string]int64{}
	for i, k := range keys {
		tokens[k] = last[i]
	}
	return tokens
}

func keysOfWorkers(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("worker %02d", i))
	}
	return keys
}

// countsTransactions has the database note each transaction that grants or ends a lock, and returns how many there were.
func countsTransactions(t *testing.T, url string) func() int64 {
	t.Helper()
	p := pool(t, url)
	testwait.Must(t, testwait.Err(p.Exec(t.Context(), testSchema.in(`
		CREATE TABLE noted (id xid8);
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO public.noted VALUES (pg_current_xact_id());
			RETURN NULL;
		END $$;
		CREATE TRIGGER noted AFTER INSERT OR DELETE ON @lock_grants EXECUTE FUNCTION note()`))))
	return func() (n int64) {
		testwait.Must(t, p.QueryRow(t.Context(), `SELECT count(DISTINCT id) FROM noted`).Scan(&n))
		return n
	}
}

func TestLocksOfDifferentKeysShareCommits(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Functions)
	url := database(t)
	b := open(t, url, Options{})
	keys := keysOfWorkers(32)
	const times = 25
	transactions := countsTransactions(t, url)
	for k, token := range takeTurns(t, b, keys, times) {
		if token != times {
			t.Errorf("%s: the last token is %d", k, token)
		}
	}
	if used, errands := transactions(), int64(2*times*len(keys)); used == 0 || used > errands/2 {
		t.Errorf("%d transactions for %d requests and releases", used, errands)
	}
}

// TestSharingWaitsForNobody: a session that does not go away has locked the row of one key, or that of a grant. Others, which share
// round trips with those that need it, don't notice.
func TestSharingWaitsForNobody(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"a key":   `SELECT FROM "some locks".lock_keys WHERE key = 'worker 00' FOR UPDATE`,
		"a grant": `SELECT FROM "some locks".lock_grants WHERE 'worker 00' = ANY (keys) FOR UPDATE`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := database(t)
			b := open(t, url, Options{})
			keys := keysOfWorkers(16)
			takeTurns(t, b, keys, 1)
			l := lock.New(b, lock.LockerOptions{})
			held := acquire(t, l, keys[0], lock.Options{TTL: time.Minute})
			if name == "a key" {
				let(t, held)
			}
			stranger, err := pgx.Connect(t.Context(), url)
			testwait.Must(t, err)
			defer func() { _ = stranger.Close(context.Background()) }()
			_, err = stranger.Exec(t.Context(), `BEGIN`)
			testwait.Must(t, err)
			_, err = stranger.Exec(t.Context(), sql)
			testwait.Must(t, err)
			var blocked sync.WaitGroup
			blocked.Go(func() {
				if name == "a grant" {
					testwait.Check(t, held.Release(t.Context()))
					return
				}
				h, err := l.Acquire(t.Context(), keys[:1], lock.Options{Wait: lock.Forever, TTL: time.Minute})
				if testwait.Check(t, err); err == nil {
					testwait.Check(t, h.Release(t.Context()))
				}
			})
			waitFor(t, "one waits for the stranger", func() (waits bool) {
				testwait.Must(t, b.pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits))
				return waits
			})
			takeTurns(t, b, keys[1:], 20)
			testwait.Must(t, stranger.Close(t.Context()))
			blocked.Wait()
		})
	}
}

// TestSharingOutlivesSilence: a round trip gets no answer. Others gather behind it no longer than [SharePatience].
func TestSharingOutlivesSilence(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Functions)
	url := database(t)
	b := open(t, url, Options{})
	keys := keysOfWorkers(16)
	takeTurns(t, b, keys, 1)
	stranger, err := pgx.Connect(t.Context(), url)
	testwait.Must(t, err)
	defer func() { _ = stranger.Close(context.WithoutCancel(t.Context())) }()
	_, err = stranger.Exec(t.Context(), testSchema.in(`ALTER FUNCTION @lock_share RENAME TO share; SELECT pg_advisory_lock(1);
		CREATE FUNCTION @lock_share(
			ask_keys text[], ask_ids text[], owners text[], ttls bigint[], holds bigint[], end_keys text[], end_ids text[],
			OUT ended text[], OUT in_time boolean[], OUT ages bigint[], OUT granted text[], OUT new_tokens bigint[], OUT lease_ends timestamptz[]
		) LANGUAGE plpgsql AS $$ BEGIN
			IF 'worker 00' = ANY (ask_keys) THEN
				PERFORM pg_advisory_xact_lock(1);
			END IF;
			SELECT * INTO ended, in_time, ages, granted, new_tokens, lease_ends FROM @share(ask_keys, ask_ids, owners, ttls, holds, end_keys, end_ids);
		END $$`))
	testwait.Must(t, err)
	b.busy.Add(2) // As if others were under way.
	defer b.busy.Add(-2)
	stuck, r := make(chan error, 1), ask("ada", keys[0])
	r.TTL = time.Hour
	go func() { stuck <- b.Release(t.Context(), grant(t, b, r)) }()
	waitFor(t, "a round trip without an answer", func() (waits bool) {
		testwait.Must(t, b.pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks JOIN pg_database d ON d.oid = database WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted)`).Scan(&waits))
		return waits
	})
	takeTurns(t, b, keys[1:], 2)
	select {
	case err := <-stuck:
		t.Errorf("others waited for it: %v", err)
	default:
	}
	_, err = stranger.Exec(t.Context(), `SELECT pg_advisory_unlock(1)`)
	testwait.Must(t, err)
	testwait.Check(t, <-stuck)
}

// TestSharingAmongProcesses has fewer keys than workers, who belong to several processes, so that requests are alone, in line and in
// cohorts by turns. One at a time has a key.
func TestSharingAmongProcesses(t *testing.T) {
	t.Parallel()
	url := database(t)
	keys := keysOfWorkers(8)
	inside := make([]atomic.Int64, len(keys))
	tokens := make([]atomic.Int64, len(keys))
	var all sync.WaitGroup
	for range 3 {
		l := lock.New(open(t, url, Options{}), lock.LockerOptions{})
		for i := range 12 {
			all.Go(func() {
				for n := range 30 {
					at := (i + n*n) % len(keys)
					h, err := l.Acquire(t.Context(), []string{keys[at]}, lock.Options{Wait: lock.Forever, TTL: time.Minute})
					if err != nil {
						t.Error(err)
						return
					}
					if others := inside[at].Add(1) - 1; others != 0 {
						t.Errorf("%s: %d others have it", keys[at], others)
					}
					if token := h.Tokens()[keys[at]]; tokens[at].Swap(token) >= token {
						t.Errorf("%s: token %d is no greater than the one before", keys[at], token)
					}
					inside[at].Add(-1)
					testwait.Check(t, h.Release(t.Context()))
				}
			})
		}
	}
	all.Wait()
}

// TestSharingEndsWhatIsOver: a lock whose lease has ended is not released, and one that was released is not released twice.
func TestSharingEndsWhatIsOver(t *testing.T) {
	t.Parallel()
	url := database(t)
	b := open(t, url, Options{})
	keys := keysOfWorkers(3)
	takeTurns(t, b, keys, 1)
	b.busy.Add(2) // As if others were under way.
	defer b.busy.Add(-2)
	grants := make([]lock.Grant, len(keys))
	for i, k := range keys {
		r := ask(fmt.Sprint("owner ", i), k)
		r.TTL = time.Minute
		grants[i] = grant(t, b, r)
	}
	_, err := b.pool.Exec(t.Context(), testSchema.in(`UPDATE @lock_grants SET expires_at = clock_timestamp() WHERE $1 = ANY (keys)`), keys[0])
	testwait.Must(t, err)
	for i, want := range []error{lock.ErrLost, nil, nil} {
		if err := b.Release(t.Context(), grants[i]); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", keys[i], err, want)
		}
	}
	for i := range keys {
		if err := b.Release(t.Context(), grants[i]); !errors.Is(err, lock.ErrLost) {
			t.Errorf("%s, again: %v", keys[i], err)
		}
	}
}

// TestSharingOnOlderTables: without the function all goes on as before, and the log says once what to do.
func TestSharingOnOlderTables(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Functions)
	url := database(t)
	var log strings.Builder
	b := open(t, url, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	_, err := b.pool.Exec(t.Context(), testSchema.in(`DROP FUNCTION @lock_share`))
	testwait.Must(t, err)
	takeTurns(t, b, keysOfWorkers(8), 10)
	b.Close()
	if n := strings.Count(log.String(), "install the schema again"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log.String())
	}
	testwait.Must(t, install(t.Context(), url))
	takeTurns(t, open(t, url, Options{}), keysOfWorkers(8), 2)
}
