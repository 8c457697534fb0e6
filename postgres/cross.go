package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/ledger"
	"github.com/fairlead-dev/fairlead/ledger/cross"
	"github.com/fairlead-dev/fairlead/saga"
)

// crossSlots is how many legs a process works on at once in one database. Those that wait for an account whose transaction
// is prepared must leave connections to whoever is to commit it.
const crossSlots = 4

// prepareLockTimeout bounds how long a leg waits for an account that another transaction has; the transaction is then
// rolled back in all databases, and tried again. Two that wait for each other in different databases end so, too.
const prepareLockTimeout = `SET LOCAL lock_timeout = '3s'`

// CrossLedger is one database's part in transfers between ledgers. Several processes may work on it.
type CrossLedger struct {
	db    *DB
	slots chan struct{}
}

var _ cross.Ledger = (*CrossLedger)(nil)

// NewCrossLedger returns the ledger of db as a party to transfers between ledgers.
func NewCrossLedger(db *DB) *CrossLedger {
	return &CrossLedger{db: db, slots: make(chan struct{}, crossSlots)}
}

// Account implements [cross.Ledger].
func (l *CrossLedger) Account(ctx context.Context, id string) (ledger.Account, error) {
	return NewLedger(l.db).Account(ctx, id)
}

// CanPrepare implements [cross.Ledger].
func (l *CrossLedger) CanPrepare(ctx context.Context) error {
	n, err := queryOne(ctx, l.db, errEmpty, pgx.RowTo[int], `SELECT current_setting('max_prepared_transactions')::integer`)
	if err == nil && n == 0 {
		return cross.ErrTwoPhaseUnavailable
	}
	return err
}

func (l *CrossLedger) enter(ctx context.Context) error {
	select {
	case l.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *CrossLedger) leave() { <-l.slots }

// Execute implements [cross.Ledger]. It recognises its own earlier effect by the leg's mark, whose primary key lets one of
// several executions write it.
func (l *CrossLedger) Execute(ctx context.Context, leg *cross.Leg) (out saga.Outcome, err error) {
	if err := l.enter(ctx); err != nil {
		return out, err
	}
	defer l.leave()
	err = l.db.run(ctx, "cross.leg", func(ctx context.Context, tx pgx.Tx) (err error) {
		out, err = executeLeg(ctx, tx, leg)
		return err
	})
	l.db.accounts.forget(leg.Accounts)
	return out, err
}

const (
	selectLeg = `SELECT outcome = 'refused', reason, coalesce(transfer::text, '') FROM saga_legs WHERE saga = $1 AND step = $2`
	insertLeg = `INSERT INTO saga_legs (saga, step, outcome, reason, transfer, at) VALUES ($1, $2, $3, $4, $5, $6)`
)

// executeLeg locks, looks for the mark, decides and writes.
func executeLeg(ctx context.Context, tx pgx.Tx, leg *cross.Leg) (saga.Outcome, error) {
	book, _, err := lockBook(ctx, tx, slices.Clone(leg.Accounts), nil, nil)
	if err != nil {
		return saga.Outcome{}, err
	}
	rows, err := tx.Query(ctx, selectLeg, leg.Saga, leg.Key)
	if err != nil {
		return saga.Outcome{}, err
	}
	marks, err := pgx.CollectRows(rows, pgx.RowToStructByPos[saga.Outcome])
	if err != nil {
		return saga.Outcome{}, err
	}
	if len(marks) > 0 {
		return marks[0], nil
	}
	t, refusal := leg.Decide(book)
	reason := ""
	if refusal != nil {
		if reason = cross.Reason(refusal); reason == "" || leg.Must {
			return saga.Outcome{}, fmt.Errorf("%s: %w", leg.Key, refusal)
		}
	}
	var b pgx.Batch
	out, outcome, transfer := saga.Outcome{Refused: true, Reason: reason}, "refused", (*uuid.UUID)(nil)
	if refusal == nil {
		saveBook(&b, book.Changes(), countedWrites)
		out, outcome, transfer = saga.Outcome{Result: t.ID.String()}, "done", &t.ID
	}
	expectRows(b.Queue(insertLeg, leg.Saga, leg.Key, outcome, reason, transfer, book.Now()), 1, errLostRow)
	return out, send(ctx, tx, &b)
}

// errLegRefused rolls the transaction of a refused branch back.
var errLegRefused = errors.New("the leg was refused")

// Prepare implements [cross.Ledger]. It tries once: whoever tries again must do so in a new term.
func (l *CrossLedger) Prepare(ctx context.Context, leg *cross.Leg, gid string) (out saga.Outcome, err error) {
	if err := l.enter(ctx); err != nil {
		return out, err
	}
	defer l.leave()
	err = l.db.prepare(ctx, gid, func(ctx context.Context, tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, prepareLockTimeout); err != nil {
			return err
		}
		if out, err = executeLeg(ctx, tx, leg); err == nil && out.Refused {
			return errLegRefused
		}
		return err
	})
	l.db.accounts.forget(leg.Accounts)
	if errors.Is(err, errLegRefused) {
		return out, nil
	}
	return out, err
}

