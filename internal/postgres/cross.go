package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/semaphore"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// crossSlots is how many legs a process works on at once in one database. Those that find an account locked, as by a prepared
// transaction, must leave connections to whoever is to commit it.
const crossSlots = 4

// CrossLedger is one database's part in transfers between ledgers. Several processes may work on it.
type CrossLedger struct {
	*pgsaga.Database

	db    *DB
	slots *semaphore.Weighted
}

var _ cross.Preparer = (*CrossLedger)(nil)

// NewCrossLedger returns the ledger of db as a party to transfers between ledgers. What a branch waits for an account that
// another transaction has locked is bounded, see [pgsaga.DefaultLockTimeout]: the transaction is then rolled back in all
// databases, and tried again. Two that wait for each other in different databases end so, too.
func NewCrossLedger(db *DB) *CrossLedger { return NewCrossLedgerWithUpkeep(db, db) }

// NewCrossLedgerWithUpkeep is NewCrossLedger with connections for what is in doubt that nothing else can take: another DB of the
// same database.
func NewCrossLedgerWithUpkeep(db, upkeep *DB) *CrossLedger {
	return &CrossLedger{
		Database: pgsaga.NewDatabase(db.pool, pgsaga.Options{Committed: db.committed, Upkeep: upkeep.pool}),
		db:       db, slots: semaphore.NewWeighted(crossSlots),
	}
}

// Account implements [cross.Ledger].
func (l *CrossLedger) Account(ctx context.Context, id string) (ledger.Account, error) {
	return NewLedger(l.db).Account(ctx, id)
}

// CanPrepare implements [cross.Preparer].
func (l *CrossLedger) CanPrepare(ctx context.Context) error {
	err := l.Database.CanPrepare(ctx)
	if errors.Is(err, saga.ErrTwoPhaseUnavailable) {
		return cross.ErrTwoPhaseUnavailable
	}
	return readError(err)
}

// Execute implements [cross.Ledger]. It recognises its own earlier effect by the leg's mark, whose primary key lets one of
// several executions write it.
func (l *CrossLedger) Execute(ctx context.Context, leg *cross.Leg) (saga.Outcome, error) {
	a, err := l.command(ctx, "cross.leg", command.Command[*cross.Leg]{Op: leg})
	out, _ := a.Result.(saga.Outcome)
	return out, err
}

const (
	selectLeg = `SELECT outcome = 'refused', reason, coalesce(transfer::text, '') FROM saga_legs WHERE saga = $1 AND step = $2`
	insertLeg = `INSERT INTO saga_legs (saga, step, outcome, reason, transfer, at, gid) VALUES ($1, $2, $3, $4, $5, $6, nullif($7, ''))`
	doneLeg   = `SELECT count(*) FROM saga_legs l JOIN transfers t ON t.id = l.transfer
		WHERE l.saga = $1 AND l.step = $2 AND l.outcome = 'done' AND t.amount = $3 AND t.currency = $4`
	deleteLegs    = `DELETE FROM saga_legs WHERE saga = ANY ($1)`
	committedLegs = `SELECT coalesce(gid, '') FROM saga_legs WHERE saga = $1 AND outcome = 'done'`
)

// decideLeg looks for the mark under the accounts' locks, and else decides and queues what is to be written.
func decideLeg(ctx context.Context, tx pgx.Tx, leg *cross.Leg, book *ledger.Book, b *pgx.Batch) (saga.Outcome, error) {
	marks, err := pgkit.Rows(ctx, tx, pgx.RowToStructByPos[saga.Outcome], selectLeg, leg.Saga, leg.Key())
	if err != nil {
		return saga.Outcome{}, err
	}
	if len(marks) > 0 {
		return marks[0], nil
	}
	if leg.Undo {
		// Nobody may be given money for a leg that took none, whatever a caller says.
		var n int
		if err := tx.QueryRow(ctx, doneLeg, leg.Saga, leg.Step, leg.Amount, leg.Currency).Scan(&n); err != nil {
			return saga.Outcome{}, err
		}
		if n == 0 {
			return saga.Outcome{}, cross.ErrNotDone
		}
	}
	t, refusal := leg.Decide(book)
	out, err := leg.Outcome(t, refusal)
	if err != nil {
		return out, fmt.Errorf("%s: %w", leg.Key(), err)
	}
	outcome, transfer := "refused", (*uuid.UUID)(nil)
	if !out.Refused {
		saveBook(b, book.Changes(), countedWrites)
		outcome, transfer = "done", &t.ID
	}
	expectRows(b.Queue(insertLeg, leg.Saga, leg.Key(), outcome, out.Reason, transfer, book.Now(), leg.GID), 1, errLostRow)
	return out, nil
}

