package postgres

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// The index of id and chapter lets an id in again that has come to a later chapter since. onlyAccounts sees that, because a conflict with what has not
// committed is waited for, and it is a later statement with a later snapshot.
const insertAccounts = `INSERT INTO accounts (id, currency, available, held, version, created_at)
	SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::timestamptz[])
	ON CONFLICT DO NOTHING RETURNING 1`

const guardedInsertAccounts = `WITH written AS (` + insertAccounts + `)
	SELECT 1 / (count(*) = $7::bigint)::integer FROM written`

const (
	onlyAccounts        = `SELECT 1 FROM accounts WHERE id = ANY($1)`
	guardedOnlyAccounts = `SELECT 1 / (count(*) = $2::bigint)::integer FROM accounts WHERE id = ANY($1)`
)

// Only rows that are as they were loaded are written. The version alone would say so, but for a failover to a server that
// lacks the last commits: there a version may come again with another balance. The chapter leads to the living version past the dead ones of earlier
// chapters, where a snapshot keeps them (docs/adr/0061). The array is in order of id, and the join
// follows it, so that rows which were not locked before are locked in canonical order here: "= ANY" of an array lets it begin
// at no other side, as the planner's settings leave it no scan of the whole table (see planning).
const updateAccounts = `UPDATE accounts AS a SET available = n.available, held = n.held, version = n.version, chapter = n.chapter
	FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[])
		AS n (id, available, held, version, chapter, old_available, old_held, old_version, old_chapter)
	WHERE a.id = ANY (ARRAY[n.id]) AND a.chapter = n.old_chapter AND a.version = n.old_version AND a.available = n.old_available AND a.held = n.old_held RETURNING 1`

const guardedUpdateAccounts = `WITH written AS (` + updateAccounts + `)
	SELECT 1 / (count(*) = $10::bigint)::integer FROM written`

// A transfer's two entries repeat what it says, so they are made from it: that is fewer values to send and to decode, and
// they sum to zero whatever they are made from. One that did not complete has none.
const insertTransfers = `WITH moved AS MATERIALIZED (
		SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::text[],
			$10::uuid[], $11::bigint[], $12::uuid[], $13::bigint[], $14::timestamptz[])
		AS n (id, kind, source, destination, amount, currency, status, reason, memo,
			source_entry, source_version, destination_entry, destination_version, at)
	), recorded AS (
		INSERT INTO transfers (id, kind, source, destination, amount, currency, status, reason, memo, created_at)
		SELECT id, kind, source, destination, amount, currency, status, reason, memo, at FROM moved
	)
	INSERT INTO entries (account, id, version, transfer, amount, currency, at, memo)
	SELECT source, source_entry, source_version, id, -amount, currency, at, memo FROM moved WHERE status = 'completed'
	UNION ALL
	SELECT destination, destination_entry, destination_version, id, amount, currency, at, memo FROM moved WHERE status = 'completed'`

// The unique index of completed references is the guard. It is the primary key's work to tell that each transfer has one.
const insertReferences = `INSERT INTO transfer_references (transfer, reference, completed, available)
	SELECT transfer, reference, status = 'completed', available
	FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[]) AS n (transfer, reference, status, available)`

const insertReferencesOrNothing = insertReferences + ` ON CONFLICT (reference) WHERE completed DO NOTHING`

const insertLegs = `INSERT INTO transfer_legs (transfer, leg, source, destination, amount, currency, part)
	SELECT * FROM unnest($1::uuid[], $2::smallint[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::uuid[])`

// An open hold that an auction placed has its amount in the standing bid, which each raise writes; see the view holds.
const insertHolds = `INSERT INTO hold_rows (id, account, amount, captured, status, expires_at, created_at, closed_at, transfer, owner)
	SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::timestamptz[], $7::timestamptz[], $8::timestamptz[], $9::uuid[], $10::text[])`

const updateHolds = `UPDATE hold_rows AS h SET amount = n.amount, captured = n.captured, status = n.status, closed_at = n.closed_at, transfer = n.transfer
	FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::timestamptz[], $6::uuid[]) AS n (id, amount, captured, status, closed_at, transfer)
	WHERE h.id = ANY (ARRAY[n.id]) AND h.closed_at IS NULL RETURNING 1`

