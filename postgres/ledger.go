package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/ledger"
)

// Ledger is the ledger's store.
type Ledger struct {
	db    *DB
	cache *accountCache // the database's: other stores write accounts too
}

var _ ledger.Store = (*Ledger)(nil)

// NewLedger returns the ledger's store on db.
func NewLedger(db *DB) *Ledger { return &Ledger{db: db, cache: db.accounts} }

// Commit implements [ledger.Store].
//
// The first run is optimistic, where it can be: it decides on the accounts as this process remembers them, without
// reading the records of the keys, and writes only where every account still has the version remembered and no record
// is there yet. Any surprise, and any outcome but plain success, is left to a run that locks and reads first: every run
// but the first does. See docs/adr/0010.
func (l *Ledger) Commit(ctx context.Context, want ledger.Want, decide func(*ledger.Unit)) error {
	slices.Sort(want.Accounts)
	want.Accounts = slices.Compact(want.Accounts)
	var (
		first = true
		used  *ledger.Book
	)
	err := l.db.run(ctx, "ledger", func(ctx context.Context, tx pgx.Tx) (err error) {
		if optimistic := first && len(want.Holds) == 0 && l.cache.trusted(); optimistic {
			first = false
			if used, err = l.commitOptimistic(ctx, tx, want, decide); used != nil || err != nil {
				return err
			}
		}
		if !first {
			l.cache.forget(want.Accounts)
		}
		first = false
		used, err = l.commitLocked(ctx, tx, want, decide)
		return err
	})
	if err != nil {
		l.cache.forget(want.Accounts)
		return err
	}
	crashpoint.Hit(crashpoint.LedgerAfterCommit)
	l.cache.keep(used)
	return nil
}

// commitLocked locks, reads, decides and writes.
func (l *Ledger) commitLocked(ctx context.Context, tx pgx.Tx, want ledger.Want, decide func(*ledger.Unit)) (*ledger.Book, error) {
	accounts := want.Accounts
	if len(want.Holds) > 0 {
		owners, err := holdOwners(ctx, tx, want.Holds)
		if err != nil {
			return nil, err
		}
		accounts = slices.Concat(accounts, owners)
	}
	book, known, err := lockBook(ctx, tx, accounts, want.Holds, want.Keys)
	if err != nil {
		return nil, err
	}
	// Taken after the wait for the locks: carried on from here, the database's clock lags by the answer's way, and never
	// runs ahead.
	l.cache.asked(book.Now(), time.Now())
	unit := &ledger.Unit{Book: book, Keys: idempotency.NewBatch(known)}
	decide(unit)

	var b pgx.Batch
	saveBook(&b, book.Changes(), countedWrites)
	saveKeys(&b, unit.Keys.Fresh(), book.Now(), countedWrites)
	if err := send(ctx, tx, &b); err != nil {
		return nil, err
	}
	crashpoint.Hit(crashpoint.LedgerBeforeCommit)
	return book, nil
}

// commitOptimistic decides on what is remembered and writes with checks. It returns no book, and has written nothing,
// where the outcome must rest on what is read under locks: a refusal, whose reason may be gone by now; an account that
// was looked at and not changed, which no check would cover; a hold, whose expiry is the database's clock's to set; a
// command that leaves no record.
func (l *Ledger) commitOptimistic(ctx context.Context, tx pgx.Tx, want ledger.Want, decide func(*ledger.Unit)) (*ledger.Book, error) {
	now, ok := l.cache.now()
	if !ok {
		return nil, nil
	}
	book := ledger.NewBook(now.UTC(), newID)
	if missing := l.cache.load(want.Accounts, book); len(missing) > 0 {
		var b pgx.Batch
		var found []ledger.Account
		b.Queue(selectAccounts, missing).Query(collect(&found, scanAccount))
		if err := send(ctx, tx, &b); err != nil {
			return nil, err
		}
		for _, a := range found {
			book.LoadAccount(a)
		}
	}
	unit := &ledger.Unit{Book: book, Keys: idempotency.NewBatch(nil)}
	decide(unit)
	c := book.Changes()
	if unit.Refused || unit.Keys.Undecided() || len(c.CreatedHolds) > 0 || len(c.UpdatedAccounts)+len(c.CreatedAccounts) != len(want.Accounts) {
		return nil, nil
	}
	var b pgx.Batch
	b.Queue(joinInOrder)
	saveBook(&b, c, guardedWrites)
	saveKeys(&b, unit.Keys.Fresh(), book.Now(), guardedWrites)
	err := finish(ctx, tx, &b, crashpoint.LedgerBeforeCommit)
	if isGuard(err) {
		l.cache.beWary()
		return nil, fmt.Errorf("%w: %w", errStale, err)
	}
	if err != nil {
		return nil, err
	}
	return book, nil
}

// joinInOrder makes an UPDATE that joins an ordered array take its locks in the array's order, for the transaction: the
// accounts are then looked up by their index, once for each element, or read through it. Left to itself, the planner
// joins a small table from a sequential scan, in the order of its rows, and two processes may lock each other out.
const joinInOrder = `SET LOCAL enable_seqscan = off`

// finish writes and commits in one round trip. A binary that is built to be killed takes two, so that it can be killed
// in between.
func finish(ctx context.Context, tx pgx.Tx, b *pgx.Batch, place string) error {
	if lazy, ok := tx.(*lazyTx); ok && !crashpoint.Enabled {
		return lazy.sendAndCommit(ctx, b)
	}
	err := send(ctx, tx, b)
	crashpoint.Hit(place)
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

const selectAccounts = `SELECT id, currency, available, held, version, created_at FROM accounts WHERE id = ANY($1)`

const selectHolds = `SELECT id, account, amount, captured, status, expires_at, created_at, closed_at, transfer, owner
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
	err = row.Scan(&h.ID, &h.Account, &h.Amount, &h.Captured, &h.Status, &h.ExpiresAt, &h.CreatedAt, &h.ClosedAt, &h.Transfer, &h.Owner)
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
