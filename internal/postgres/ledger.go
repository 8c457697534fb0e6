package postgres

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
	"github.com/fairlead-dev/fairlead/internal/postgres/speculation"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// Ledger is the ledger's store.
type Ledger struct {
	db         *DB
	wholeBelow int64 // see there
}

var _ ledger.Store = (*Ledger)(nil)

// NewLedger returns the ledger's store on db.
func NewLedger(db *DB) *Ledger { return &Ledger{db, wholeBelow} }

// Await implements [ledger.Store].
func (l *Ledger) Await(ctx context.Context) (begun bool) {
	return l.db.turns.Await(ctx, ledgerTransaction, func(context.Context) { l.db.spec.Accounts.ForgetIdle() })
}

// Commit implements [ledger.Store].
//
// First it is tried speculatively: see commitSpeculative and docs/adr/0010. Any surprise, and any outcome
// but plain success, is left to a run that locks and reads first. It may be called while an earlier call has not
// returned.
func (l *Ledger) Commit(ctx context.Context, want ledger.Want, decide func(*ledger.Unit)) error {
	slices.Sort(want.Accounts)
	want.Accounts = slices.Compact(want.Accounts)
	aside := setAside{rows: l.db.blocked}
	turn := l.db.turns.Take(ctx, ledgerTransaction)
	defer turn.Leave()
	if turn.IsFirst() {
		l.db.spec.Accounts.ForgetIdle()
		turn.Opened()
	}
	speculative, err := l.db.spec.Run(ledgerTransaction, func() error {
		return aside.met(l.commitSpeculative(ctx, want, turn != nil, decide))
	}, func() error {
		return l.db.run(ctx, ledgerTransaction, func(ctx context.Context, tx pgx.Tx) error {
			return aside.met(l.commitLocked(ctx, tx, want, &aside, decide))
		})
	})
	if err != nil {
		return l.db.refuse(ctx, err, want.Keys, func(blocked error, known *idempotency.Batch) {
			decide(&ledger.Unit{Blocked: blocked, Keys: known})
		})
	}
	crashpoint.Hit(crashpoint.LedgerAfterCommit)
	if speculative {
		l.db.spec.AskTime(ctx)
	}
	return nil
}

// ledgerTransaction is the name of the ledger's transactions in logs and metrics.
const ledgerTransaction = "ledger"

// commitLocked locks, reads, decides and writes.
func (l *Ledger) commitLocked(ctx context.Context, tx pgx.Tx, want ledger.Want, aside *setAside, decide func(*ledger.Unit)) error {
	without, err := aside.without(ctx, tx, want.Parts)
	if err != nil {
		return err
	}
	if without[ledger.Holds] != nil {
		want.Holds = nil
	}
	if without[ledger.References] != nil {
		want.References = nil
	}
	accounts := want.Accounts
	if len(want.Holds) > 0 {
		owners, err := holdOwners(ctx, tx, want.Holds)
		if err != nil {
			return err
		}
		accounts = slices.Concat(accounts, owners)
	}
	asked := time.Now()
	book, known, err := lockBookAside(ctx, tx, aside, accounts, want.Holds, want.Keys, want.References...)
	if err != nil {
		return err
	}
	noteUnrecorded(tx, known)
	l.db.spec.Clock.Learned(book.Now(), asked, time.Now())
	if err := loadClosedHolds(ctx, tx, book, want.Holds); err != nil {
		return err
	}
	if err := setHoldsAside(ctx, tx, aside, book, want.Holds); err != nil {
		return err
	}
	unit := &ledger.Unit{Book: book, Keys: idempotency.NewBatch(known), Without: without}
	decide(unit)

	var b pgx.Batch
	c := book.Changes()
	saveBook(&b, c, guardedWrites)
	saveAudit(&b, unit.Audit, book.Now())
	saveKeys(&b, unit.Keys.Fresh(), book.Now(), guardedWrites)
	l.note(unit.Keys.Fresh(), c.References)
	surprise := errLostRow
	if len(c.CreatedAccounts) > 0 { // Another process may have made one since we looked.
		surprise = errStale
	}
	return finish(ctx, tx, &b, crashpoint.LedgerBeforeCommit, surprise)
}

