package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// closes closes the books, which must be right, and tells how many entries that has counted.
func closes(t *testing.T, books *Ledger, entries int64) {
	t.Helper()
	if c, err := books.CloseBooks(t.Context(), Pace{}); err != nil || c == nil || !c.Valid || c.Entries != entries {
		t.Errorf("a closing: %+v, %v; want %d entries", c, err, entries)
	}
}

// checks checks the books.
func checks(t *testing.T, books *Ledger, when string, valid bool) ledger.Integrity {
	t.Helper()
	in, err := books.Integrity(t.Context())
	if err != nil || in.Valid != valid {
		t.Errorf("%s: %+v, %v", when, in, err)
	}
	return in
}

// closedAt is when the last closing began.
func closedAt(t *testing.T, db *DB) time.Time {
	t.Helper()
	return ask[time.Time](t, db, `SELECT coalesce(max(at), 'epoch') FROM ledger_closing`)
}

// TestClosingsRest cancels a closing while it pauses after its first part. The last one stays, and the next counts all that is new.
func TestClosingsRest(t *testing.T) {
	t.Parallel()
	const forever = 1 << 30 // times some microseconds
	db := open(t, Options{URL: database(t), MaxConns: 4})
	books := large(db)
	fund(t, newLedgerService(t, db), 1000, "ann")
	recounted(t, books, true)
	do(t, newLedgerService(t, db), ledger.Deposit{Account: "ann", Amount: 5})
	last := closedAt(t, db)
	base, next, err := books.beginClosing(t.Context())
	testwait.Must(t, err)
	if !books.tellsRows() {
		base.upto = partitions.At(partitions.Time(next.upto).Add(-time.Hour))
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	parts := 0
	_, err = books.countParts(ctx, base, next, closeWork, func() float64 {
		if parts++; parts == 1 {
			return 0
		}
		stop()
		return forever
	})
	if !errors.Is(err, context.Canceled) || parts != 2 {
		t.Errorf("a closing that was cancelled ends after %d parts with %v", parts, err)
	}
	if at := closedAt(t, db); !at.Equal(last) {
		t.Errorf("the last closing is that of %s, not of %s", at, last)
	}
	want := int64(2)
	if !books.tellsRows() {
		want = 0 // Its closings have no entries of the last ten minutes.
	}
	closes(t, books, want)
}

// TestClosingBesideASnapshot closes the books while somebody holds a snapshot.
func TestClosingBesideASnapshot(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowPlaces, pgkit.RowVersions)
	url := database(t)
	db := open(t, Options{URL: url})
	books, money := large(db), newLedgerService(t, db)
	fund(t, money, 1000, "ann", "ben")
	recounted(t, books, true)
	snapshot(t, url)
	db.chapters.Store(true)
	for range 3 {
		for range 10 {
			testwait.Check(t, transferOf(t, money, "ann", "ben"))
		}
		closes(t, books, 20)
	}
	checks(t, books, "beside a snapshot", true)
}

// TestClosingBesideALockedTable: somebody locks the entries while they are counted. The closing counts them once, when it can.
func TestClosingBesideALockedTable(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowPlaces, pgkit.RowVersions)
	db := open(t, Options{URL: database(t)})
	books, money := large(db), newLedgerService(t, db)
	fund(t, money, 1000, "ann", "ben")
	recounted(t, books, true)
	for range 10 {
		testwait.Check(t, transferOf(t, money, "ann", "ben"))
	}
	base, next, err := books.beginClosing(t.Context())
	testwait.Must(t, err)
	goAway := stranger(t, db, `LOCK TABLE entries IN ACCESS EXCLUSIVE MODE`)
	counting, ended := context.WithCancel(t.Context())
	waited := make(chan bool, 1)
	go func() {
		waits := false
		for !waits && wait.For(counting, time.Millisecond) {
			waits = db.BlockedReads() == 1
		}
		goAway()
		waited <- waits
	}()
	counted, err := books.countParts(t.Context(), base, next, closeWork, func() float64 { return 0 })
	ended()
	if waits := <-waited; err != nil || counted.entries != 20 || !waits {
		t.Errorf("%d entries, waited: %t, %v; want 20", counted.entries, waits, err)
	}
	closes(t, books, 20)
	checks(t, books, "after a lock", true)
}

