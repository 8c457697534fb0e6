package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// Sales reads when the sales with some numbers were made, each by one look into the primary key.
func (d *Operator) Sales(ctx context.Context, campaign uuid.UUID, numbers []int) ([]operator.SaleMark, error) {
	marks, err := query(ctx, d.db.reads, pgx.RowToStructByPos[operator.SaleMark],
		`SELECT seq, at FROM purchases WHERE campaign = $1 AND seq = ANY ($2) ORDER BY seq`, campaign, numbers)
	return unlessArchived(ctx, d.db, campaign, marks, err)
}

// Balances reads an account's balance after each of its newest entries, up to limit of them and not before the given time ago. An
// account without a balance of its own is not found: the outside of the books has entries and no row.
func (d *Operator) Balances(ctx context.Context, account string, since time.Duration, limit int) (out operator.Balances, err error) {
	err = d.db.reads.snapshot(ctx, "balances", readTimeout, func(ctx context.Context, tx pgx.Tx) error {
		var balance int64
		err := tx.QueryRow(ctx, `SELECT available + held, clock_timestamp() FROM accounts WHERE id = $1`, account).Scan(&balance, &out.To)
		if errors.Is(err, pgx.ErrNoRows) {
			return &ledger.AccountNotFoundError{ID: account}
		}
		if err != nil {
			return err
		}
		// By the primary key, backwards.
		rows, err := tx.Query(ctx, `SELECT at, amount FROM entries WHERE account = $1 ORDER BY version DESC, id DESC LIMIT $2`, account, limit)
		if err != nil {
			return err
		}
		entries, err := pgx.CollectRows(rows, pgx.RowToStructByPos[operator.Balance])
		out.From = out.To.Add(-since)
		out.Balances = make([]operator.Balance, 0, len(entries))
		for i, e := range entries {
			if e.At.Before(out.From) {
				entries = entries[:i]
				break
			}
		}
		if len(entries) == limit {
			out.From = entries[limit-1].At
		}
		out.Opening = balance
		for _, e := range entries {
			out.Opening -= e.Balance // Of an entry it is the amount.
		}
		running := out.Opening
		for _, e := range slices.Backward(entries) {
			running += e.Balance
			out.Balances = append(out.Balances, operator.Balance{At: e.At, Balance: running})
		}
		return err
	})
	return out, err
}