// loadClosedHolds loads the holds that are in no table of current ones. They never change. Of those that are nowhere it notes which may have been archived.
func loadClosedHolds(ctx context.Context, tx pgx.Tx, book *ledger.Book, holds []uuid.UUID) error {
	inBook := func(id uuid.UUID) bool {
		_, err := book.Hold(id)
		return err == nil
	}
	missing := slices.DeleteFunc(slices.Clone(holds), inBook)
	if len(missing) == 0 {
		return nil
	}
	closed, err := pgkit.Rows(ctx, tx, pgx.RowToStructByPos[ledger.Hold], selectClosedHolds, missing)
	for _, h := range closed {
		book.LoadHold(h)
	}
	if missing = slices.DeleteFunc(missing, inBook); err != nil || len(missing) == 0 {
		return err
	}
	upto, err := pgkit.Rows(ctx, tx, pgx.RowTo[uuid.UUID], selectArchived)
	for _, id := range missing {
		if len(upto) > 0 && bytes.Compare(id[:], upto[0][:]) < 0 {
			book.NoteArchived(id, partitions.Time(upto[0]))
		}
	}
	return err
}

// setHoldsAside does without holds that somebody else has locked: those that are known to be, and, in a run after one that waited
// in vain, those that turn out to be. Their accounts are locked by now.
func setHoldsAside(ctx context.Context, tx pgx.Tx, aside *setAside, book *ledger.Book, holds []uuid.UUID) error {
	const lockFreeHolds = `SELECT id FROM hold_rows WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED`
	var free []uuid.UUID
	if aside.skip && len(holds) > 0 {
		var err error
		if free, err = pgkit.Rows(ctx, tx, pgx.RowTo[uuid.UUID], lockFreeHolds, holds); err != nil {
			return err
		}
	}
	for _, id := range holds {
		reason := aside.find(holdRow, id.String())
		if h, err := book.Hold(id); err == nil && h.Status == ledger.HoldOpen && reason == nil && aside.skip && !slices.Contains(free, id) {
			reason = aside.add(holdRow, id.String())
		}
		if reason != nil {
			book.SetHoldAside(id, reason)
		}
	}
	return nil
}

// speculativeStatements are those of speculative transactions, in the order in which one sends them.
func (db *DB) speculativeStatements() []string {
	var gate []string
	if db.engine.Has(pgkit.AdvisoryLocks) {
		gate = []string{gateCampaigns}
	}
	return append(gate,
		sellCampaigns, guardCampaigns, raiseAuction, guardAuction, guardAbsentAccounts, guardSameAccounts, guardAbsentKeys,
		guardedInsertAccounts, guardedOnlyAccounts, guardedUpdateAccounts, insertTransfers, insertLegs, insertReferences, insertHolds,
		insertPurchases, guardedSellLayers, db.raising().guarded, guardedRaiseUnique, insertStanding, insertBids, insertKeys,
	)
}

