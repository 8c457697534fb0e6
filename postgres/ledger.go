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
// First it is tried ahead of what is read under locks: see commitAhead and docs/adr/0010. Any surprise, and any outcome
// but plain success, is left to a run that locks and reads first. It may be called while an earlier call has not
// returned.
func (l *Ledger) Commit(ctx context.Context, want ledger.Want, decide func(*ledger.Unit)) error {
	slices.Sort(want.Accounts)
	want.Accounts = slices.Compact(want.Accounts)
	var used *ledger.Book
	ahead, err := l.db.runAhead(ledgerTransaction, func() error {
		return l.commitAhead(ctx, want, decide)
	}, func() error {
		return l.db.run(ctx, ledgerTransaction, func(ctx context.Context, tx pgx.Tx) (err error) {
			l.cache.forget(want.Accounts)
			used, err = l.commitLocked(ctx, tx, want, decide)
			return err
		})
	})
	if err != nil {
		l.cache.forget(want.Accounts)
		return err
	}
	crashpoint.Hit(crashpoint.LedgerAfterCommit)
	if ahead {
		l.db.askTime(ctx)
	} else {
		l.cache.keep(used)
	}
	return nil
}

// ledgerTransaction is the name of the ledger's transactions in logs and metrics.
const ledgerTransaction = "ledger"

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
	l.db.recent.note(unit.Keys.Fresh())
	if err := send(ctx, tx, &b); err != nil {
		return nil, err
	}
	crashpoint.Hit(crashpoint.LedgerBeforeCommit)
	return book, nil
}

// aheadStatements are those of commitAhead.
func aheadStatements() []string {
	return []string{joinInOrder, guardedInsertAccounts, guardedUpdateAccounts, insertTransfers, insertKeys}
}

// commitAhead decides on what this process remembers, without a word to the database, and sends writes that check it, as
// one transaction; the next call may do so before that one has ended, and then decides on what it will have left. It
// returns nil once the transaction is committed, and any error of [pipeline.commit].
//
// [errNotSent] is what it returns, too, where the outcome must rest on what is read under locks: a refusal, whose reason
// may be gone by now; an account that was looked at and not changed, which no check would cover; a hold, whose expiry is
// the database's clock's to set; a command that leaves no record; and one that repeats another, as far as is known.
func (l *Ledger) commitAhead(ctx context.Context, want ledger.Want, decide func(*ledger.Unit)) error {
	if len(want.Holds) > 0 || l.db.recent.any(want.Keys) || !l.cache.trusted() {
		return errNotSent
	}
	read, err := l.db.readUnknown(ctx, want.Accounts)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	sent := false
	err = l.db.ahead.commit(ctx, crashpoint.LedgerBeforeCommit, func(b *pgx.Batch) bool {
		now, ok := l.cache.now()
		if !ok {
			return false
		}
		book := ledger.NewBook(now.UTC(), newID)
		if _, ok := l.cache.loadAll(want.Accounts, read, book); !ok {
			return false
		}
		unit := &ledger.Unit{Book: book, Keys: idempotency.NewBatch(nil)}
		book.Grow(len(want.Keys))
		unit.Keys.Grow(len(want.Keys))
		decide(unit)
		c := book.Changes()
		if unit.Refused || unit.Keys.Undecided() || len(c.CreatedHolds) > 0 || len(c.UpdatedAccounts)+len(c.CreatedAccounts) != len(want.Accounts) {
			return false
		}
		b.Queue(joinInOrder)
		saveBook(b, c, guardedWrites)
		saveKeys(b, unit.Keys.Fresh(), book.Now(), guardedWrites)
		l.db.recent.note(unit.Keys.Fresh())
		// What the next call decides on. Should this transaction fail, the checks of those that rest on it do so, too.
		l.cache.keep(book)
		sent = true
		return true
	})
	if err != nil && sent {
		l.cache.forget(want.Accounts)
	}
	if isGuard(err) {
		l.cache.beWary()
		return fmt.Errorf("%w: %w", errStale, err)
	}
	return err
}

// joinInOrder makes an UPDATE that joins an ordered array take its locks in the array's order, for the transaction: the
// accounts are then looked up by their index, once for each element, or read through it. Left to itself, the planner
// joins a small table from a sequential scan, in the order of its rows, and two processes may lock each other out.
const joinInOrder = `SELECT set_config('enable_seqscan', 'off', true)` // not SET, which can't be prepared

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
	rows, err := tx.Query(ctx, `SELECT account FROM hold_rows WHERE id = ANY($1)`, holds)
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
