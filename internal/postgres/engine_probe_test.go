package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// sends counts how often something is sent.
type sends struct {
	net.Conn

	n *atomic.Int64
}

func (s sends) Write(p []byte) (int, error) {
	s.n.Add(1)
	return s.Conn.Write(p)
}

// TestProbeIsSentAtOnce: all trials are sent together, and the answers tell everything.
func TestProbeIsSentAtOnce(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(pgtest.Without(t, pgtest.NewDatabase(t, nil)))
	testwait.Must(t, err)
	var n atomic.Int64
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return sends{conn, &n}, err
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	testwait.Must(t, err)
	t.Cleanup(func() { testwait.Check(t, conn.Close(context.WithoutCancel(t.Context()))) })
	var durable string
	testwait.Must(t, conn.QueryRow(t.Context(), `SHOW synchronous_commit`).Scan(&durable))
	n.Store(0)
	all := append(replaceable(), pgkit.ReadCommitted)
	found, err := pgkit.Probe(t.Context(), conn, all...)
	if err != nil || len(found.Lacks()) > 0 || len(found.Unsure()) > 0 {
		t.Errorf("%+v, %v", found, err)
	}
	if n.Load() != 1 {
		t.Errorf("%d sends", n.Load())
	}
	// Nothing is left behind.
	var left string
	testwait.Must(t, conn.QueryRow(t.Context(), `SELECT concat_ws(' ', (SELECT string_agg(c, ' ') FROM pg_listening_channels() AS c),
		(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()), current_setting('synchronous_commit'), (SELECT count(*) FROM pg_class WHERE relname = 'fairlead_probe'))`).
		Scan(&left))
	if left != "0 "+durable+" 0" {
		t.Errorf("left %q", left)
	}
}

// TestProbeThatFailsIsNoLack: only a refusal of the engine says that it lacks something. Everything else is an error, or, where the
// role may not try, taken to be there.
func TestProbeThatFailsIsNoLack(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"57014": "error", // a statement's timeout
		"55P03": "error", // a lock's
		"53200": "error", // out of memory
		"57P01": "error", // an operator ends the session
		"XX000": "error",
		"42501": "there", // no privilege
		"25006": "there", // a standby
		"0A000": "lacks",
		"42883": "lacks",
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Without(t, pgtest.NewDatabase(t, nil))
			pgtest.Shadow(t, url, fmt.Sprintf(`CREATE FUNCTION skew.pg_advisory_xact_lock(bigint) RETURNS void LANGUAGE plpgsql
				AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '%s'; END $$`, code))
			var log bytes.Buffer
			db, err := Open(t.Context(), Options{URL: url, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			got := "error"
			if err == nil {
				t.Cleanup(db.Close)
				got = "there"
				if !db.engine.Has(pgkit.AdvisoryLocks) {
					got = "lacks"
				}
			} else if pgkit.Code(err) != code || !unreadyForAny(err) {
				t.Error(err)
			}
			if got != want {
				t.Errorf("%s: %v", got, err)
			}
			if told := strings.Contains(log.String(), "may not try"); told != (code == "42501") {
				t.Errorf("told: %s", log.String())
			}
		})
	}
}

func unreadyForAny(err error) bool {
	_, ok := errors.AsType[*operator.UnreadyError](err)
	return ok
}

// TestSnapshotIsNotReadCommitted: an engine may take the words and give a transaction one snapshot.
func TestSnapshotIsNotReadCommitted(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: database(t)})
	config := db.reads.pool.Config()
	config.ConnConfig.RuntimeParams["default_transaction_isolation"] = "repeatable read"
	stale, err := pgxpool.NewWithConfig(t.Context(), config)
	testwait.Must(t, err)
	t.Cleanup(stale.Close)
	for what, reader := range map[string]*pgxpool.Pool{"READ COMMITTED": db.reads.pool, "a snapshot": stale} {
		if sees, err := seesCommits(t.Context(), reader, db.pool); err != nil || sees != (reader != stale) {
			t.Errorf("%s: sees %v, %v", what, sees, err)
		}
	}
	if n := ask[int](t, db, `SELECT count(*) FROM servers`); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	empty := open(t, Options{URL: pgtest.NewDatabase(t, nil)})
	if sees, err := seesCommits(t.Context(), empty.reads.pool, empty.pool); err != nil || !sees {
		t.Errorf("without the schema: %v, %v", sees, err)
	}
}

