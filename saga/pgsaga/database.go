package pgsaga

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/saga"
)

// DefaultLockTimeout bounds how long a step or a branch waits for a row that another transaction has locked.
const DefaultLockTimeout = 3 * time.Second

// finishTimeout bounds a statement that ends a prepared transaction, which is seen through whatever becomes of
// its caller.
const finishTimeout = 20 * time.Second

// ReplicationWarning is a connection's custom-data key. Where a pool's OnNotice sets it to true on a notice of
// PostgreSQL's SyncRepWaitForLSN, what was prepared or committed with such a notice counts as unknown.
const ReplicationWarning = pgkit.ReplicationWarning

// Options are the parts of a [Database] that its user may bring. All may be zero.
type Options struct {
	Schema Schema
	// LockTimeout bounds the wait for a lock; 0 means [DefaultLockTimeout]. A branch that has waited for longer is rolled
	// back with all others of its transaction, and tried again: two transactions that wait for each other in different
	// databases end so.
	LockTimeout time.Duration
	// Upkeep has the connections on which prepared transactions are looked for and ended; nil: the database's pool. With a
	// pool of its own, no load keeps a process from ending what is in doubt.
	Upkeep *pgxpool.Pool
	// Committed returns the identifiers of the branches of a saga that were committed here, for those who keep marks of their
	// own, see [saga.Participant]; nil: the marks of this package do.
	Committed func(ctx context.Context, id uuid.UUID) (gids []string, err error)
}

// Database is one in which sagas have effects: it makes steps and branches, and is a [saga.Participant]. It is safe for
// concurrent use.
type Database struct {
	pool      *pgxpool.Pool
	upkeep    *pgxpool.Pool
	run       *runner
	preparing *runner // of branches
	schema    Schema
	fencing   *runner // on upkeep, which waits for a fence for a moment only
	committed func(ctx context.Context, id uuid.UUID) ([]string, error)
	foreign   bool // the marks are not those of this package
	gate      pgkit.Gate
	prepares  atomic.Bool // as far as is known before it is tried
}

var _ saga.Participant = (*Database)(nil)

// NewDatabase returns the pool's database, which has the tables, see [Schema.Install].
func NewDatabase(pool *pgxpool.Pool, o Options) *Database {
	o.LockTimeout = cmp.Or(o.LockTimeout, DefaultLockTimeout)
	d := &Database{gate: pgkit.Gate{Schema: string(o.Schema)}, pool: pool, upkeep: cmp.Or(o.Upkeep, pool), run: newRunner(pool, o.LockTimeout), schema: o.Schema, committed: o.Committed}
	d.preparing = newRunner(pool, o.LockTimeout)
	d.preparing.Begin += "; " + setOwn
	d.fencing = newRunner(d.upkeep, fenceTimeout)
	if d.foreign = d.committed != nil; !d.foreign {
		d.committed = d.marked
	}
	return d
}

// mayPrepare is true unless nothing is to be prepared whatever the server could: whoever ends a prepared transaction has an advisory lock.
const mayPrepare = `to_regclass($1) IS NULL
	AND NOT 'prepare-transaction' = ANY (regexp_split_to_array(coalesce(current_setting('` + pgkit.Without + `', true), ''), '\s*,\s*'))`

// CanPrepare returns [saga.ErrTwoPhaseUnavailable] where the database takes no prepared transactions.
func (d *Database) CanPrepare(ctx context.Context) error {
	return d.askPrepare(ctx, `SELECT coalesce(current_setting('max_prepared_transactions', true), '0')::integer > 0 AND `+mayPrepare)
}

func (d *Database) askPrepare(ctx context.Context, sql string) error {
	can, err := query(ctx, read, d.pool, pgx.RowTo[bool], sql, d.schema.in(pgkit.GateTable))
	switch {
	case pgkit.Refused(err):
		return fmt.Errorf("%w: %w", saga.ErrTwoPhaseUnavailable, err)
	case err != nil:
		return fmt.Errorf("pgsaga: can it prepare: %w", err)
	case !can[0]:
		return saga.ErrTwoPhaseUnavailable
	}
	return nil
}

// Transaction is what a step does in a transaction, which is committed, or prepared, when it returns neither an error nor a
// refusal. It may be called again, in a new transaction.
type Transaction func(ctx context.Context, tx pgx.Tx, c saga.Call) (saga.Outcome, error)

// Step makes a step of two transactions on this database, each of which takes effect once. undo may be nil.
func (d *Database) Step(name string, do, undo Transaction) saga.Step {
	s := saga.Step{Name: name, Do: d.once(do)}
	if undo != nil {
		s.Undo = d.once(undo)
	}
	return s
}