// transferBy is a transfer of 3 from ann to ben that a session makes by its own statements.
const transferBy = `WITH id AS (SELECT $1::uuid AS id, $2::uuid AS entry), moved AS (
		UPDATE accounts SET available = available + CASE id WHEN 'ann' THEN -3 ELSE 3 END, version = version + 1 WHERE id IN ('ann', 'ben') RETURNING id, version),
	made AS (INSERT INTO transfers (id, kind, source, destination, amount, currency, status, created_at) SELECT id, 'transfer', 'ann', 'ben', 3, 'EUR', 'completed', now() FROM id)
	INSERT INTO entries (account, id, version, transfer, amount, currency, at)
	SELECT m.id, id.entry, m.version, id.id, CASE m.id WHEN 'ann' THEN -3 ELSE 3 END, 'EUR', now() FROM moved AS m, id`

// TestClosingsCountEachEntryOnce: transactions are under way while a closing is made, plain ones and nested ones. It leaves their entries out, and the
// next one counts those that were committed, also those of two-phase transactions that were prepared.
func TestClosingsCountEachEntryOnce(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowPlaces, pgkit.RowVersions, pgkit.Prepare)
	for name, c := range map[string]struct {
		before, then, after string
		entries             int64
	}{
		"committed":                 {``, ``, `COMMIT`, 2},
		"rolled back":               {``, ``, `ROLLBACK`, 0},
		"prepared":                  {``, `PREPARE TRANSACTION 'TestClosingsCountEachEntryOnce 1'`, `COMMIT PREPARED 'TestClosingsCountEachEntryOnce 1'`, 2},
		"nested":                    {`SAVEPOINT a`, ``, `COMMIT`, 2},
		"nested and prepared":       {`SAVEPOINT a`, `PREPARE TRANSACTION 'TestClosingsCountEachEntryOnce 2'`, `COMMIT PREPARED 'TestClosingsCountEachEntryOnce 2'`, 2},
		"nested twice and released": {`SAVEPOINT a; SAVEPOINT b`, `RELEASE a`, `COMMIT`, 2},
		"nested and rolled back":    {`SAVEPOINT a`, `ROLLBACK TO a`, `COMMIT`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen recorder
			db := open(t, Options{URL: database(t), Observer: &seen})
			books, money := large(db), newLedgerService(t, db)
			fund(t, money, 1000, "ann", "ben", "cleo")
			recounted(t, books, true)
			conn := sessionOf(t, db)
			run := func(sql string, args ...any) {
				t.Helper()
				testwait.Must(t, testwait.Err(conn.Exec(t.Context(), sql, args...)))
			}
			run(`BEGIN; SELECT pg_current_xact_id(); ` + c.before)
			run(transferBy, newID(), newID())
			run(c.then)
			do(t, money, ledger.Deposit{Account: "cleo", Amount: 5}) // Of a later transaction.
			closes(t, books, 2)
			checks(t, books, "beside a transaction", true)
			do(t, money, ledger.Deposit{Account: "cleo", Amount: 5})
			run(c.after)
			checks(t, books, "after its end", true)
			closes(t, books, 2+c.entries)
			checks(t, books, "after its closing", true)
			closes(t, books, 0)
			if n := seen.fallbacks()["closings"] + seen.fallbacks()["late"]; n > 0 {
				t.Errorf("%d fallbacks: %v", n, seen.fallbacks())
			}
		})
	}
}

