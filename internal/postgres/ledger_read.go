package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/big"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

const (
	// The entries of a leg are shown as those of the transfer that it is of.
	entryFields    = `id, account, version, coalesce((SELECT l.transfer FROM transfer_legs AS l WHERE part = entries.transfer), transfer), amount, currency, at, memo`
	transferFields = `id, kind, source, destination, amount, currency, status, reason, memo, created_at, coalesce(reference, ''), ` + legsOfTransfer
	legsOfTransfer = `(SELECT json_agg(json_build_object('From', source, 'To', destination, 'Amount', amount, 'Currency', currency) ORDER BY leg)
		FROM transfer_legs AS l WHERE l.transfer = id)`

	// transfersWithReferences is where transferFields are read from. Most transfers have no reference.
	transfersWithReferences = `transfers LEFT JOIN transfer_references ON transfer = id`
	selectReferences        = `SELECT ` + transferFields + `, available FROM transfer_references JOIN transfers ON id = transfer
		WHERE reference = ANY($1) AND completed`
)

// Account implements [ledger.Reader].
func (l *Ledger) Account(ctx context.Context, id string) (ledger.Account, error) {
	return queryOne(ctx, l.db.reads, &ledger.AccountNotFoundError{ID: id}, scanAccount,
		`SELECT `+accountFields+` FROM accounts WHERE id = $1`, id)
}

// Entries implements [ledger.Reader].
func (l *Ledger) Entries(ctx context.Context, account string, after int64, limit int) ([]ledger.Entry, error) {
	return query(ctx, l.db.reads, pgx.RowToStructByPos[ledger.Entry],
		`SELECT `+entryFields+` FROM entries WHERE account = $1 AND version > $2 ORDER BY version LIMIT $3`, account, after, limit)
}

// Transfer implements [ledger.Reader]. A leg's own id finds the transfer that it is of.
func (l *Ledger) Transfer(ctx context.Context, id uuid.UUID) (ledger.Transfer, error) {
	return queryOne(ctx, l.db.reads, &ledger.TransferNotFoundError{ID: id}, pgx.RowToStructByPos[ledger.Transfer],
		`SELECT `+transferFields+` FROM `+transfersWithReferences+`
			WHERE id = coalesce((SELECT l.transfer FROM transfer_legs AS l WHERE part = $1), $1)`, id)
}

// Referenced implements [ledger.Reader].
func (l *Ledger) Referenced(ctx context.Context, references ...string) ([]ledger.Referenced, error) {
	return query(ctx, l.db.reads, pgx.RowToStructByPos[ledger.Referenced], selectReferences, references)
}

// Hold implements [ledger.Reader].
func (l *Ledger) Hold(ctx context.Context, id uuid.UUID) (ledger.Hold, error) {
	return queryOne(ctx, l.db.reads, &ledger.HoldNotFoundError{ID: id}, pgx.RowToStructByPos[ledger.Hold],
		`SELECT `+holdFields+` FROM holds WHERE id = $1`, id)
}

// OpenHolds implements [ledger.Reader]. The page is chosen among the rows, so that amounts of standing bids are looked for only
// for what is on it.
func (l *Ledger) OpenHolds(ctx context.Context, account string, before uuid.UUID, limit int) ([]ledger.Hold, error) {
	return query(ctx, l.db.reads, pgx.RowToStructByPos[ledger.Hold], `SELECT `+holdFields+`
		FROM holds WHERE id IN (SELECT id FROM hold_rows WHERE account = $1 AND status = 'open' AND id < $2 ORDER BY id DESC LIMIT $3)
		ORDER BY id DESC`, account, before, limit)
}

// Deposits and withdrawals are read from the outside's entries, which are negative for what came in. What came from another
// ledger, or went there, is to this ledger a deposit or withdrawal too. Sums are numeric, which does not overflow.
const sumCurrencies = `
	WITH outside AS (
		SELECT currency, coalesce(sum(-amount) FILTER (WHERE amount < 0), 0) AS deposits,
			coalesce(sum(amount) FILTER (WHERE amount > 0), 0) AS withdrawals
		FROM entries WHERE account = 'outside/' || currency OR account LIKE 'transit/%' GROUP BY currency),
	inside AS (SELECT currency, sum(available) AS available, sum(held) AS held FROM accounts GROUP BY currency)
	SELECT currency, coalesce(deposits, 0)::text, coalesce(withdrawals, 0)::text, coalesce(available, 0)::text,
		coalesce(held, 0)::text,
		(coalesce(deposits, 0) - coalesce(withdrawals, 0) - coalesce(available, 0) - coalesce(held, 0))::text
	FROM inside FULL JOIN outside USING (currency) ORDER BY currency COLLATE "C"`