// commitSpeculative decides on what this process remembers, without a word to the database, and sends writes that check it, as
// one transaction; the next call may do so before that one has ended, and then decides on what it will have left. It
// returns nil once the transaction is committed, and any error of [speculation.Pipeline.Commit].
//
// The statements check everything that a decision, and so a refusal, can rest on: accounts that change by their version and
// balance; those that were only looked at, or were not there, by a look at them; the keys whose answers leave no record by a look
// at those. A hold that is placed bears the latest time that it may be, as all rows do.
//
// Nothing is sent where the outcome must rest on what is read under locks: a hold that is captured or released; a command that
// repeats another, as far as is known; and a refusal beside references, as no index holds those of refused commands.
func (l *Ledger) commitSpeculative(ctx context.Context, want ledger.Want, inTurn bool, decide func(*ledger.Unit)) error {
	keys := slices.Clip(want.Keys)
	for _, reference := range want.References {
		keys = append(keys, referenceKey(reference))
	}
	switch {
	case len(want.Holds) > 0:
		return speculation.NotSent(speculation.Command, nil)
	case l.db.blocked.find(referenceRow, want.References...) != nil, l.db.blocked.findTable(want.Parts) != nil:
		return speculation.NotSent(speculation.Blocked, nil)
	case !inTurn && !l.db.spec.Accounts.Trusted():
		return speculation.NotSent(speculation.Backoff, nil)
	}
	err := l.db.spec.Commit(ctx, l.db.spec.Pipeline(0),
		speculation.Want{
			Place: crashpoint.LedgerBeforeCommit, Target: ledgerTransaction, Accounts: want.Accounts, Keys: keys,
			Doubt: !inTurn && l.db.spec.Accounts.Doubted(),
		},
		func(b *pgx.Batch, on speculation.Scene) error {
			if inTurn && on.Changed {
				l.db.metAnother(ledgerTransaction)
			}
			book := on.Book
			unit := &ledger.Unit{Book: book, Keys: idempotency.NewBatch(nil)}
			book.Grow(len(want.Keys))
			unit.Keys.Grow(len(want.Keys))
			decide(unit)
			if unit.Refused && len(want.References) > 0 {
				return speculation.NotSent(speculation.Refusal, nil)
			}
			c := book.Changes()
			guardUnchanged(b, book, on.Absent)
			guardMisses(b, unit.Keys.Misses())
			saveBook(b, c, guardedWrites)
			saveKeys(b, unit.Keys.Fresh(), book.Now(), guardedWrites)
			l.note(unit.Keys.Fresh(), c.References)
			return nil
		})
	if err != nil && speculation.Reason(err) == speculation.Stale && l.db.spec.Accounts.Doubt() {
		l.db.metAnother(ledgerTransaction)
	}
	return err
}

// note remembers the keys and references that are being stored.
func (l *Ledger) note(fresh []idempotency.Record, references []ledger.Referenced) {
	l.db.spec.Keys.Note(fresh)
	for _, r := range references {
		l.db.spec.Keys.Note([]idempotency.Record{{Request: idempotency.Request{ID: referenceKey(r.Reference)}}})
	}
}

// referenceKey is how a reference is remembered among the keys. No key has an empty method.
func referenceKey(reference string) idempotency.ID { return idempotency.NewID("", "", "", reference) }

// holdOwners finds the accounts of holds. It runs before any lock, which is safe because a hold never changes owner;
// its state is read again under the owner's lock.
func holdOwners(ctx context.Context, tx pgx.Tx, holds []uuid.UUID) ([]string, error) {
	return pgkit.Rows(ctx, tx, pgx.RowTo[string], `SELECT account FROM hold_rows WHERE id = ANY($1)`, holds)
}

// The accounts are locked one after the other, in the order of the ids in the array. NO KEY UPDATE is enough, as no other table refers to the key.
const lockAccounts = `SELECT a.*` + ofAccounts + ` FOR NO KEY UPDATE` + eachAccount

const (
	accountFields  = `accounts.id, currency, available, held, version, created_at, chapter`
	holdFields     = `id, account, amount, captured, status, expires_at, created_at, closed_at, transfer, owner`
	selectAccount  = `SELECT ` + accountFields + ` FROM accounts WHERE accounts.id = $1` + newestAccount
	selectAccounts = `SELECT a.*` + ofAccounts + eachAccount
	selectHolds    = `SELECT ` + holdFields + ` FROM current_holds WHERE id = ANY($1)`
	// selectClosedHolds reads holds that were closed before the last turn (package partitions).
	selectClosedHolds = `SELECT ` + holdFields + ` FROM closed_holds WHERE id = ANY($1)`
)

// ofAccounts and eachAccount find the row of each id in the highest chapter, which is the first that a scan from the index's end meets. Where somebody holds a
// snapshot, a scan for the id alone goes through all dead versions since (docs/adr/0061).
const (
	ofAccounts    = ` FROM unnest($1::text[]) AS n (id) CROSS JOIN LATERAL (SELECT ` + accountFields + ` FROM accounts WHERE accounts.id = n.id` + newestAccount
	newestAccount = ` ORDER BY accounts.chapter DESC LIMIT 1`
	eachAccount   = `) AS a`
)

