package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/archive"
	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions/partitionstest"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// longAgo makes a database with two months of history, of long ago.
func longAgo(ctx context.Context, url string) error {
	if err := migrated(ctx, url); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	year, now := time.Now().Year()-1, time.Now()
	err = partitionstest.Begin(ctx, conn, time.Date(year, 1, 15, 0, 0, 0, 0, time.UTC), now)
	for month := time.January; month <= time.February && err == nil; month++ {
		if _, err = conn.Exec(ctx, partitionstest.Month(year, month, 1, 1000)); err == nil {
			err = partitionstest.Holds(ctx, conn, time.Date(year, month, 1, 0, 0, 0, 0, time.UTC))
		}
	}
	return errors.Join(err, conn.Close(ctx))
}

// archiveAll archives whatever it may.
func archiveAll(t *testing.T, db *DB) {
	t.Helper()
	r, err := db.Archive(t.Context(), archive.Options{Before: time.Now(), Directory: t.TempDir()})
	testwait.Must(t, err)
	if len(r.Made) < 2 {
		t.Fatalf("archived %+v", r)
	}
}

// TestBooksAfterAnArchive closes, checks and recounts the books of a ledger whose old history is archived: in parts, in one snapshot, from closings of before
// the archive, and from wrong ones.
func TestBooksAfterAnArchive(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.RowPlaces, pgkit.RowVersions, pgkit.Partitions)
	var seen recorder
	db := open(t, Options{URL: pgtest.NewDatabase(t, longAgo), Observer: &seen})
	l, money := large(db), newLedgerService(t, db)
	check := func(when string) {
		t.Helper()
		in, err := l.Integrity(t.Context())
		if err != nil || !in.Valid || len(in.Currencies) != 1 || in.Currencies[0].Deposits.String() != "8076" || in.Currencies[0].Withdrawals.String() != "673" {
			t.Fatalf("%s: %+v, %v", when, in, err)
		}
	}
	recounted(t, l, true)
	do(t, money, ledger.Deposit{Account: "old-05", Amount: 12})
	do(t, money, ledger.Withdraw{Account: "old-05", Amount: 1})
	check("before")
	// A recount is under way while the archive is made.
	ctx, stop := context.WithCancel(t.Context())
	o := RecountOptions{Runner: RunnerOperator, Blocks: 1, Progress: func(at RecountProgress) {
		if at.Done > 2 {
			stop()
		}
	}}
	if _, err := l.Recount(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	archiveAll(t, db)
	check("after the archive, from closings of before it")
	o.Progress = nil
	if in, err := l.Recount(t.Context(), o); err != nil || !in.Valid {
		t.Fatalf("a recount: %+v, %v", in, err)
	}
	check("after a recount")
	closes(t, l, 4)
	check("after a closing")
	exec(t, db, `DELETE FROM ledger_closing`)
	check("without a closing")
	recounted(t, l, true)
	check("from a closing of what is archived, too")
	for _, reason := range []string{"recount", "closings"} {
		if n := seen.fallbacks()[reason]; n > 0 {
			t.Errorf("%d times only a count of everything has agreed: %s", n, reason)
		}
	}
	if in, err := NewLedger(db).Integrity(t.Context()); err != nil || !in.Valid {
		t.Errorf("a count of everything: %+v, %v", in, err)
	}

	store, err := NewLog(db)
	testwait.Must(t, err)
	t.Cleanup(func() { closing(t, store.Shutdown) })
	c, err := store.CloseBooks(t.Context(), func(account string) string { return account })
	testwait.Must(t, err)
	if got := fmt.Sprint(c.Sums); got != "[{SIM 7331 72 7403 0}]" {
		t.Errorf("the public log's closing: %s", got)
	}
	entries, err := l.Entries(t.Context(), "old-05", 0, 10)
	if err != nil || len(entries) != 2 || entries[1].Version-entries[0].Version != 1 {
		t.Errorf("the entries that are kept: %+v, %v", entries, err)
	}
	_, err = l.Transfer(t.Context(), partitions.At(time.Date(time.Now().Year()-1, 1, 7, 0, 0, 0, 0, time.UTC)))
	if gone, is := errors.AsType[*ledger.TransferNotFoundError](err); !is || gone.Archived.IsZero() {
		t.Errorf("an archived transfer: %v", err)
	}
	_, err = l.Hold(t.Context(), partitions.At(time.Date(time.Now().Year()-1, 1, 7, 0, 0, 0, 0, time.UTC)))
	if gone, is := errors.AsType[*ledger.HoldNotFoundError](err); !is || gone.Archived.IsZero() {
		t.Errorf("an archived hold: %v", err)
	}
	for id, archived := range map[uuid.UUID]bool{partitions.At(time.Date(time.Now().Year()-1, 1, 7, 0, 0, 0, 0, time.UTC)): true, newID(): false} {
		testwait.Must(t, l.Commit(t.Context(), ledger.Want{Holds: []uuid.UUID{id}}, func(u *ledger.Unit) { _, err = u.Book.Release(id) }))
		if gone, is := errors.AsType[*ledger.HoldNotFoundError](err); !is || gone.Archived.IsZero() == archived {
			t.Errorf("a hold is released that was archived (%t): %v", archived, err)
		}
	}
	_, err = l.Transfer(t.Context(), newID())
	if absent, is := errors.AsType[*ledger.TransferNotFoundError](err); !is || !absent.Archived.IsZero() {
		t.Errorf("no transfer: %v", err)
	}
	exec(t, db, `UPDATE accounts SET available = available + 1 WHERE id = 'old-09'`)
	if in, err := l.Integrity(t.Context()); err != nil || in.Valid || in.FirstBadAccount != "old-09" {
		t.Errorf("a balance whose entries are archived was changed: %+v, %v", in, err)
	}
}