// prepare runs fn in a transaction and leaves it prepared under gid. After an error it may be prepared all the same.
func (db *DB) prepare(ctx context.Context, gid string, fn func(context.Context, pgx.Tx) error) error {
	if err := checkGID(gid); err != nil {
		return err
	}
	acquire, cancelAcquire := context.WithTimeout(ctx, retryFor)
	defer cancelAcquire()
	conn, err := db.pool.Acquire(acquire)
	if err != nil {
		return readError(err)
	}
	defer conn.Release()
	tx := &lazyTx{conn: conn}
	defer func() {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
		defer cancel()
		_ = tx.Rollback(undo) // A failure closes the connection, which rolls back too.
	}()
	custom := conn.Conn().PgConn().CustomData()
	delete(custom, replicationWarning)
	working, cancelWork := context.WithTimeout(ctx, attemptTimeout)
	defer cancelWork()
	if err := fn(working, tx); err != nil {
		return err
	}
	sent, cancel := context.WithTimeout(context.WithoutCancel(ctx), retryFor)
	defer cancel()
	tag, err := conn.Exec(sent, "PREPARE TRANSACTION '"+gid+"'", pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		// The server has rolled back, or the connection is of no more use; either way no rollback is needed on it.
		return command.UnknownOutcome(fmt.Errorf("postgres: prepare %s: %w", gid, err))
	}
	tx.ended = true
	if tag.String() != "PREPARE TRANSACTION" {
		return fmt.Errorf("postgres: prepare %s: %w", gid, pgx.ErrTxCommitRollback)
	}
	if custom[replicationWarning] == true {
		return fmt.Errorf("postgres: prepare %s: %w", gid, errNotReplicated)
	}
	return nil
}

// errBadGID is returned for an identifier that isn't one of ours.
var errBadGID = errors.New("the identifier of a prepared transaction has other than lower-case letters, digits, colons and hyphens")

// checkGID makes sure that an identifier can stand between quotes: these statements take no parameters.
func checkGID(gid string) error {
	const longest = 199
	ours := len(gid) > 0 && len(gid) <= longest
	for i := range len(gid) {
		c := gid[i]
		ours = ours && ('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == ':' || c == '-')
	}
	if !ours {
		return errBadGID
	}
	return nil
}

// errNotPrepared is returned when a decided transaction is neither prepared nor marked as committed: the database has lost
// it, in a failover to a server that lacks its last commits.
var errNotPrepared = errors.New("a transaction that was decided to commit is neither prepared nor committed")

// CommitPrepared implements [saga.Participant].
func (l *CrossLedger) CommitPrepared(ctx context.Context, gid string) error {
	err := l.db.finishPrepared(ctx, "COMMIT PREPARED", gid)
	if !isUndefinedObject(err) {
		return err
	}
	// It was committed before, which its mark must say.
	id, ok := saga.IDOfGID(gid)
	if !ok {
		return errBadGID
	}
	n, err := queryOne(ctx, l.db, errEmpty, pgx.RowTo[int], `SELECT count(*) FROM saga_legs WHERE saga = $1 AND outcome = 'done'`, id)
	if err == nil && n == 0 {
		err = fmt.Errorf("postgres: %s: %w", gid, errNotPrepared)
	}
	return err
}

// RollbackPrepared implements [saga.Participant].
func (l *CrossLedger) RollbackPrepared(ctx context.Context, gid string) error {
	if err := l.db.finishPrepared(ctx, "ROLLBACK PREPARED", gid); !isUndefinedObject(err) {
		return err
	}
	return nil
}

// InDoubt implements [saga.Participant].
func (l *CrossLedger) InDoubt(ctx context.Context, prefix string) ([]string, error) {
	return query(ctx, l.db, pgx.RowTo[string],
		`SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND starts_with(gid, $1) ORDER BY prepared`, prefix)
}

// finishPrepared ends a prepared transaction.
func (db *DB) finishPrepared(ctx context.Context, how, gid string) error {
	if err := checkGID(gid); err != nil {
		return err
	}
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return readError(err)
	}
	defer conn.Release()
	custom := conn.Conn().PgConn().CustomData()
	delete(custom, replicationWarning)
	sent, cancel := context.WithTimeout(context.WithoutCancel(ctx), retryFor)
	defer cancel()
	if _, err := conn.Exec(sent, how+" '"+gid+"'", pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("postgres: %s %s: %w", how, gid, err)
	}
	if custom[replicationWarning] == true {
		return fmt.Errorf("postgres: %s %s: %w", how, gid, errNotReplicated)
	}
	return nil
}

func isUndefinedObject(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == "42704"
}