// The rows that nobody has locked, and all that are there: the difference is what somebody has locked.
const (
	lockFreeAccounts = `SELECT a.*` + ofAccounts + ` FOR NO KEY UPDATE SKIP LOCKED` + eachAccount
	selectPresent    = `SELECT id FROM accounts WHERE id = ANY($1)`
)

// setAside is how a transaction treats accounts that somebody else has locked: it tries to wait for them, briefly, and
// works without them after that.
type setAside struct {
	rows   *blockedRows
	skip   bool // a lock was not had in time: the next run takes what is free
	unsure bool // the answer to the COMMIT of an earlier run was lost, which may be what has the rows
}

// met looks at what a run ended with.
func (a *setAside) met(err error) error {
	a.skip = a.skip || isLockTimeout(err)
	a.unsure = a.unsure || errors.Is(err, speculation.ErrLinkLost)
	return err
}

// begin looks at the transaction of the next run.
func (a *setAside) begin(tx pgx.Tx) {
	if t, ok := tx.(*lockingTx); ok && t.Unsure {
		a.unsure = true
	}
}

// find is [blockedRows.find].
func (a *setAside) find(kind rowKind, ids ...string) *command.BlockedError {
	return a.reason(a.rows.find(kind, ids...))
}

// add is [blockedRows.add].
func (a *setAside) add(kind rowKind, id string) *command.BlockedError {
	return a.reason(a.rows.add(kind, id))
}

func (a *setAside) reason(blocked *command.BlockedError) *command.BlockedError {
	if blocked != nil {
		blocked.Unsure = a.unsure
	}
	return blocked
}

// contest finds which absent rows another session is about to make, and passes them to found: all that are known, and, in a run
// after one that waited in vain, those that turn out to be.
func (a *setAside) contest(ctx context.Context, tx pgx.Tx, kind rowKind, ids []string, absent func(string) bool, found func(string, error)) error {
	var unknown []string
	for _, id := range ids {
		if !absent(id) {
			continue
		}
		if reason := a.find(kind, id); reason != nil {
			found(id, reason)
		} else if a.skip {
			unknown = append(unknown, id)
		}
	}
	taken, err := contested(ctx, tx, kind, unknown)
	for _, id := range taken {
		found(id, a.add(kind, id))
	}
	return err
}

// lockBook locks the accounts, then reads the records of the keys and the time: all of it as it stands now that nobody else can
// change it. Its waits for locks, and all later ones of the transaction, end after [blockedAfter] with
// 55P03, so that it does not keep what it has locked from others for longer.
func lockBook(ctx context.Context, tx pgx.Tx, accounts []string, keys []idempotency.ID) (*ledger.Book, []idempotency.Record, error) {
	return lockBookAside(ctx, tx, nil, accounts, nil, keys)
}

// lockBookAside is lockBook that reads holds of these accounts and completed requests with these references, too, and does without
// accounts which somebody else has locked: those that are known to be, and, in a run after one that waited in vain, those that turn
// out to be.
func lockBookAside(
	ctx context.Context, tx pgx.Tx, aside *setAside, accounts []string, holds []uuid.UUID, keys []idempotency.ID, references ...string,
) (*ledger.Book, []idempotency.Record, error) {
	l := bookLock{aside: aside, accounts: accounts, holds: holds, keys: keys, references: references}
	var b pgx.Batch
	l.queue(ctx, tx, &b)
	if err := pgkit.Send(ctx, tx, &b); err != nil {
		return nil, nil, err
	}
	return l.book(ctx, tx)
}

// bookLock is lockBookAside in two parts, so that its statements can travel behind others.
type bookLock struct {
	aside      *setAside // may be nil
	accounts   []string  // is changed
	holds      []uuid.UUID
	keys       []idempotency.ID
	references []string

	// What was read.
	known   []idempotency.Record
	now     time.Time
	locked  []ledger.Account
	held    []ledger.Hold
	present []string
	taken   []ledger.Referenced
	blocked map[string]*command.BlockedError
}

