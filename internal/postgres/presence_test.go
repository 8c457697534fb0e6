package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/internal/testpromise"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// absent opens a database through a proxy that can take it away, with another connection around the proxy.
func absent(t *testing.T, after time.Duration) (db *DB, proxy *wire.Proxy, seen *recorder, around *DB) {
	t.Helper()
	direct := database(t)
	around = open(t, Options{URL: direct})
	proxy, through := wire.Through(t, direct, wire.Options{})
	seen = &recorder{}
	return open(t, Options{URL: through, Observer: seen, UnavailableAfter: after}), proxy, seen, around
}

// TestAnAbsentDatabaseIsGivenUpInTime queues commands behind each other while the database refuses, and while it is silent:
// what each has waited for its turn counts too.
func TestAnAbsentDatabaseIsGivenUpInTime(t *testing.T) {
	t.Parallel()
	for name, manner := range map[string]wire.Manner{"refusing": wire.Unsent, "silent": wire.Silent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const after = 2 * time.Second
			db, proxy, _, around := absent(t, after)
			fund(t, newLedgerService(t, around), 100, "ann", "ben")
			s := ledger.NewService(NewLedger(db), groupcommit.Options{MaxBatch: 1, CloseGrace: time.Minute})
			t.Cleanup(func() { _ = s.Close(context.Background()) })
			proxy.TakeAway(0, manner)
			defer proxy.GiveBack()
			testpromise.CheckEach(t, []string{"unavailable"}, func(seen func(string, time.Duration)) {
				var group sync.WaitGroup
				for n := range 8 {
					group.Go(func() {
						start := time.Now()
						// A new account is never speculative.
						_, err := s.Execute(t.Context(), keyed[ledger.Op](ledger.CreateAccount{ID: "new" + strconv.Itoa(n), Currency: "EUR"}, strconv.Itoa(n), ""))
						if !errors.Is(err, command.ErrUnavailable) {
							t.Errorf("%d: %v", n, err)
						}
						seen("unavailable", time.Since(start)-after+UnavailableAfter)
					})
				}
				group.Wait()
			})
			if n := ask[int](t, around, `SELECT count(*) FROM accounts WHERE id LIKE 'new%'`); n != 0 {
				t.Errorf("%d accounts were made", n)
			}
		})
	}
}

// TestASilentCommitIsUnknownInTime lets the database fall silent when COMMIT is sent. On a machine that stalls before that for as long
// as the database may be silent, it may be so for twice as long.
func TestASilentCommitIsUnknownInTime(t *testing.T) {
	t.Parallel()
	testpromise.Check(t, "unavailable", func() time.Duration {
		after := 2 * time.Second
		took, begun := silentCommit(t, after)
		for ; !begun && after < patience; took, begun = silentCommit(t, after) {
			after *= 2
		}
		if !begun {
			t.Error("the database did not answer before it was silent")
		}
		return took - after + UnavailableAfter
	})
}

// silentCommit lets a transaction commit at a database that is silent from then on, and may be so for some time. It returns how long it
// took until nobody knew, and false if the machine stalled before.
func silentCommit(t *testing.T, after time.Duration) (took time.Duration, begun bool) {
	t.Helper()
	db, proxy, _, _ := absent(t, after)
	var start time.Time
	err := db.run(t.Context(), "test", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT 1`); err != nil {
			return err
		}
		start = time.Now()
		proxy.TakeAway(0, wire.Silent)
		return nil
	})
	took = time.Since(start)
	if start.IsZero() && errors.Is(err, command.ErrUnavailable) {
		return 0, false
	}
	if !errors.Is(err, command.ErrUnknownOutcome) {
		t.Errorf("after %s: %v", took, err)
	}
	proxy.GiveBack()
	return took, true
}

// TestWhatRunsIsNotCut runs a transaction, and a read, for longer than the database may be silent. On a machine that stalls for as long as
// that, the database is silent: then it may be so for twice as long.
func TestWhatRunsIsNotCut(t *testing.T) {
	t.Parallel()
	for after := time.Second; ; after *= 2 {
		db, _, seen, _ := absent(t, after)
		sleep := fmt.Sprintf(`SELECT pg_sleep(%f)::text`, (after + 2*time.Second).Seconds())
		err := db.run(t.Context(), "test", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, sleep)
			return err
		})
		if reasons, _, _ := seen.seen(); err == nil && len(reasons) > 0 {
			err = command.Unavailable(fmt.Errorf("reruns for %v", reasons)) // As where this process stalled before the statement.
		}
		if err == nil {
			expectRuns(t, seen, "committed")
			_, err = query(t.Context(), db, pgx.RowTo[string], sleep)
		}
		if err == nil {
			return
		}
		away := errors.Is(err, command.ErrUnavailable) || errors.Is(err, command.ErrUnknownOutcome)
		if !away || after >= 16*time.Second {
			t.Fatalf("what may be silent for %s: %v", after, err)
		}
	}
}

// TestAnOutageThatEndsSoonIsWaitedFor gives the database back as soon as it has been missed.
func TestAnOutageThatEndsSoonIsWaitedFor(t *testing.T) {
	t.Parallel()
	db, proxy, seen, _ := absent(t, 0)
	proxy.TakeAway(0, wire.Unsent)
	end := make(chan error, 1)
	go func() {
		end <- db.run(t.Context(), "test", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT 1`)
			return err
		})
	}()
	testwait.Eventually(t, patience, "it is missed", func() bool { reasons, _, _ := seen.seen(); return len(reasons) > 0 })
	proxy.GiveBack()
	testwait.Check(t, <-end)
}

// TestADatabaseThatTakesNoConnections has PostgreSQL refuse sessions of a database, as while it is maintained. No session began, so nothing was applied, and
// whoever asks again later is answered.
func TestADatabaseThatTakesNoConnections(t *testing.T) {
	t.Parallel()
	url := database(t)
	db := open(t, Options{URL: url, UnavailableAfter: time.Second})
	s := newLedgerService(t, db)
	fund(t, s, 100, "ann")
	name := ask[string](t, db, `SELECT current_database()`)
	allow := func(on bool) {
		t.Helper()
		conn := pgtest.Connect(t, strings.Replace(url, "/"+name, "/postgres", 1))
		testwait.Must(t, testwait.Err(conn.Exec(t.Context(), fmt.Sprintf(`ALTER DATABASE %s ALLOW_CONNECTIONS %t`, name, on))))
		testwait.Must(t, testwait.Err(conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = $1`, name)))
	}
	account := func() error {
		_, err := NewLedger(db).Account(t.Context(), "ann")
		return err
	}
	pay := func() error {
		_, err := s.Execute(t.Context(), keyed[ledger.Op](ledger.Deposit{Account: "ann", Amount: 1}, "key", ""))
		return err
	}
	allow(false)
	defer allow(true) // Also for whoever drops it.
	for what, ask := range map[string]func() error{"a read": account, "a command": pay} {
		for range 3 {
			if err := ask(); !errors.Is(err, command.ErrUnavailable) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	allow(true)
	for what, ask := range map[string]func() error{"a read": account, "a command": pay} {
		testwait.Eventually(t, patience, what+" is answered", func() bool { return ask() == nil })
	}
}
