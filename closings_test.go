package fairlead

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/telemetry"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestBookkeeperIsLate: closings and recounts are late when their period is over, and only in the process that makes them.
func TestBookkeeperIsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bookkeeper{every: map[telemetry.BooksWork]time.Duration{telemetry.BooksClose: time.Minute, telemetry.BooksRecount: time.Hour}}
		b.forget()
		want := func(when string, closing, recount time.Duration) {
			t.Helper()
			if c, r := b.state(telemetry.BooksClose).Late, b.state(telemetry.BooksRecount).Late; c != closing || r != recount {
				t.Errorf("%s: a closing is late by %v, a recount by %v; want %v, %v", when, c, r, closing, recount)
			}
		}
		ago := func(d time.Duration) *time.Duration { return &d }
		want("another process keeps the books", 0, 0)
		b.dueAfter(telemetry.BooksClose, false, nil)
		b.dueAfter(telemetry.BooksRecount, true, nil)
		time.Sleep(2 * time.Hour)
		b.dueAfter(telemetry.BooksRecount, true, nil) // It is under way, or fails.
		want("before the first recount has ended", 0, 2*time.Hour)
		b.dueAfter(telemetry.BooksClose, true, ago(50*time.Second))
		b.dueAfter(telemetry.BooksRecount, true, ago(50*time.Second))
		time.Sleep(11 * time.Second)
		want("the last closing began 61 s ago", time.Second, 0)
		b.dueAfter(telemetry.BooksClose, false, ago(time.Hour))
		want("the ledger is small again", 0, 0)
		for _, c := range []struct{ valid, news bool }{{true, false}, {false, true}, {false, false}, {true, false}, {false, true}} {
			if news := b.finds(telemetry.BooksClose, c.valid); news != c.news {
				t.Errorf("a closing finds %v, and that is news: %v", c.valid, news)
			}
		}
		if !b.state(telemetry.BooksClose).Invalid || b.state(telemetry.BooksRecount).Invalid {
			t.Error("what a closing has found is not told, or by recounts")
		}
		b.forget()
		if b.state(telemetry.BooksClose).Invalid {
			t.Error("another process keeps the books, and this one tells what it had found")
		}
	})
}

// TestClosingsFollowGrowth has books closed whose next closing is a day away, whenever much was written.
func TestClosingsFollowGrowth(t *testing.T) {
	pgtest.Needs(t, pgkit.RowVersions) // Else nothing tells how much was written, and closings come by the clock alone.
	ctx := t.Context()
	url := pgtest.Server(t).URL()
	testwait.Must(t, testwait.Err(postgres.Migrate(ctx, url)))
	db, err := postgres.Open(ctx, postgres.Options{URL: url, Patience: testwait.Patience, UnavailableAfter: testwait.Patience})
	testwait.Must(t, err)
	defer db.Close()
	conn, err := pgx.Connect(ctx, url)
	testwait.Must(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	testwait.Must(t, testwait.Err(conn.Exec(ctx, `INSERT INTO accounts VALUES ('ann', 'EUR', 0, 0, 0, now())`)))
	ledger := postgres.NewLedger(db)
	size := func() int64 {
		books, err := ledger.Books(ctx, postgres.RunnerServer)
		testwait.Must(t, err)
		return books.Size
	}
	grow := func(bytes int64) {
		for before := size(); before < bytes; {
			testwait.Must(t, testwait.Err(conn.Exec(ctx, depositMany)))
			now := size()
			if now <= before {
				t.Fatalf("entries took %d bytes, and take %d after some were written", before, now)
			}
			before = now
		}
	}
	grow(8<<20 + 1) // Smaller ones are counted whenever somebody asks.

	registry := prometheus.NewRegistry()
	b := newBookkeeper(&Options{CloseBooksEvery: 24 * time.Hour, RecountEvery: 24 * time.Hour}, db, registry, barrier{logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	keeping, stop := context.WithCancel(ctx)
	var kept sync.WaitGroup
	kept.Go(func() { b.keep(keeping) })
	defer kept.Wait()
	defer stop()
	closings := func() (n uint64) {
		all, err := registry.Gather()
		testwait.Must(t, err)
		for _, family := range all {
			for _, m := range family.GetMetric() {
				if family.GetName() == "fairlead_books_duration_seconds" && m.GetLabel()[0].GetValue() == string(telemetry.BooksClose) {
					n += m.GetHistogram().GetSampleCount()
				}
			}
		}
		return n
	}
	testwait.Eventually(t, testwait.Patience, "a closing follows the first recount", func() bool { return closings() == 1 })
	grow(size() + closeGrowth)
	testwait.Eventually(t, testwait.Patience, "a closing follows 32 MB of entries", func() bool { return closings() == 2 })
	if in, err := ledger.Integrity(ctx); err != nil || !in.Valid {
		t.Errorf("integrity: %+v, %v", in, err)
	}
}

// depositMany writes 1,000 deposits of 1 on an account. Their entries are some 4 MB, by their memos.
const depositMany = `WITH before AS (SELECT version AS v FROM accounts WHERE id = 'ann'),
	n AS MATERIALIZED (SELECT i, (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7000' || '8000' || lpad(to_hex(v + i), 12, '0'))::uuid AS id, v + i AS version
		FROM before, generate_series(1, 1000) AS i),
	t AS (INSERT INTO transfers (id, kind, source, destination, amount, currency, status, created_at)
		SELECT id, 'deposit', 'outside/EUR', 'ann', 1, 'EUR', 'completed', now() FROM n),
	e AS (INSERT INTO entries (account, id, version, transfer, amount, currency, at, memo)
		SELECT 'outside/EUR', id, 0, id, -1, 'EUR', now(), repeat('m', 1900) FROM n UNION ALL SELECT 'ann', id, version, id, 1, 'EUR', now(), repeat('m', 1900) FROM n)
	UPDATE accounts SET available = available + 1000, version = version + 1000 WHERE id = 'ann'`

func TestSoonerClosings(t *testing.T) {
	t.Parallel()
	ago := time.Minute
	for name, c := range map[string]struct {
		closed      bool
		before, now postgres.Books
		want        bool
	}{
		"much is new":                {true, postgres.Books{Size: 5}, postgres.Books{Size: 5 + closeGrowth}, true},
		"not so much":                {true, postgres.Books{Size: 5}, postgres.Books{Size: 4 + closeGrowth}, false},
		"a month was archived":       {true, postgres.Books{Size: 5 + closeGrowth}, postgres.Books{Size: 5}, false},
		"nothing to go on from":      {false, postgres.Books{}, postgres.Books{Size: 2 * closeGrowth}, false},
		"the first recount":          {false, postgres.Books{}, postgres.Books{Closed: &ago}, true},
		"a ledger that became small": {false, postgres.Books{Closed: &ago}, postgres.Books{Closed: &ago}, false},
	} {
		if got := sooner(c.closed, c.before, c.now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
