package postgres

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/lottery"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestAReadThatIsGivenUpEnds keeps the one connection for reads waiting for a table, and gives the read up. PostgreSQL must end
// it too, and the next read be served by the same connection: a client that comes and goes must not pile up sessions.
func TestAReadThatIsGivenUpEnds(t *testing.T) {
	t.Parallel()
	url := database(t)
	db := open(t, Options{URL: url, MaxConns: 2, ReadConns: 1})
	const backend = `SELECT pg_backend_pid()`
	before, err := queryOne(t.Context(), db.reads, nil, pgx.RowTo[int], backend)
	testwait.Must(t, err)
	other := pgtest.Connect(t, url)
	tx, err := other.Begin(t.Context())
	testwait.Must(t, err)
	testwait.Must(t, testwait.Err(tx.Exec(t.Context(), `LOCK TABLE draws IN ACCESS EXCLUSIVE MODE`)))
	waits := func() bool {
		return ask[bool](t, db, `SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'`, before)
	}
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, _, err := NewLottery(db).Result(ctx, newID())
			failed <- err
		}()
		testwait.Eventually(t, patience, "the read waits for the table", waits)
		cancel()
		if err := <-failed; !errors.Is(err, command.ErrUnavailable) && !errors.Is(err, context.Canceled) { // As it waited for the table, or was about to take a connection.
			t.Fatalf("a read that was given up: %v", err)
		}
		testwait.Eventually(t, patience, "PostgreSQL ends the read", func() bool { return !waits() })
	}
	testwait.Must(t, tx.Rollback(t.Context()))
	after, err := queryOne(t.Context(), db.reads, nil, pgx.RowTo[int], backend)
	if err != nil || after != before {
		t.Errorf("the read after them is served by session %d, %v; before it was %d", after, err, before)
	}
}

// TestReadsOfALockedTable has many read a table that is locked. They leave connections to the reads of others, read when the table is free, and are told
// that it is locked if it stays so.
func TestReadsOfALockedTable(t *testing.T) {
	t.Parallel()
	url := database(t)
	db := open(t, Options{URL: url, ReadConns: 4})
	fund(t, newLedgerService(t, db), 5, "ann")
	tx, err := pgtest.Connect(t, url).Begin(t.Context())
	testwait.Must(t, err)
	testwait.Must(t, testwait.Err(tx.Exec(t.Context(), `LOCK TABLE draws IN ACCESS EXCLUSIVE MODE`)))
	const readers = 12
	ended := make(chan error, readers)
	begin := func() {
		for range readers {
			go func() {
				_, _, err := NewLottery(db).Result(t.Context(), newID())
				ended <- err
			}()
		}
		testwait.Eventually(t, patience, "all of them wait outside of connections", func() bool { return db.BlockedReads()+len(ended) == readers })
	}
	begin()
	for range 20 {
		if _, err := NewLedger(db).Account(t.Context(), "ann"); err != nil {
			t.Fatalf("a read of another table: %v", err)
		}
		waiting := ask[int](t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'fairlead reads' AND wait_event_type = 'Lock'`)
		if waiting > 1 {
			t.Fatalf("%d connections wait for the table, and one would do", waiting)
		}
	}
	for range readers {
		err := <-ended
		if _, blocked := errors.AsType[*command.BlockedError](err); !blocked {
			t.Errorf("a read of a table that stays locked: %v", err)
		}
	}
	begin()
	testwait.Must(t, tx.Rollback(t.Context()))
	for range readers {
		if err := <-ended; !errors.Is(err, lottery.ErrNotDrawn) {
			t.Errorf("a read when the table is free again: %v", err)
		}
	}
	if n := db.BlockedReads(); n != 0 {
		t.Errorf("%d reads wait for nothing", n)
	}
}
