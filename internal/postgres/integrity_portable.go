package postgres

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// The statements of closings where rows don't tell the transaction that wrote them. Then a closing has the entries with ids of ten minutes ago and before, and
// one that was committed later than that makes it unexplained.
const (
	selectClosingPlainly = `SELECT` + closingFrom + usablePlainly + ` AND ` + countedAsMany
	startClosingPlainly  = `INSERT INTO ledger_closing AS c (at, upto, snapshot, seed, books) VALUES ($1, $2, $3, $4, $5)` + overUseless + usablePlainly + `) IS NOT TRUE`
	beginClosingPlainly  = `SELECT clock_timestamp(), NULL::text`
	moveClosingPlainly   = `UPDATE ledger_closing AS c SET at = $1, upto = $2, snapshot = $3, books = $4` + sameSeed + ` AND c.upto <= $2`
	selectKeptPlainly    = `SELECT ` + countedAsMany + `, 0::bigint` + booksKept + usablePlainly + booksBegun
	usablePlainly        = `c.snapshot IS NULL`
	// An entry takes some 140 bytes.
	countedAsMany = `(SELECT count(*) FROM (SELECT FROM entries LIMIT greatest($1::bigint, 0) / 140 + 1) AS e) > floor($1::numeric / 140)`
)

// bookkeeping are the statements of closings.
type bookkeeping struct {
	large, kept                                            string
	selectClosing, startClosing, beginClosing, moveClosing string
	byOrder, asUsual, sumEntries, judgeEntries             string
}

func (l *Ledger) bookkeeping() bookkeeping {
	if l.tellsRows() {
		return bookkeeping{
			`SELECT ` + manyEntries, selectBooksKept,
			selectClosing, startClosing, beginClosing, moveClosing,
			byOrder, asUsual, sumEntries, judgeEntries,
		}
	}
	return bookkeeping{
		`SELECT ` + countedAsMany, selectKeptPlainly,
		selectClosingPlainly, startClosingPlainly, beginClosingPlainly, moveClosingPlainly,
		scanFreely, scanFreely, `SELECT` + pagesOf + freshPlainly + endOfPages, `SELECT` + judgedOf + freshPlainly,
	}
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
			out, err = l.countAndClose(ctx, tx, o.Runner)
			return err
		})
		if pgkit.Code(err) != serializationFailure { // Another process has recounted in this moment.
			return out, err
		}
	}
}

func (l *Ledger) countAndClose(ctx context.Context, tx pgx.Tx, runner string) (out ledger.Integrity, err error) {
	if _, err := tx.Exec(ctx, scanFreely); err != nil {
		return out, err
	}
	if out, err = countWhole(ctx, tx); err != nil {
		return out, err
	}
	var readOnly bool
	if err := tx.QueryRow(ctx, `SELECT current_setting('transaction_read_only')::boolean`).Scan(&readOnly); err != nil || readOnly {
		return out, err
	}
	c := closedBooks{at: out.CheckedAt, seed: newRecount().Seed}
	c.upto = c.settled()
	_, now, err := inside(ctx, tx, c.seed)
	if err != nil {
		return out, err
	}
	since, err := l.countEntries(ctx, tx, &c, idSpan{from: c.upto, to: uuid.Max})
	if err != nil {
		return out, err
	}
	if now.Flows, err = flowsAnew(ctx, tx); err != nil {
		return out, err
	}
	text, err := json.Marshal(now.minus(since.books))
	if err != nil {
		return out, err
	}
	id := newID()
	var b pgx.Batch
	b.Queue(dropRecount, runner) // One that was begun where it could be saved.
	b.Queue(insertRecount, id, runner, out.CheckedAt, `{}`, "", "")
	if out.Valid {
		b.Queue(l.bookkeeping().startClosing, c.at, c.upto, c.snapshot, c.seed, string(text))
	}
	b.Queue(endRecount, id, 0, out.Valid, out.FirstBadAccount, out.BadTransfers)
	return out, tx.SendBatch(ctx, &b).Close()
}