// TestWrongClosingsAreDropped: a closing that is wrong accuses no account and hides none. It is dropped, and the next recount makes another.
func TestWrongClosingsAreDropped(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowPlaces, pgkit.RowVersions) // Elsewhere a closing of nothing is right for ten minutes.
	for name, sql := range map[string]string{
		"a page":          `UPDATE ledger_closing SET books = regexp_replace(books, '"Pages":\[-?\d+', '"Pages":[7')`,
		"deposits":        `UPDATE ledger_closing SET books = replace(books, '"Deposits":2000', '"Deposits":2007')`,
		"too many":        `UPDATE ledger_closing SET books = replace(books, '"Accounts":2', '"Accounts":3')`,
		"nothing":         `UPDATE ledger_closing SET books = '{}'`,
		"no number":       `UPDATE ledger_closing SET books = regexp_replace(books, '"Pages":\[-?\d+', '"Pages":[null')`,
		"half a flow":     `UPDATE ledger_closing SET books = replace(books, '"Deposits"', '"X"')`,
		"no JSON":         `UPDATE ledger_closing SET books = 'books'`,
		"another seed":    `UPDATE ledger_closing SET seed = seed + 1`,
		"another cluster": `UPDATE ledger_closing SET cluster = cluster + 1`,
		"of long ago":     `UPDATE ledger_closing SET snapshot = concat(a - 2147483648, ':', a - 2147483648, ':') FROM (SELECT ` + nextTransaction + ` AS a) AS a`,
		"no snapshot":     `UPDATE ledger_closing SET snapshot = 'xx'`,
		"half a snapshot": `UPDATE ledger_closing SET snapshot = rtrim(snapshot, ':') || ':1,,2'`,
		"of later":        `UPDATE ledger_closing SET snapshot = concat(a + 1000, ':', a + 1000, ':') FROM (SELECT ` + nextTransaction + ` AS a) AS a`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			useless := !strings.Contains(sql, "books") && !strings.Contains(sql, "seed")
			db := tampered(t)
			var seen recorder
			db.observer = &seen
			books, money := large(db), newLedgerService(t, db)
			fund(t, money, 1000, "ann", "ben")
			if closing, err := books.CloseBooks(t.Context(), Pace{}); closing != nil || err != nil {
				t.Errorf("a closing before the first recount: %+v, %v", closing, err)
			}
			recounted(t, books, true)
			before := ask[string](t, db, `SELECT l::text FROM ledger_closing AS l`)
			exec(t, db, sql)
			if after := ask[string](t, db, `SELECT l::text FROM ledger_closing AS l`); after == before {
				t.Fatalf("nothing is changed: %s", after)
			}
			do(t, money, ledger.MakeTransfer{From: "ann", To: "ben", Amount: 3})
			checks(t, books, "from a wrong closing", true)
			move := `UPDATE accounts SET available = available + CASE id WHEN 'ann' THEN $1::bigint ELSE -$1::bigint END`
			exec(t, db, move, 1)
			if in := checks(t, books, "a bad account, and a wrong closing", false); in.FirstBadAccount != "ann" {
				t.Errorf("%+v", in)
			}
			exec(t, db, move, -1)
			c, err := books.CloseBooks(t.Context(), Pace{})
			if c != nil || !useless && !errors.Is(err, errUnexplained) || useless && err != nil {
				t.Errorf("a closing on a wrong one: %+v, %v", c, err)
			}
			b, err := books.Books(t.Context(), RunnerOperator)
			if err != nil || b.Closed != nil {
				t.Errorf("there is a closing: %+v, %v", b, err)
			}
			want := 2
			if useless {
				want = 0 // It isn't asked.
			}
			if n := seen.fallbacks()["closings"]; n < want || useless && n > 0 {
				t.Errorf("%d times only a count of everything has agreed, want %d", n, want)
			}
			recounted(t, books, true)
			checks(t, books, "after a recount", true)
			closes(t, books, 0)
		})
	}
}

// nextTransaction is a number that is greater than that of each row.
const nextTransaction = `pg_snapshot_xmax(pg_current_snapshot())::text::bigint`

// TestClosingsOfTwoStay: of two closings that were begun on the same one, the later one stays, whichever is written last.
func TestClosingsOfTwoStay(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowPlaces, pgkit.RowVersions)
	db := open(t, Options{URL: database(t)})
	books, money := large(db), newLedgerService(t, db)
	fund(t, money, 1000, "ann", "ben")
	recounted(t, books, true)
	_, early, err := books.beginClosing(t.Context())
	testwait.Must(t, err)
	do(t, money, ledger.MakeTransfer{From: "ann", To: "ben", Amount: 3})
	closes(t, books, 2)
	last := closedAt(t, db)
	exec(t, db, moveClosing, early.at, early.upto, early.snapshot, `{}`, early.seed)
	if at := closedAt(t, db); !at.Equal(last) {
		t.Errorf("closed at %s, and not at %s", at, last)
	}
	checks(t, books, "after both", true)
}

// TestNewEntriesAreInNewPartitions: checks and closings look for new entries in the partitions of the time since the last closing, and in no older ones.
func TestNewEntriesAreInNewPartitions(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowPlaces, pgkit.RowVersions, pgkit.Partitions)
	db := open(t, Options{URL: pgtest.NewDatabase(t, longAgo), MaxConns: 4})
	books := large(db)
	recounted(t, books, true)
	do(t, newLedgerService(t, db), ledger.Deposit{Account: "old-05", Amount: 12})
	base, _, err := books.beginClosing(t.Context())
	testwait.Must(t, err)
	tx, err := sessionOf(t, db).Begin(t.Context())
	testwait.Must(t, err)
	testwait.Must(t, testwait.Err(tx.Exec(t.Context(), byOrder)))
	lines, err := pgkit.Rows(t.Context(), tx, pgx.RowTo[string], `EXPLAIN (ANALYZE, COSTS OFF) `+books.bookkeeping().sumEntries,
		base.seed, base.upto, uuid.Max, base.moment.Next, base.moment.Open, nil, nil)
	testwait.Must(t, errors.Join(err, tx.Rollback(t.Context())))
	plan := strings.Join(lines, "\n")
	if strings.Contains(plan, "entries_first") || !strings.Contains(plan, "_id_idx") || strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "entries_pkey") {
		t.Errorf("it reads these:\n%s", plan)
	}
	var summarized int
	closes(t, books, 2)
	for _, p := range partitionsOf(t, db) {
		summarized += ask[int](t, db, `SELECT brin_summarize_new_values(i.indexrelid) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_am AS m ON m.oid = c.relam
			WHERE i.indrelid = $1::text::regclass AND m.amname = 'brin'`, p)
	}
	if summarized != 0 {
		t.Errorf("%d ranges of entries were not summarized by the closing", summarized)
	}
}

// partitionsOf are the partitions that new entries are in.
func partitionsOf(t *testing.T, db *DB) (names []string) {
	t.Helper()
	all, err := partitions.List(t.Context(), db.pool, partitions.Entries)
	testwait.Must(t, err)
	for _, p := range all {
		if partitions.Time(p.To).After(time.Now()) && !p.Rest {
			names = append(names, p.Name)
		}
	}
	return names
}

// TestLateEntriesAreFound: entries are counted that were committed after a closing with ids of long before it, as from a server whose clock is late: of a day
// at most by the closing after it, and older ones by a recount.
func TestLateEntriesAreFound(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowPlaces, pgkit.RowVersions)
	db := tampered(t)
	var seen recorder
	db.observer = &seen
	books, money := large(db), newLedgerService(t, db)
	fund(t, money, 1000, "ann", "ben")
	recounted(t, books, true)
	late := func(amount int64, by time.Duration) {
		t.Helper()
		do(t, money, ledger.Deposit{Account: "ann", Amount: amount})
		exec(t, db, `UPDATE entries SET id = $1 WHERE abs(amount) = $2`, uuidAt(time.Now().Add(-by)), amount)
	}
	events := func(reason string, want int) {
		t.Helper()
		if n := seen.fallbacks()[reason]; n != want {
			t.Errorf("%d fallbacks for %s, want %d", n, reason, want)
		}
	}
	late(5, lateWithin/2)
	checks(t, books, "late by half a minute", true)
	closes(t, books, 2)
	events("late", 0)
	late(6, lateAtMost/2)
	checks(t, books, "late by half a day", true)
	closes(t, books, 2)
	events("late", 2)
	checks(t, books, "after its closing", true)
	closes(t, books, 0)
	events("late", 2)
	events("closings", 0)
	late(7, 3*lateAtMost)
	checks(t, books, "late by three days", true)
	events("closings", 1)
	if c, err := books.CloseBooks(t.Context(), Pace{}); c != nil || !errors.Is(err, errUnexplained) {
		t.Errorf("a closing: %+v, %v", c, err)
	}
	recounted(t, books, true)
	closes(t, books, 0)
	checks(t, books, "after a recount", true)
	events("closings", 2)
}