const guardedUpdateHolds = `WITH written AS (` + updateHolds + `)
	SELECT 1 / (count(*) = $7::bigint)::integer FROM written`

// Arrays of UUIDs are passed as [16]byte, which the driver encodes directly; for uuid.UUID it would first try the slow
// way over driver.Valuer.

// saveBook queues the writes of a book's changes. Every transaction that moves money ends up here, whichever service
// it belongs to.
func saveBook(b *pgx.Batch, c ledger.Changes, how writes) {
	saveNewAccounts(b, c.CreatedAccounts, how)
	saveAccounts(b, c.UpdatedAccounts, how)
	saveTransfers(b, c.Transfers, c.Entries)
	saveLegs(b, c.Legs)
	saveReferences(b, c.References, how)
	saveHolds(b, c.CreatedHolds, c.UpdatedHolds, how)
}

func saveNewAccounts(b *pgx.Batch, accounts []ledger.Account, how writes) {
	n := len(accounts)
	if n == 0 {
		return
	}
	ids, currencies, created := make([]string, n), make([]string, n), make([]time.Time, n)
	available, held, versions := make([]int64, n), make([]int64, n), make([]int64, n)
	for i, a := range accounts {
		ids[i], currencies[i], created[i] = a.ID, a.Currency, a.CreatedAt
		available[i], held[i], versions[i] = a.Available, a.Held, a.Version
	}
	// An id that is taken was taken by another process since we looked.
	how.queue(b, insertAccounts, guardedInsertAccounts, n, errStale, ids, currencies, available, held, versions, created)
	how.queue(b, onlyAccounts, guardedOnlyAccounts, n, errStale, ids)
}

