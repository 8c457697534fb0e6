package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/ledger"
)

// Ledger is the ledger's store.
type Ledger struct{ db *DB }

var _ ledger.Store = (*Ledger)(nil)

// NewLedger returns the ledger's store on db.
func NewLedger(db *DB) *Ledger { return &Ledger{db: db} }

// Commit implements [ledger.Store].
//
// The first run does not read the records of the keys: most keys are new, and a key that is not is met again when its
// record is inserted. That conflict, as well as an outcome that leaves no record to conflict with, makes the transaction
// run again, and every run but the first reads the records before it decides.
func (l *Ledger) Commit(ctx context.Context, want ledger.Want, decide func(*ledger.Unit)) error {
	first := true
	err := l.db.run(ctx, "ledger", func(ctx context.Context, tx pgx.Tx) error {
		accounts := want.Accounts
		if len(want.Holds) > 0 {
			owners, err := holdOwners(ctx, tx, want.Holds)
			if err != nil {
				return err
			}
			accounts = slices.Concat(accounts, owners)
		}
		keys, trusting := want.Keys, first
		if first = false; trusting {
			keys = nil
		}
		book, known, err := lockBook(ctx, tx, accounts, want.Holds, keys)
		if err != nil {
			return err
		}
		unit := &ledger.Unit{Book: book, Keys: idempotency.NewBatch(known)}
		decide(unit)
		if trusting && unit.Keys.Undecided() {
			return errStale
		}

		var b pgx.Batch
		saveBook(&b, book.Changes())
		saveKeys(&b, unit.Keys.Fresh(), book.Now())
		if err := send(ctx, tx, &b); err != nil {
			return err
		}
		crashpoint.Hit(crashpoint.LedgerBeforeCommit)
		return nil
	})
	if err == nil {
		crashpoint.Hit(crashpoint.LedgerAfterCommit)
	}
	return err
}

// holdOwners finds the accounts of holds. It runs before any lock, which is safe because a hold never changes owner;
// its state is read again under the owner's lock.
func holdOwners(ctx context.Context, tx pgx.Tx, holds []uuid.UUID) ([]string, error) {
	rows, err := tx.Query(ctx, `SELECT account FROM holds WHERE id = ANY($1)`, holds)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// The accounts are locked in the order of their ids: the sort stands below the locking in the plan. NO KEY UPDATE is
// enough, as ids never change.
const lockAccounts = `SELECT id, currency, available, held, version, created_at FROM accounts
	WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE`

const selectHolds = `SELECT id, account, amount, captured, status, expires_at, created_at, closed_at, transfer
	FROM holds WHERE id = ANY($1)`

// lockBook locks the accounts, then reads their holds, the records of the keys and the time: all of it as it stands
// now that nobody else can change it.
func lockBook(ctx context.Context, tx pgx.Tx, accounts []string, holds []uuid.UUID, keys []idempotency.ID) (*ledger.Book, []idempotency.Record, error) {
	var (
		b     pgx.Batch
		known []idempotency.Record
		now   time.Time
		acc   []ledger.Account
		held  []ledger.Hold
	)
	if len(accounts) > 0 {
		slices.Sort(accounts)
		b.Queue(lockAccounts, slices.Compact(accounts)).Query(collect(&acc, scanAccount))
	}
	if len(holds) > 0 {
		b.Queue(selectHolds, holds).Query(collect(&held, scanHold))
	}
	loadKeys(&b, keys, &known)
	b.Queue(`SELECT clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	if err := send(ctx, tx, &b); err != nil {
		return nil, nil, err
	}
	book := ledger.NewBook(now.UTC(), newID)
	for _, a := range acc {
		book.LoadAccount(a)
	}
	for _, h := range held {
		book.LoadHold(h)
	}
	return book, known, nil
}

// collect makes a batch callback that appends every row to into.
func collect[T any](into *[]T, scan pgx.RowToFunc[T]) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*into, err = pgx.AppendRows(*into, rows, scan)
		return err
	}
}

func scanAccount(row pgx.CollectableRow) (a ledger.Account, err error) {
	err = row.Scan(&a.ID, &a.Currency, &a.Available, &a.Held, &a.Version, &a.CreatedAt)
	a.CreatedAt = a.CreatedAt.UTC()
	return a, err
}

func scanHold(row pgx.CollectableRow) (h ledger.Hold, err error) {
	err = row.Scan(&h.ID, &h.Account, &h.Amount, &h.Captured, &h.Status, &h.ExpiresAt, &h.CreatedAt, &h.ClosedAt, &h.Transfer)
	h.CreatedAt, h.ExpiresAt, h.ClosedAt = h.CreatedAt.UTC(), utc(h.ExpiresAt), utc(h.ClosedAt)
	return h, err
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// newID makes identifiers that sort by time (UUIDv7), so that new rows land at the right edge of their indexes.
func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }
