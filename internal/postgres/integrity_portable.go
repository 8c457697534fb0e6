package postgres

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// The statements of closings where rows don't tell the transaction that wrote them: there is no horizon, so that all accounts are looked at.
const (
	suspectAccountsPlainly = `WITH changed AS MATERIALIZED (SELECT` + changedAccounts + anyAccount + suspectsAmong
	selectClosingPlainly   = `SELECT NULL::text` + lastBooks + countedAsMany
	beginClosingPlainly    = `SELECT clock_timestamp(), NULL::bigint, NULL::bigint, 0::bigint`
	moveClosingPlainly     = `UPDATE ledger_closing SET` + moveSums + `horizon = $4::bigint, cluster = NULL` + moveOn + ` AND $5::bigint IS NULL`
	selectKeptPlainly      = `SELECT ` + countedAsMany + `, 0::bigint` + booksKept
	// An entry takes some 140 bytes.
	countedAsMany = `(SELECT count(*) FROM (SELECT FROM entries LIMIT greatest($1::bigint, 0) / 140 + 1) AS e) > floor($1::numeric / 140)`
)

// bookkeeping are the statements of closings.
type bookkeeping struct {
	large, kept                                                              string
	selectClosing, beginClosing, closeAccounts, suspectAccounts, moveClosing string
}

func (l *Ledger) books() bookkeeping {
	if l.tellsRows() {
		return bookkeeping{`SELECT ` + manyEntries, selectBooksKept, selectClosing, beginClosing, closeAccounts, suspectAccounts, moveClosing}
	}
	return bookkeeping{`SELECT ` + countedAsMany, selectKeptPlainly, selectClosingPlainly, beginClosingPlainly, closeAccountsPlainly, suspectAccountsPlainly, moveClosingPlainly}
}

// tellsRows reports whether rows tell their places and the transactions that wrote them, as a recount in parts needs.
func (l *Ledger) tellsRows() bool {
	return l.db.engine.Has(pgkit.RowPlaces) && l.db.engine.Has(pgkit.RowVersions)
}

// recountAtOnce counts everything in one snapshot, and has closings begin from it. It can't go on in another snapshot: what was written
// later could not be told from the rest.
func (l *Ledger) recountAtOnce(ctx context.Context, o RecountOptions) (out ledger.Integrity, err error) {
	if o.Progress != nil {
		o.Progress(RecountProgress{})
	}
	for {
		err := pgx.BeginTxFunc(ctx, l.db.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) (err error) {
			out, err = countAndClose(ctx, tx, o.Runner)
			return err
		})
		if pgkit.Code(err) != serializationFailure { // Another process has recounted in this moment.
			return out, err
		}
	}
}

func countAndClose(ctx context.Context, tx pgx.Tx, runner string) (out ledger.Integrity, err error) {
	if _, err := tx.Exec(ctx, scanFreely); err != nil {
		return out, err
	}
	if out, err = countWhole(ctx, tx); err != nil {
		return out, err
	}
	settled := uuidAt(out.CheckedAt.Add(-settledAfter))
	_, old, err := flowsSince(ctx, tx, uuid.UUID{}, settled)
	if err != nil {
		return out, err
	}
	sums, err := json.Marshal(old)
	if err != nil {
		return out, err
	}
	var readOnly bool
	if err := tx.QueryRow(ctx, `SELECT current_setting('transaction_read_only')::boolean`).Scan(&readOnly); err != nil || readOnly {
		return out, err
	}
	id := newID()
	var b pgx.Batch
	b.Queue(dropRecount, runner) // One that was begun where it could be saved.
	b.Queue(insertRecount, id, runner, out.CheckedAt, `{}`)
	if out.Valid {
		b.Queue(markAccounts)
		b.Queue(startClosings, out.CheckedAt, settled, string(sums))
	}
	b.Queue(endRecount, id, 0, out.Valid, out.FirstBadAccount, out.BadTransfers)
	return out, tx.SendBatch(ctx, &b).Close()
}
