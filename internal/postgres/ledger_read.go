package postgres

import (
	"context"
	"errors"

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
		selectAccount, id)
}

// Entries implements [ledger.Reader].
func (l *Ledger) Entries(ctx context.Context, account string, after int64, limit int) ([]ledger.Entry, error) {
	return query(ctx, l.db.reads, pgx.RowToStructByPos[ledger.Entry],
		`SELECT `+entryFields+` FROM entries WHERE account = $1 AND version > $2 ORDER BY version LIMIT $3`, account, after, limit)
}

// Transfer implements [ledger.Reader]. A leg's own id finds the transfer that it is of.
func (l *Ledger) Transfer(ctx context.Context, id uuid.UUID) (ledger.Transfer, error) {
	absent := &ledger.TransferNotFoundError{ID: id}
	t, err := queryOne(ctx, l.db.reads, absent, pgx.RowToStructByPos[ledger.Transfer],
		`SELECT `+transferFields+` FROM `+transfersWithReferences+`
			WHERE id = coalesce((SELECT l.transfer FROM transfer_legs AS l WHERE part = $1), $1)`, id)
	if !errors.Is(err, absent) {
		return t, err
	}
	absent.Archived, _ = l.db.archived(ctx, selectArchived, id) // Without it, the transfer isn't there all the same.
	return t, err
}

// Referenced implements [ledger.Reader].
func (l *Ledger) Referenced(ctx context.Context, references ...string) ([]ledger.Referenced, error) {
	return query(ctx, l.db.reads, pgx.RowToStructByPos[ledger.Referenced], selectReferences, references)
}

// Hold implements [ledger.Reader].
func (l *Ledger) Hold(ctx context.Context, id uuid.UUID) (ledger.Hold, error) {
	absent := &ledger.HoldNotFoundError{ID: id}
	h, err := queryOne(ctx, l.db.reads, absent, pgx.RowToStructByPos[ledger.Hold], `SELECT `+holdFields+` FROM holds WHERE id = $1`, id)
	if errors.Is(err, absent) {
		absent.Archived, _ = l.db.archived(ctx, selectArchived, id) // As above.
	}
	return h, err
}

// OpenHolds implements [ledger.Reader]. The page is chosen among the rows, so that amounts of standing bids are looked for only
// for what is on it.
func (l *Ledger) OpenHolds(ctx context.Context, account string, before uuid.UUID, limit int) ([]ledger.Hold, error) {
	return query(ctx, l.db.reads, pgx.RowToStructByPos[ledger.Hold], `SELECT `+holdFields+`
		FROM current_holds WHERE id IN (SELECT id FROM hold_rows WHERE account = $1 AND status = 'open' AND id < $2 ORDER BY id DESC LIMIT $3)
		ORDER BY id DESC`, account, before, limit)
}