// TestWrongEntriesStayNew: a closing that has found a wrong entry, or account, does not count, so that checks go on finding it until it is repaired.
func TestWrongEntriesStayNew(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowPlaces, pgkit.RowVersions)
	db := tampered(t)
	books, money := large(db), newLedgerService(t, db)
	fund(t, money, 1000, "ann", "ben")
	recounted(t, books, true)
	last := closedAt(t, db)
	do(t, money, ledger.MakeTransfer{From: "ann", To: "ben", Amount: 3})
	for what, sql := range map[string][2]string{
		"an entry of no transfer": {
			`UPDATE entries SET transfer = gen_random_uuid() WHERE account = 'ben' AND amount = 3`,
			`UPDATE entries AS e SET transfer = (SELECT id FROM transfers WHERE amount = 3) WHERE amount = 3`,
		},
		"a balance": {`UPDATE accounts SET available = available + 7 WHERE id = 'ann'`, `UPDATE accounts SET available = available - 7 WHERE id = 'ann'`},
	} {
		exec(t, db, sql[0])
		for range 3 {
			checks(t, books, what, false)
			if c, err := books.CloseBooks(t.Context(), Pace{}); err != nil || c.Valid || c.BadTransfers == 0 && c.FirstBadAccount != "ann" {
				t.Errorf("%s: %+v, %v", what, c, err)
			}
		}
		exec(t, db, sql[1])
		checks(t, books, "after its repair", true)
	}
	if at := closedAt(t, db); !at.Equal(last) {
		t.Errorf("the last closing is that of %s, not of %s", at, last)
	}
	closes(t, books, 2)
}

func TestClosingsTakeParts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why     string
		last    time.Duration
		entries int64
		next    time.Duration
	}{
		{"as much as a part should do", time.Second, closeWork, time.Second},
		{"four times as much", time.Second, 4 * closeWork, time.Second / 4},
		{"nothing new", time.Second, 0, 2 * time.Second},
		{"a little more than half", time.Second, closeWork * 10 / 16, 1600 * time.Millisecond},
		{"very many at one time", closeAtLeast, 1 << 40, closeAtLeast},
	} {
		if next := closeNext(c.last, c.entries, closeWork); next != c.next {
			t.Errorf("%s, %d entries in %v: %v, want %v", c.why, c.entries, c.last, next, c.next)
		}
	}
}

func TestClosingsKeepUp(t *testing.T) {
	t.Parallel()
	minute := Pace{Rest: 9, Within: time.Minute}
	for _, c := range []struct {
		pace Pace
		took time.Duration
		want float64
	}{
		{Pace{}, time.Hour, 0},
		{Pace{Rest: 7}, time.Hour, 7},
		{minute, 0, 9},
		{minute, 20 * time.Second, 6},
		{minute, 55 * time.Second, 0.75},
		{minute, time.Minute, 0},
		{minute, time.Hour, 0},
	} {
		if n := c.pace.after(c.took); n != c.want {
			t.Errorf("%+v after %v: %g, want %g", c.pace, c.took, n, c.want)
		}
	}
}

func TestRecountsTakeParts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ most, least, accounts, want int64 }{
		{8192, 64, 0, 64},
		{8192, 64, 1000, 500},
		{8192, 64, 100_000, 8192},
		{32768, 0, 10, 32768},
		{0, 0, 10, 1},
	} {
		r := newRecount()
		r.Beside = c.accounts
		if n := r.atOnce(RecountOptions{Blocks: c.most, Least: c.least}); n != c.want {
			t.Errorf("%d to %d blocks beside %d of accounts: %d, want %d", c.least, c.most, c.accounts, n, c.want)
		}
	}
}