func (d *Database) once(f Transaction) func(context.Context, saga.Call) (saga.Outcome, error) {
	return func(ctx context.Context, c saga.Call) (out saga.Outcome, err error) {
		err = d.run.run(ctx, c.Key(), func(ctx context.Context, tx pgx.Tx) (err error) {
			out, err = d.schema.Once(ctx, tx, c, f)
			return err
		})
		return out, err
	}
}

// Branch makes a branch of a two-phase commit of a transaction on this database. do must not end the transaction, neither by its
// Commit or Rollback, also deferred, nor by a statement; savepoints and nested transactions are fine. A branch whose do has ended it
// returns [saga.ErrTransactionEnded], and the whole two-phase transaction fails at once, with
// [saga.ReasonTransactionEnded]. Nobody can take back what do has committed by itself.
func (d *Database) Branch(name string, do Transaction) saga.Branch {
	return saga.Branch{Name: name, Participant: d, Prepare: func(ctx context.Context, c saga.Call, gid string) (out saga.Outcome, err error) {
		c.GID = gid
		err = d.Prepare(ctx, gid, func(ctx context.Context, tx pgx.Tx) (err error) {
			if out, err = do(ctx, tx, c); err != nil {
				return err
			}
			if out.Refused {
				return errRefused
			}
			if err := checkResult(out.Result); err != nil {
				return err
			}
			tag, err := tx.Exec(ctx, d.schema.in(branchMark), c.Saga, c.Key(), outcomeDone, out.Result, gid)
			if err == nil && tag.RowsAffected() == 0 {
				err = saga.ErrTransactionEnded
			}
			return err
		})
		if errors.Is(err, errRefused) {
			return out, nil
		}
		return out, err
	}}
}

// errRefused rolls the transaction of a refused branch back.
var errRefused = errors.New("the branch was refused")

// Prepare runs fn in a transaction, which fn must not end, and leaves it prepared under gid. It tries once. After fn's error, which it returns, and
// after [saga.ErrTwoPhaseUnavailable], nothing is prepared; after another error it may be all the same.
func (d *Database) Prepare(ctx context.Context, gid string, fn func(context.Context, pgx.Tx) error) error {
	if err := checkGID(gid); err != nil {
		return err
	}
	if !d.prepares.Load() { // It is asked once: the answer needs an installation to change.
		if err := d.askPrepare(ctx, `SELECT `+mayPrepare); err != nil {
			return err
		}
		d.prepares.Store(true)
	}
	sent, err := d.preparing.Prepare(ctx, gid, fn)
	switch {
	case sent && (pgkit.Code(err) == "55000" || pgkit.Refused(err)):
		return fmt.Errorf("%w: %w", saga.ErrTwoPhaseUnavailable, err)
	case sent:
		return fmt.Errorf("pgsaga: prepare %s: %w", gid, err)
	}
	return err
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

// undefinedObject is the SQLSTATE of a prepared transaction that isn't there.
const undefinedObject = "42704"

// endOn sends one of the statements that take an identifier, which is a literal in them, and sees it through.
func (d *Database) endOn(ctx context.Context, conn *pgxpool.Conn, gid string, commit bool) error {
	how := "ROLLBACK PREPARED"
	if commit {
		how = "COMMIT PREPARED"
	}
	custom := conn.Conn().PgConn().CustomData()
	delete(custom, ReplicationWarning)
	sent, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	_, err := conn.Exec(sent, how+" '"+gid+"'", pgx.QueryExecModeSimpleProtocol)
	if err == nil && custom[ReplicationWarning] == true {
		err = pgkit.ErrNotReplicated
	}
	if err != nil {
		err = fmt.Errorf("pgsaga: %s %s: %w", how, gid, err)
	}
	if pgkit.Code(err) != undefinedObject {
		return err
	}
	if !commit {
		return nil
	}
	// It was committed before, which its mark must say.
	id, ok := saga.IDOfGID(gid)
	if !ok {
		return errBadGID
	}
	done, err := d.committed(ctx, id)
	if err == nil && !slices.Contains(done, gid) && !slices.Contains(done, "") {
		err = fmt.Errorf("pgsaga: commit %s: %w", gid, saga.ErrNotPrepared)
	}
	return err
}

// InDoubt implements [saga.Participant].
func (d *Database) InDoubt(ctx context.Context, prefix string) ([]saga.Prepared, error) {
	const inDoubt = `SELECT gid, prepared, (extract(epoch FROM clock_timestamp() - prepared) * 1000000)::bigint FROM pg_prepared_xacts
		WHERE database = current_database() AND starts_with(gid, $1) ORDER BY prepared`
	return query(ctx, read, d.upkeep, func(row pgx.CollectableRow) (p saga.Prepared, err error) {
		var us int64
		err = row.Scan(&p.GID, &p.At, &us)
		p.At, p.Age = p.At.UTC(), time.Duration(us)*time.Microsecond
		return p, err
	}, inDoubt, prefix)
}