// TestUnfinishedHistoryIsReported has no partition for this month, and an archive that somebody began and left.
func TestUnfinishedHistoryIsReported(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Partitions)
	db := open(t, Options{URL: pgtest.NewDatabase(t, longAgo)})
	reported := func() (found []string) {
		t.Helper()
		findings, err := db.Check(t.Context())
		testwait.Must(t, err)
		for _, f := range findings {
			if f.Check == "partitions" {
				found = append(found, f.Message+"; "+f.Remedy)
			}
		}
		return found
	}
	if found := reported(); len(found) != 1 || !strings.Contains(found[0], "the table of holds was last turned at ") {
		t.Errorf("reported: %q", found)
	}
	exec(t, db, `UPDATE hold_turns SET settled_at = NULL WHERE number = 2`)
	if found := reported(); len(found) != 1 || !strings.Contains(found[0], "turn 2 of the table of holds was begun at ") {
		t.Errorf("reported: %q", found)
	}
	exec(t, db, `UPDATE hold_turns SET settled_at = now() WHERE number = 2`)
	if found := reported(); len(found) > 0 {
		t.Errorf("reported: %q", found)
	}
	all, err := partitions.List(t.Context(), db.pool, partitions.AuditLog)
	testwait.Must(t, err)
	for _, p := range all {
		if !p.Rest && !partitions.Time(p.From).Before(time.Now().AddDate(0, -2, 0)) {
			exec(t, db, `DROP TABLE `+p.Name)
		}
	}
	exec(t, db, `INSERT INTO archives (number, upto, began_at, host, directory) VALUES (1, gen_random_uuid(), now(), 'mill', '/srv/archives')`)
	found := reported()
	if len(found) != 2 || !strings.Contains(found[0], "the last partition of audit_log ended at ") || !strings.Contains(found[1], "archive 1 was begun at ") ||
		!strings.Contains(found[1], " and has not ended") || !strings.Contains(found[1], "run it there again with --to /srv/archives") {
		t.Errorf("reported: %q", found)
	}
	if made, err := db.ExtendHistory(t.Context()); err != nil || made == 0 {
		t.Errorf("made %d partitions: %v", made, err)
	}
	if found := reported(); len(found) != 1 {
		t.Errorf("reported: %q", found)
	}
}

// TestArchivedAuction has the bids and events of an auction leave, as an archive has them do. The log is compared with what is there, and a new process
// that meets the auction knows that it is over.
func TestArchivedAuction(t *testing.T) {
	t.Parallel()
	db := tampered(t)
	l := newKeptLog(t, db)
	_, end := l.keep(t, 1, nil)
	s, id := lot(t, db, nil)
	for i := range 20 {
		decide(t, s, id, auction.PlaceBid{Account: []string{"ann", "bob"}[i%2], Amount: int64(10 + i)})
	}
	decide(t, s, id, auction.Cancel{})
	l.published(t, func() int64 { return 1 + 3 + 20 + 1 })
	end()
	exec(t, db, `UPDATE auctions SET first_seq = seq + 1`)
	exec(t, db, `DELETE FROM auction_bids`)
	exec(t, db, `DELETE FROM auction_events`)
	if c, err := db.CheckLog(t.Context(), 0); err != nil || c.Difference != "" || !c.Complete || c.Topics != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	other := open(t, Options{URL: db.url})
	fresh := auction.NewService(NewAuctions(other), auction.Options{})
	t.Cleanup(func() { closing(t, fresh.Close) })
	a, err := fresh.Execute(t.Context(), id, own[auction.Op](auction.PlaceBid{Account: "ann", Amount: 500}))
	if err = errors.Join(err, a.Err); !errors.Is(err, auction.ErrNotActive) {
		t.Errorf("a bid on it: %v", err)
	}
	_, err = NewEvents(other, testViews()).Events(t.Context(), auction.Topic(id), 0, 10)
	if _, expired := errors.AsType[*live.ExpiredError](err); !expired {
		t.Errorf("its stream: %v", err)
	}
}

// TestHistoryInOnePiece has the tables be in use for long when they are to be put into partitions: they stay as they are, the doctor says so, and a
// server puts them into partitions later. A server that finds partitions locks nothing.
func TestHistoryInOnePiece(t *testing.T) {
	t.Parallel()
	pgtest.Needs(t, pgkit.Partitions)
	url := pgtest.NewDatabase(t, migrated)
	seen := &recorder{}
	db := open(t, Options{URL: url, Observer: seen})
	for _, table := range partitions.Tables() {
		exec(t, db, `CREATE TABLE anew (LIKE `+table+` INCLUDING ALL)`)
		exec(t, db, `DROP TABLE `+table)
		exec(t, db, `ALTER TABLE anew RENAME TO `+table)
	}
	begin := func() pgx.Tx {
		t.Helper()
		tx, err := db.pool.Begin(t.Context())
		testwait.Must(t, err)
		_, err = tx.Exec(t.Context(), `SET LOCAL idle_in_transaction_session_timeout = 0; LOCK TABLE entries IN ROW EXCLUSIVE MODE`)
		testwait.Must(t, err)
		return tx
	}
	inOnePiece := func() (found int) {
		t.Helper()
		findings, err := db.Check(t.Context())
		testwait.Must(t, err)
		for _, f := range findings {
			if f.Check == "partitions" && strings.Contains(f.Message, "in one piece") {
				found++
			}
		}
		return found
	}
	writer := begin()
	testwait.Must(t, migrated(t.Context(), url))
	if found := inOnePiece(); found != len(partitions.Tables()) {
		t.Errorf("%d tables are reported to be in one piece", found)
	}
	if _, err := db.ExtendHistory(t.Context()); !isLockTimeout(err) || seen.fallbacks()["in_one_piece"] != 1 {
		t.Errorf("a server tries again, while they are in use: %v, %v", err, seen.fallbacks())
	}
	testwait.Must(t, writer.Rollback(t.Context()))
	testwait.Must(t, second(db.ExtendHistory(t.Context())))
	if found := inOnePiece(); found != 0 {
		t.Errorf("%d tables are reported to be in one piece", found)
	}
	writer = begin()
	conn := pgtest.Connect(t, url)
	testwait.Must(t, partitions.Convert(t.Context(), conn, time.Now())) // It would fail if it locked anything.
	testwait.Must(t, writer.Rollback(t.Context()))
}