// saveAccounts queues the balances, and orders the changes by account.
func saveAccounts(b *pgx.Batch, ordered []ledger.AccountChange, how writes) {
	n := len(ordered)
	if n == 0 {
		return
	}
	slices.SortFunc(ordered, func(x, y ledger.AccountChange) int { return strings.Compare(x.ID, y.ID) })
	ids, available, held, versions, chapters := make([]string, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	oldAvailable, oldHeld, oldVersions, oldChapters := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	for i := range ordered {
		a := &ordered[i]
		ids[i], available[i], held[i], versions[i], chapters[i] = a.ID, a.Available, a.Held, a.Version, a.Chapter
		oldAvailable[i], oldHeld[i], oldVersions[i], oldChapters[i] = a.Before.Available, a.Before.Held, a.Before.Version, a.Before.Chapter
	}
	how.queue(b, updateAccounts, guardedUpdateAccounts, n, errLostRow, ids, available, held, versions, chapters, oldAvailable, oldHeld, oldVersions, oldChapters)
}

// saveTransfers queues transfers with their entries, which are in the transfers' order.
func saveTransfers(b *pgx.Batch, transfers []ledger.Transfer, entries []ledger.Entry) {
	n := len(transfers)
	if n == 0 {
		return
	}
	ids, kinds, from, to := make([][16]byte, n), make([]string, n), make([]string, n), make([]string, n)
	amounts, currencies, statuses := make([]int64, n), make([]string, n), make([]string, n)
	reasons, memos, created := make([]string, n), make([]string, n), make([]time.Time, n)
	fromEntries, fromVersions, toEntries, toVersions := make([][16]byte, n), make([]int64, n), make([][16]byte, n), make([]int64, n)
	next := 0
	for i := range transfers {
		t := &transfers[i]
		ids[i], kinds[i], from[i], to[i] = t.ID, string(t.Kind), t.From, t.To
		amounts[i], currencies[i], statuses[i] = t.Amount, t.Currency, string(t.Status)
		reasons[i], memos[i], created[i] = t.Reason, t.Memo, t.CreatedAt
		for ; next < len(entries) && entries[next].Transfer == t.ID; next++ {
			if e := &entries[next]; e.Account == t.From {
				fromEntries[i], fromVersions[i] = e.ID, e.Version
			} else {
				toEntries[i], toVersions[i] = e.ID, e.Version
			}
		}
	}
	expectRows(b.Queue(insertTransfers, ids, kinds, from, to, amounts, currencies, statuses, reasons, memos,
		fromEntries, fromVersions, toEntries, toVersions, created), len(entries), errLostRow)
}

func saveLegs(b *pgx.Batch, legs []ledger.RecordedLeg) {
	n := len(legs)
	if n == 0 {
		return
	}
	transfers, numbers, parts := make([][16]byte, n), make([]int16, n), make([]*[16]byte, n)
	from, to, amounts, currencies := make([]string, n), make([]string, n), make([]int64, n), make([]string, n)
	for i := range legs {
		l := &legs[i]
		transfers[i], numbers[i], parts[i] = l.Transfer, int16(l.Number), (*[16]byte)(l.Part) //nolint:gosec // It is below [ledger.MaxLegs].
		from[i], to[i], amounts[i], currencies[i] = l.From, l.To, l.Amount, l.Currency
	}
	b.Queue(insertLegs, transfers, numbers, from, to, amounts, currencies, parts)
}

// saveReferences takes the references in their order, so that two transactions that share some wait for each other in one direction
// only. One that is taken was taken by another process since we looked: the rerun answers from what that process has done.
func saveReferences(b *pgx.Batch, ordered []ledger.Referenced, how writes) {
	n := len(ordered)
	if n == 0 {
		return
	}
	slices.SortFunc(ordered, func(x, y ledger.Referenced) int { return strings.Compare(x.Reference, y.Reference) })
	transfers, references, statuses, available := make([][16]byte, n), make([]string, n), make([]string, n), make([]int64, n)
	for i := range ordered {
		r := &ordered[i]
		transfers[i], references[i], statuses[i], available[i] = r.ID, r.Reference, string(r.Status), r.Available
	}
	if how == guardedWrites {
		b.Queue(insertReferences, transfers, references, statuses, available)
		return
	}
	expectRows(b.Queue(insertReferencesOrNothing, transfers, references, statuses, available), n, errStale)
}

// saveHolds writes those that are closed first: they make room, in the index of open ones, for those that follow them.
func saveHolds(b *pgx.Batch, created, updated []ledger.Hold, how writes) {
	updated = slices.DeleteFunc(updated, amountElsewhere)
	if n := len(updated); n > 0 {
		ids, amounts, captured, statuses := make([][16]byte, n), make([]int64, n), make([]int64, n), make([]string, n)
		closed, transfers := make([]*time.Time, n), make([]*[16]byte, n)
		for i, h := range updated {
			ids[i], amounts[i], captured[i], statuses[i] = h.ID, h.Amount, h.Captured, string(h.Status)
			closed[i], transfers[i] = h.ClosedAt, (*[16]byte)(h.Transfer)
		}
		how.queue(b, updateHolds, guardedUpdateHolds, n, errLostRow, ids, amounts, captured, statuses, closed, transfers)
	}
	if n := len(created); n > 0 {
		ids, accounts, amounts, captured := make([][16]byte, n), make([]string, n), make([]*int64, n), make([]int64, n)
		statuses, expires, owners := make([]string, n), make([]*time.Time, n), make([]string, n)
		at, closed, transfers := make([]time.Time, n), make([]*time.Time, n), make([]*[16]byte, n)
		for i, h := range created {
			ids[i], accounts[i], captured[i] = h.ID, h.Account, h.Captured
			if !amountElsewhere(h) {
				amounts[i] = &h.Amount
			}
			statuses[i], expires[i], owners[i] = string(h.Status), h.ExpiresAt, h.Owner
			at[i], closed[i], transfers[i] = h.CreatedAt, h.ClosedAt, (*[16]byte)(h.Transfer)
		}
		expectRows(b.Queue(insertHolds, ids, accounts, amounts, captured, statuses, expires, at, closed, transfers, owners), n, errLostRow)
	}
}

// amountElsewhere reports whether a hold's row is without its amount: only auctions own holds, and an open one's amount is
// that of the standing bid.
func amountElsewhere(h ledger.Hold) bool { return h.Owner != "" && h.Status == ledger.HoldOpen }

// errLostRow is returned when a row that this transaction has locked was not written as expected. Nothing that is
// known can cause it; the transaction is rolled back and the error returned.
var errLostRow = errors.New("a locked row was not written as expected")