// Command implements [cross.Preparer]. The mark settles what a repeat is answered; the key also distinguishes a repeat from another
// request.
func (l *CrossLedger) Command(ctx context.Context, c command.Command[*cross.Leg]) (command.Answer, error) {
	return executeOn(ctx, l.db, c, func() (command.Answer, error) { return l.command(ctx, "cross.command", c) })
}

// command locks, looks for the mark, decides and writes.
func (l *CrossLedger) command(ctx context.Context, name string, c command.Command[*cross.Leg]) (answer command.Answer, err error) {
	if err := l.slots.Acquire(ctx, 1); err != nil {
		return answer, err
	}
	defer l.slots.Release(1)
	leg := c.Op
	err = l.db.runOn(ctx, name, accountRows(leg), func(ctx context.Context, tx pgx.Tx) error {
		book, known, err := lockBook(ctx, tx, leg.Accounts(), command.KeysOf(c))
		if err != nil {
			return err
		}
		var (
			b      pgx.Batch
			failed error
		)
		u := command.Unit{Keys: idempotency.NewBatch(known)}
		answer = command.One(&u, c, "", func() (any, string, error) {
			var out saga.Outcome
			out, failed = decideLeg(ctx, tx, leg, book, &b)
			return out, "", failed
		})
		if failed != nil {
			return failed
		}
		saveKeys(&b, u.Keys.Fresh(), book.Now(), countedWrites)
		return pgkit.Send(ctx, tx, &b)
	})
	return answer, err
}

// errLegRefused rolls the transaction of a refused branch back.
var errLegRefused = errors.New("the leg was refused")

// Prepare implements [cross.Preparer]. It tries once: whoever tries again must do so in a new term. Like Execute, it returns a
// [command.BlockedError] where another session has locked an account.
func (l *CrossLedger) Prepare(ctx context.Context, leg *cross.Leg, gid string) (out saga.Outcome, err error) {
	if reason := l.db.blocked.find(accountRow, leg.Accounts()...); reason != nil {
		return out, reason
	}
	if err := l.slots.Acquire(ctx, 1); err != nil {
		return out, err
	}
	defer l.slots.Release(1)
	leg.GID = gid
	err = l.Database.Prepare(ctx, gid, func(ctx context.Context, tx pgx.Tx) (err error) {
		book, _, err := lockBook(ctx, tx, leg.Accounts(), nil)
		if err != nil {
			return err
		}
		var b pgx.Batch
		if out, err = decideLeg(ctx, tx, leg, book, &b); err != nil {
			return err
		}
		if out.Refused {
			return errLegRefused
		}
		return pgkit.Send(ctx, tx, &b)
	})
	l.db.spec.Accounts.Forget(leg.Accounts()) // The transaction is the participant's, and does not say what it locks.
	if errors.Is(err, errLegRefused) {
		return out, nil
	}
	if isLockTimeout(err) {
		err = fmt.Errorf("%w: %w", l.db.blocked.note(accountRows(leg)), err)
	}
	return out, err
}

// accountRows are a leg's accounts, in the order in which they are locked.
func accountRows(leg *cross.Leg) []blockedRow {
	ids := leg.Accounts()
	slices.Sort(ids)
	rows := make([]blockedRow, len(ids))
	for i, id := range ids {
		rows[i] = blockedRow{accountRow, id}
	}
	return rows
}

// Forget implements [saga.Participant]: it deletes the marks of legs. Those that other servers' transfers have left here are
// not known to have ended, and are in nobody's list.
func (l *CrossLedger) Forget(ctx context.Context, ids []uuid.UUID) error {
	return l.db.run(ctx, "cross.forget", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, deleteLegs, ids)
		return err
	})
}

// committed reads the marks of the branches of a saga that were committed. Old ones have no identifier.
func (db *DB) committed(ctx context.Context, id uuid.UUID) ([]string, error) {
	return query(ctx, db, pgx.RowTo[string], committedLegs, id)
}