func (l *bookLock) queue(ctx context.Context, tx pgx.Tx, b *pgx.Batch) {
	l.blocked = map[string]*command.BlockedError{}
	if l.aside != nil {
		l.aside.begin(tx)
	}
	if len(l.accounts) > 0 {
		slices.Sort(l.accounts)
		l.accounts = slices.Compact(l.accounts)
		if l.aside != nil {
			l.accounts = slices.DeleteFunc(slices.Clone(l.accounts), func(id string) bool {
				if reason := l.aside.find(accountRow, id); reason != nil {
					l.blocked[id] = reason
				}
				return l.blocked[id] != nil
			})
		}
		if lazy, ok := tx.(*lockingTx); ok {
			lazy.lock(l.accounts)
			lazy.accounts.Settle(ctx, l.accounts)
		}
		b.Queue(waitBriefly)
		lock := lockAccounts
		if l.aside != nil && l.aside.skip {
			lock = lockFreeAccounts
			b.Queue(selectPresent, l.accounts).Query(collect(&l.present, pgx.RowTo[string]))
		}
		b.Queue(lock, l.accounts).Query(collect(&l.locked, scanAccount))
	}
	if len(l.holds) > 0 {
		b.Queue(selectHolds, l.holds).Query(collect(&l.held, pgx.RowToStructByPos[ledger.Hold]))
	}
	if len(l.references) > 0 {
		b.Queue(selectReferences, l.references).Query(collect(&l.taken, pgx.RowToStructByPos[ledger.Referenced]))
	}
	loadKeys(b, l.keys, &l.known)
	b.Queue(`SELECT clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&l.now) })
}

// covers reports whether the accounts are among those that are locked, or set aside.
func (l *bookLock) covers(accounts []string) bool {
	for _, id := range accounts {
		if _, found := slices.BinarySearch(l.accounts, id); !found && l.blocked[id] == nil {
			return false
		}
	}
	return true
}

// book makes the book of what was read.
func (l *bookLock) book(ctx context.Context, tx pgx.Tx) (*ledger.Book, []idempotency.Record, error) {
	t, ok := tx.(*lockingTx)
	book := newBook(l.now, ok && t.chapters)
	for _, a := range l.locked {
		book.LoadAccount(a)
	}
	for _, id := range l.present {
		if _, err := book.Account(id); err != nil {
			l.blocked[id] = l.aside.add(accountRow, id)
		}
	}
	for id, reason := range l.blocked {
		book.SetAside(id, reason)
	}
	for _, r := range l.taken {
		book.LoadReference(r)
	}
	if l.aside != nil {
		noAccount := func(id string) bool {
			_, err := book.Account(id)
			return errors.As(err, new(*ledger.AccountNotFoundError))
		}
		noReference := func(reference string) bool { return !book.Referenced(reference) }
		err := l.aside.contest(ctx, tx, newAccountRow, l.accounts, noAccount, book.Contest)
		if err == nil {
			err = l.aside.contest(ctx, tx, referenceRow, l.references, noReference, book.ContestReference)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	for _, h := range l.held {
		book.LoadHold(h)
	}
	if lazy, ok := tx.(*lockingTx); ok {
		lazy.book = book
	}
	return book, l.known, nil
}

// collect makes a batch callback that sets into to all rows. A read that runs once more replaces what its earlier run has collected.
func collect[T any](into *[]T, scan pgx.RowToFunc[T]) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*into, err = pgx.AppendRows([]T(nil), rows, scan)
		return err
	}
}

// extend makes one that appends every row to into, which the caller has emptied.
func extend[T any](into *[]T, scan pgx.RowToFunc[T]) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*into, err = pgx.AppendRows(*into, rows, scan)
		return err
	}
}

func scanAccount(row pgx.CollectableRow) (a ledger.Account, err error) {
	err = row.Scan(&a.ID, &a.Currency, &a.Available, &a.Held, &a.Version, &a.CreatedAt, &a.Chapter)
	return a, err
}

// newBook makes the book of a transaction that begins now.
func newBook(now time.Time, chapters bool) *ledger.Book {
	book := ledger.NewBook(now, newID)
	if chapters {
		book.BeginChapters()
	}
	return book
}

// newID makes identifiers that sort by time (UUIDv7), so that new rows land at the right edge of their indexes.
func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }
