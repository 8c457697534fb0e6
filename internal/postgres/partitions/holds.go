package partitions

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// ClosedHolds is the table of the closed holds. Open ones are in hold_rows, with those that were closed since its last turn.
//
// Holds can't be in partitions by their ids: an account has one open hold in an auction, and an index that says so must be over one table. So hold_rows is
// turned as a whole, once a month. Commands go on meanwhile, and know nothing of it:
//
//  1. Turn: in one transaction, which takes milliseconds, the table is renamed and a new one takes its name. The old one becomes a part of the new one, by
//     inheritance, so that whoever reads or closes holds of hold_rows finds those of both. New holds are in the new one.
//  2. Move: the open holds go to the new table, some at a time.
//  3. Settle: when all holds of the old table are closed, which a constraint proves, it becomes a part of closed_holds instead.
//
// Rows of closed holds stay where they are. Each step may be interrupted; the next call goes on.
const ClosedHolds = "closed_holds"

const (
	// turnAhead is how long before the end of a month its turn begins: what is closed after it is archived with the next month.
	turnAhead = 6 * time.Hour
	// holdsAtOnce are moved in one transaction, which keeps their accounts from commands.
	holdsAtOnce = 100
	// moveRest is how many times as long as moving took the mover rests.
	moveRest = 4
	// lockTries are made to lock what somebody uses for long, with a pause in between.
	lockTries = 8
	lockPause = 100 * time.Millisecond

	selectTurn = `SELECT number, settled_at FROM hold_turns ORDER BY number DESC LIMIT 1`
	insertTurn = `INSERT INTO hold_turns (number, turned_at) VALUES ($1, clock_timestamp())`
	settleTurn = `UPDATE hold_turns SET settled_at = clock_timestamp() WHERE number = $1 AND settled_at IS NULL`
	// proven is the constraint that has no open hold be in closed_holds.
	proven        = "all_closed"
	selectProven  = `SELECT EXISTS (SELECT FROM pg_constraint WHERE conrelid = $1::regclass AND conname = '` + proven + `')`
	selectSettled = `SELECT t.number, t.settled_at FROM hold_turns AS t JOIN pg_inherits AS i ON i.inhrelid = to_regclass('` + ClosedHolds + `_' || t.number)
		WHERE i.inhparent = '` + ClosedHolds + `'::regclass AND t.settled_at IS NOT NULL ORDER BY t.number`
	selectView    = `SELECT pg_get_viewdef('current_holds'::regclass)`
	selectOptions = `SELECT coalesce('WITH (' || array_to_string(reloptions, ', ') || ')', '') FROM pg_class WHERE oid = 'hold_rows'::regclass`

	// lockOpen locks open holds and their accounts. Whoever closes a hold has locked its account before reading the hold. It waits for nobody.
	lockOpen = `SELECT h.id, h.account FROM %s AS h JOIN accounts AS a ON a.id = ANY (ARRAY[h.account])
		WHERE h.status = 'open' AND h.account >= $1 ORDER BY h.account LIMIT $2 FOR NO KEY UPDATE OF h, a SKIP LOCKED`
	selectOpen  = `SELECT id, account FROM %s WHERE status = 'open' ORDER BY account LIMIT 1`
	lockAccount = `SELECT id FROM accounts WHERE id = $1 FOR NO KEY UPDATE`
	moveOpen    = `WITH moved AS (DELETE FROM %s WHERE id = ANY($1) AND status = 'open' RETURNING *)
		INSERT INTO hold_rows (id, account, amount, captured, status, expires_at, created_at, closed_at, transfer, owner)
		SELECT id, account, amount, captured, status, expires_at, created_at, closed_at, transfer, owner FROM moved`
)

// Turn is one of hold_rows.
type Turn struct {
	Number    int
	SettledAt *time.Time // all holds of its table were closed before; nil: it is under way
}

// Table is where its holds are.
func (t Turn) Table() string { return fmt.Sprintf("%s_%d", ClosedHolds, t.Number) }

// Settled returns the turns whose tables are parts of closed_holds, the oldest first.
func Settled(ctx context.Context, q Querier) ([]Turn, error) {
	return rows(ctx, q, pgx.RowToStructByPos[Turn], selectSettled)
}

// TurnHolds turns hold_rows when the last turn was in an earlier month, and goes on with a turn that was interrupted. It returns how many were settled.
// Any number of processes may do this at once.
//
// Errors: those of [Convert], also where somebody keeps an open hold, or its account, for long.
func TurnHolds(ctx context.Context, db DB, now time.Time) (settled int, err error) {
	for turned := false; ; {
		last, err := rows(ctx, db, pgx.RowToStructByPos[Turn], selectTurn)
		if err != nil || len(last) == 0 {
			return settled, err
		}
		switch t := last[0]; {
		case t.SettledAt == nil:
			if err := settle(ctx, db, t); err != nil {
				return settled, fmt.Errorf("settle %s: %w", t.Table(), err)
			}
			settled++
		case !turned && month(t.SettledAt.Add(turnAhead), 0).Before(month(now.Add(turnAhead), 0)):
			turned = true
			if err := turn(ctx, db, Turn{Number: t.Number + 1}); err != nil && pgkit.Code(err) != pgkit.UniqueViolation { // Another process turns it.
				return settled, fmt.Errorf("turn hold_rows: %w", err)
			}
			crashpoint.Hit(crashpoint.HoldsTurned)
		default:
			return settled, nil
		}
	}
}

// turn has a new table take the place of hold_rows.
func turn(ctx context.Context, db Begin, t Turn) error {
	return locking(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `LOCK TABLE hold_rows`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insertTurn, t.Number); err != nil {
			return err
		}
		grants, err := pgkit.Rows(ctx, tx, pgx.RowTo[string], selectGrants, "hold_rows")
		if err != nil {
			return err
		}
		indexes, err := pgkit.Rows(ctx, tx, pgx.RowToStructByPos[index], selectIndexes, "hold_rows")
		if err != nil {
			return err
		}
		var view, options string
		if err := tx.QueryRow(ctx, selectView).Scan(&view); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, selectOptions).Scan(&options); err != nil {
			return err
		}
		statements := []string{`ALTER TABLE hold_rows RENAME TO ` + t.Table()}
		for _, i := range indexes {
			statements = append(statements, fmt.Sprintf(`ALTER INDEX %s RENAME TO %s_%d`, i.Name, i.Name, t.Number))
		}
		statements = append(statements, fmt.Sprintf(`CREATE TABLE hold_rows (LIKE %s INCLUDING DEFAULTS INCLUDING GENERATED INCLUDING CONSTRAINTS
			INCLUDING STORAGE INCLUDING COMPRESSION INCLUDING COMMENTS) %s`, t.Table(), options))
		for _, i := range indexes {
			statements = append(statements, i.on("hold_rows"))
		}
		statements = append(statements,
			fmt.Sprintf(`ALTER TABLE %s INHERIT hold_rows`, t.Table()),
			`CREATE OR REPLACE VIEW current_holds AS `+view) // It would follow the table that was renamed.
		return run(ctx, tx, append(statements, grants...)...)
	})
}

// settle moves the open holds out of a turn's table, and makes it a part of closed_holds.
func settle(ctx context.Context, db DB, t Turn) error {
	for {
		err := moveFree(ctx, db, t)
		if err == nil {
			err = moveLocked(ctx, db, t)
		}
		if err == nil {
			err = prove(ctx, db, t)
		}
		if err == nil {
			err = attach(ctx, db, t)
		}
		if err == nil {
			return analyze(ctx, db)
		}
		if pgkit.Code(err) != checkViolation { // Then a hold is open still.
			return err
		}
	}
}

// analyze has the planner know that hold_rows has no parts any more, which PostgreSQL notes only then: of a table that may have some, version 18 reads
// all rows even where that is switched off. An autovacuum does the same sooner or later.
func analyze(ctx context.Context, db Begin) error {
	err := inTx(ctx, db, LockTimeout, `ANALYZE hold_rows`)
	if pgkit.Code(err) == pgkit.LockTimeout {
		return nil
	}
	return err
}

// openHold is one that has to move.
type openHold struct {
	ID      uuid.UUID
	Account string
}

// moveFree moves the open holds that nobody has locked.
func moveFree(ctx context.Context, db Begin, t Turn) error {
	for last := ""; ; {
		began := time.Now()
		var found []openHold
		err := locking(ctx, db, func(tx pgx.Tx) (err error) {
			found, err = pgkit.Rows(ctx, tx, pgx.RowToStructByPos[openHold], fmt.Sprintf(lockOpen, t.Table()), last, holdsAtOnce)
			if err == nil && len(found) > 0 {
				err = moveHolds(ctx, tx, t, found)
			}
			return err
		})
		if err != nil || len(found) == 0 {
			return err
		}
		crashpoint.Hit(crashpoint.HoldsMoved)
		last = found[len(found)-1].Account
		if !wait.For(ctx, moveRest*time.Since(began)) {
			return ctx.Err()
		}
	}
}

// moveLocked moves the open holds that are left, one by one. It waits for whoever has locked one.
func moveLocked(ctx context.Context, db DB, t Turn) error {
	for {
		left, err := rows(ctx, db, pgx.RowToStructByPos[openHold], fmt.Sprintf(selectOpen, t.Table()))
		if err != nil || len(left) == 0 {
			return err
		}
		if err := locking(ctx, db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, lockAccount, left[0].Account); err != nil {
				return err
			}
			return moveHolds(ctx, tx, t, left)
		}); err != nil {
			return err
		}
	}
}

// moveHolds moves open holds whose accounts are locked.
func moveHolds(ctx context.Context, tx pgx.Tx, t Turn, holds []openHold) error {
	ids := make([]uuid.UUID, len(holds))
	for i, h := range holds {
		ids[i] = h.ID
	}
	_, err := tx.Exec(ctx, fmt.Sprintf(moveOpen, t.Table()), ids)
	return err
}

// prove has the database read that all holds of a turn's table are closed. Commands go on meanwhile.
func prove(ctx context.Context, db Begin, t Turn) error {
	err := locking(ctx, db, func(tx pgx.Tx) error {
		if there, err := pgkit.Rows(ctx, tx, pgx.RowTo[bool], selectProven, t.Table()); err != nil || there[0] {
			return err
		}
		return run(ctx, tx, fmt.Sprintf(`ALTER TABLE %s ADD CONSTRAINT %s CHECK (status <> 'open') NOT VALID`, t.Table(), proven))
	})
	if err != nil && pgkit.Code(err) != duplicateObject { // Another process has just added it.
		return err
	}
	return inTx(ctx, db, `SET LOCAL statement_timeout = 0`, fmt.Sprintf(`ALTER TABLE %s VALIDATE CONSTRAINT %s`, t.Table(), proven))
}

// attach makes a turn's table a part of closed_holds. Readers of both tables see a hold once: they lock the tables before they look for their parts.
func attach(ctx context.Context, db Begin, t Turn) error {
	return locking(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `LOCK TABLE hold_rows, `+ClosedHolds); err != nil {
			return err
		}
		if tag, err := tx.Exec(ctx, settleTurn, t.Number); err != nil || tag.RowsAffected() == 0 { // Another process has settled it.
			return err
		}
		return run(ctx, tx, fmt.Sprintf(`ALTER TABLE %s NO INHERIT hold_rows`, t.Table()), fmt.Sprintf(`ALTER TABLE %s INHERIT %s`, t.Table(), ClosedHolds))
	})
}

// locking runs a transaction that locks tables, or rows that commands change. It gives up before commands have to wait for long, and is tried again a few
// times. An autovacuum that is in the way is asked to leave.
func locking(ctx context.Context, db Begin, change func(pgx.Tx) error) error {
	for tries := 1; ; tries++ {
		err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, LockTimeout); err != nil {
				return err
			}
			return change(tx)
		})
		if pgkit.Code(err) != pgkit.LockTimeout || tries == lockTries {
			return err
		}
		if tries == 1 {
			pgkit.AskVacuum(ctx, db, "")
		}
		if !wait.For(ctx, lockPause) {
			return err
		}
	}
}

func rows[T any](ctx context.Context, q Querier, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	found, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, scan)
}