// An account is bad when its balance is not the sum of its entries, when one of them is in another currency, when what
// it holds is not the sum of its open holds, when one of those is for a bid that does not stand, or when there are entries
// without an account.
const firstBadAccount = `
	WITH sums AS (
		SELECT account, sum(amount) AS total, min(currency) AS least, max(currency) AS most
		FROM entries WHERE account NOT LIKE 'outside/%' AND account NOT LIKE 'transit/%' GROUP BY account),
	open AS (SELECT account, sum(amount) AS held, count(*) - count(amount) AS strays FROM holds WHERE status = 'open' GROUP BY account)
	SELECT coalesce(min(coalesce(a.id, s.account, o.account)), '') FROM accounts AS a
		FULL JOIN sums AS s ON s.account = a.id FULL JOIN open AS o ON o.account = a.id
	WHERE a.id IS NULL OR a.available::numeric + a.held <> coalesce(s.total, 0) OR a.held <> coalesce(o.held, 0)
		OR o.strays > 0 OR a.currency <> s.least OR a.currency <> s.most`

// A transfer is bad when its entries are not two of its currency that sum to zero and move its amount, or when there
// are entries of one that was not completed, or that does not exist. One with legs is bad, too, when they are not what was moved.
const countBadTransfers = `
	WITH sums AS (
		SELECT transfer, sum(amount) AS total, sum(abs(amount)) AS moved, count(*) AS sides,
			min(currency) AS least, max(currency) AS most
		FROM entries GROUP BY transfer),
	legs AS (
		SELECT l.transfer FROM transfer_legs AS l LEFT JOIN transfers AS t ON t.id = l.transfer LEFT JOIN transfers AS p ON p.id = l.part
		GROUP BY l.transfer HAVING count(*) <> max(l.leg) + 1 OR NOT bool_and(CASE WHEN t.status = 'completed'
			THEN (p.source, p.destination, p.amount, p.currency, p.status, p.id = t.id)
				IS NOT DISTINCT FROM (l.source, l.destination, l.amount, l.currency, 'completed', l.leg = 0)
			ELSE t.status = 'failed' AND l.part IS NULL END IS TRUE))
	SELECT (SELECT count(*) FROM legs) + count(*) FROM transfers AS t FULL JOIN sums AS s ON s.transfer = t.id
	WHERE t.id IS NULL
		OR (t.status = 'completed' AND (s.sides IS DISTINCT FROM 2 OR s.total <> 0 OR s.moved <> 2 * t.amount::numeric
			OR s.least <> t.currency OR s.most <> t.currency))
		OR (t.status <> 'completed' AND s.transfer IS NOT NULL)`

// Integrity implements [ledger.Reader].
func (l *Ledger) Integrity(ctx context.Context) (ledger.Integrity, error) {
	var out ledger.Integrity
	err := l.db.reads.snapshot(ctx, scanTimeout, func(ctx context.Context, tx pgx.Tx) error {
		out = ledger.Integrity{Currencies: []ledger.CurrencyIntegrity{}, Difference: new(big.Int)}
		if _, err := tx.Exec(ctx, scanFreely); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, sumCurrencies)
		if err != nil {
			return err
		}
		out.Currencies, err = pgx.AppendRows(out.Currencies, rows, scanCurrency)
		return errors.Join(err,
			tx.QueryRow(ctx, firstBadAccount).Scan(&out.FirstBadAccount),
			tx.QueryRow(ctx, countBadTransfers).Scan(&out.BadTransfers),
			tx.QueryRow(ctx, `SELECT transaction_timestamp()`).Scan(&out.CheckedAt))
	})
	if err != nil {
		return ledger.Integrity{}, fmt.Errorf("postgres: integrity: %w", err)
	}
	for _, c := range out.Currencies {
		out.Difference.Add(out.Difference, new(big.Int).Abs(c.Difference))
	}
	out.Valid = out.Difference.Sign() == 0 && out.FirstBadAccount == "" && out.BadTransfers == 0
	return out, nil
}

func scanCurrency(row pgx.CollectableRow) (ledger.CurrencyIntegrity, error) {
	var (
		c    ledger.CurrencyIntegrity
		text [5]string
	)
	if err := row.Scan(&c.Currency, &text[0], &text[1], &text[2], &text[3], &text[4]); err != nil {
		return c, err
	}
	for i, sum := range [...]**big.Int{&c.Deposits, &c.Withdrawals, &c.Available, &c.Held, &c.Difference} {
		n, ok := new(big.Int).SetString(text[i], 10)
		if !ok {
			return c, fmt.Errorf("sum %q is not an integer", text[i])
		}
		*sum = n
	}
	return c, nil
}
