package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// lockDueHolds locks due holds and their accounts. It passes over what is locked and so waits for nobody, and can't be part of
// a deadlock, in whatever order it comes by the accounts.
const lockDueHolds = `SELECT h.id, h.account, h.amount, h.captured, h.status, h.expires_at, h.created_at, h.closed_at, h.transfer, h.owner,
		a.id, a.currency, a.available, a.held, a.version, a.created_at, a.chapter
	FROM hold_rows AS h JOIN accounts AS a ON a.id = ANY (ARRAY[h.account])
		AND a.chapter = (SELECT chapter FROM accounts WHERE id = h.account ORDER BY chapter DESC LIMIT 1)
	WHERE h.status = 'open' AND h.expires_at <= statement_timestamp() ORDER BY h.expires_at LIMIT $1
	FOR NO KEY UPDATE OF h, a SKIP LOCKED`

// ExpireHolds implements [ledger.Store].
func (l *Ledger) ExpireHolds(ctx context.Context, limit int, decide func(*ledger.Book, []uuid.UUID)) (found int, err error) {
	err = l.db.run(ctx, "ledger expire", func(ctx context.Context, tx pgx.Tx) error {
		var (
			b        pgx.Batch
			due      []dueHold
			ids      []uuid.UUID
			accounts []string
			now      time.Time
			seen     = map[string]struct{}{}
		)
		b.Queue(lockDueHolds, limit).Query(collect(&due, pgx.RowToStructByPos[dueHold]))
		b.Queue(`SELECT clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
		if err := pgkit.Send(ctx, tx, &b); err != nil {
			return err
		}
		found = len(due)
		book := newBook(now, l.db.chapters.Load())
		for _, d := range due {
			if _, loaded := seen[d.Account.ID]; !loaded {
				seen[d.Account.ID] = struct{}{}
				accounts = append(accounts, d.Account.ID)
				book.LoadAccount(d.Account)
			}
			book.LoadHold(d.Hold)
			ids = append(ids, d.Hold.ID)
		}
		if lazy, ok := tx.(*lockingTx); ok {
			lazy.lock(accounts)
		}
		decide(book, ids)
		b = pgx.Batch{}
		saveBook(&b, book.Changes(), countedWrites)
		return pgkit.Send(ctx, tx, &b)
	})
	return found, err
}

// dueHold is a hold with its account.
type dueHold struct {
	ledger.Hold
	ledger.Account
}