// TestBooksWithoutVersionsOfRows closes and recounts the books where rows don't tell which transaction wrote them.
func TestBooksWithoutVersionsOfRows(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: unaudited(t, pgkit.RowVersions)})
	books, money := large(db), newLedgerService(t, db)
	fund(t, money, 1000, "ann", "ben")
	do(t, money, ledger.MakeTransfer{From: "ann", To: "ben", Amount: 3})
	if closing, err := books.CloseBooks(t.Context(), Pace{}); closing != nil || err != nil {
		t.Errorf("a closing before the first recount: %+v, %v", closing, err)
	}
	recounted(t, books, true)
	state := func(large, valid bool) {
		t.Helper()
		b, err := books.Books(t.Context(), RunnerOperator)
		if err != nil || b.Large != large || b.UnderWay || b.Valid != valid || b.Closed == nil || b.Recounted == nil {
			t.Errorf("%+v, %v", b, err)
		}
	}
	state(true, true)
	sound := func(want string) {
		t.Helper()
		in := checks(t, books, "of the bad account "+want, want == "")
		if in.FirstBadAccount != want || in.Currencies[0].Deposits.Int64() != 2000 {
			t.Errorf("%+v; want %q", in, want)
		}
	}
	closes(t, books, 0)
	sound("")
	do(t, money, ledger.MakeTransfer{From: "ann", To: "ben", Amount: 4})
	sound("")
	closes(t, books, 0) // Nothing is ten minutes old.
	exec(t, db, `UPDATE ledger_closing SET upto = $1`, uuidAt(time.Now().Add(-2*settledAfter)))
	exec(t, db, `UPDATE entries SET id = $1 WHERE abs(amount) = 4`, uuidAt(time.Now().Add(-3*settledAfter/2)))
	sound("")
	closes(t, books, 2)
	sound("")
	closes(t, books, 0)
	if n := ask[int](t, db, `SELECT count(*) FROM ledger_closing WHERE snapshot IS NOT NULL OR cluster IS NOT NULL`); n > 0 {
		t.Error("there is a snapshot")
	}
	exec(t, db, `UPDATE accounts SET available = available + 1 WHERE id = 'ben'`)
	sound("ben")
	if c, err := books.CloseBooks(t.Context(), Pace{}); err != nil || c.Valid || c.FirstBadAccount != "ben" {
		t.Errorf("%+v, %v", c, err)
	}
	recounted(t, books, false)
	state(true, false)
	exec(t, db, `UPDATE accounts SET available = available - 1 WHERE id = 'ben'`)
	recounted(t, books, true)
	sound("")
	// An entry that comes late is not counted by closings any more.
	do(t, money, ledger.MakeTransfer{From: "ann", To: "ben", Amount: 5})
	exec(t, db, `UPDATE entries SET id = $1 WHERE abs(amount) = 5`, uuidAt(time.Now().Add(-2*settledAfter)))
	sound("")
	if c, err := books.CloseBooks(t.Context(), Pace{}); c != nil || !errors.Is(err, errUnexplained) {
		t.Errorf("%+v, %v", c, err)
	}
	recounted(t, books, true)
	closes(t, books, 0)
	// As a server sees it: a few entries are counted whenever somebody asks.
	books = NewLedger(db)
	state(false, true)
	sound("")
	if n := ask[int](t, db, `SELECT count(*) FROM ledger_recounts`); n != 1 {
		t.Errorf("%d recounts are kept", n)
	}
}

// TestWordsOfAMissingCapability: what is missing is told once, with what is used instead.
func TestWordsOfAMissingCapability(t *testing.T) {
	t.Parallel()
	db := open(t, Options{URL: pgtest.Without(t, pgtest.NewDatabase(t, nil), pgkit.RowVersions)})
	findings, err := db.Check(t.Context())
	testwait.Must(t, err)
	const want = "there is no xmin (the setting fairlead.without switches it off); instead, closings look at all accounts, and the books are recounted in one snapshot"
	told := 0
	for _, f := range findings {
		if f.Check == "engine" && f.Message == want && !f.Fatal {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%+v", findings)
	}
}
