package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// lockDueHolds locks due holds and their accounts. It passes over what is locked and so waits for nobody, and can't be part of
// a deadlock, in whatever order it comes by the accounts.
const lockDueHolds = `SELECT h.id, h.account, h.amount, h.captured, h.status, h.expires_at, h.created_at, h.closed_at, h.transfer, h.owner,
		a.id, a.currency, a.available, a.held, a.version, a.created_at
	FROM hold_rows AS h JOIN accounts AS a ON a.id = ANY (ARRAY[h.account])
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
		b.Queue(lockDueHolds, limit).Query(collect(&due, scanDueHold))
		b.Queue(`SELECT clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
		if err := send(ctx, tx, &b); err != nil {
			return err
		}
		found = len(due)
		book := ledger.NewBook(now.UTC(), newID)
		for _, d := range due {
			if _, loaded := seen[d.account.ID]; !loaded {
				seen[d.account.ID] = struct{}{}
				accounts = append(accounts, d.account.ID)
				book.LoadAccount(d.account)
			}
			book.LoadHold(d.hold)
			ids = append(ids, d.hold.ID)
		}
		if lazy, ok := tx.(*lockingTx); ok {
			lazy.lock(accounts)
		}
		decide(book, ids)
		b = pgx.Batch{}
		saveBook(&b, book.Changes(), countedWrites)
		return send(ctx, tx, &b)
	})
	return found, err
}

// dueHold is a hold with its account.
type dueHold struct {
	hold    ledger.Hold
	account ledger.Account
}

func scanDueHold(row pgx.CollectableRow) (d dueHold, err error) {
	h, a := &d.hold, &d.account
	err = row.Scan(&h.ID, &h.Account, &h.Amount, &h.Captured, &h.Status, &h.ExpiresAt, &h.CreatedAt, &h.ClosedAt, &h.Transfer, &h.Owner,
		&a.ID, &a.Currency, &a.Available, &a.Held, &a.Version, &a.CreatedAt)
	h.CreatedAt, h.ExpiresAt, h.ClosedAt, a.CreatedAt = h.CreatedAt.UTC(), utc(h.ExpiresAt), utc(h.ClosedAt), a.CreatedAt.UTC()
	return d, err
}
