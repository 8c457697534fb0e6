package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// The records of keys are in two tables, the slots, one of which is written: docs/adr/0051-keys-in-two-slots.md. A statement that writes a record
// looks itself which slot that is. A key that has a record in the other slot is routed there, so that the primary key there refuses it. For this
// to hold, no transaction that has written keys may be under way while the other slot becomes the one that is written: see turnSlots.
const (
	keyColumns  = `id, fingerprint, execution, status, body, created_at`
	writtenSlot = `SELECT slot FROM key_slots WHERE since IS NOT NULL AND left_at IS NULL`

	// routeKeys decides for each row of k, the last query before it, which slot it goes to.
	routeKeys = `, n AS (SELECT k.*, CASE (` + writtenSlot + `)
			WHEN 0 THEN coalesce((SELECT 1 FROM idempotency_keys_1 AS other WHERE other.id = k.id), 0)
			WHEN 1 THEN coalesce((SELECT 0 FROM idempotency_keys AS other WHERE other.id = k.id), 1) END AS slot FROM k)`
	// If no slot were written, the first one would refuse a row that has none.
	toSlot0 = `, first AS (INSERT INTO idempotency_keys (` + keyColumns + `, slot) SELECT ` + keyColumns + `, slot FROM n WHERE slot IS DISTINCT FROM 1`
	toSlot1 = `INTO idempotency_keys_1 (` + keyColumns + `) SELECT ` + keyColumns + ` FROM n WHERE slot = 1`

	orNothing = ` ON CONFLICT (id) DO NOTHING`
	givenKeys = `k AS (SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::uuid[], $4::smallint[], $5::bytea[], $6::timestamptz[])
		AS k (` + keyColumns + `))` + routeKeys + toSlot0

	insertKeys = `WITH ` + givenKeys + `) INSERT ` + toSlot1
	// insertKeysOrNothing has a row for each that it has inserted.
	insertKeysOrNothing = `WITH ` + givenKeys + orNothing + ` RETURNING 1), second AS (INSERT ` + toSlot1 + orNothing + ` RETURNING 1)
		SELECT 1 FROM first UNION ALL SELECT 1 FROM second`
	// contestKeys makes records under ids in hex, for a transaction that is rolled back.
	contestKeys = `WITH k AS (SELECT decode(id, 'hex') AS id, decode(id, 'hex') AS fingerprint, gen_random_uuid() AS execution, 0 AS status,
			''::bytea AS body, clock_timestamp() AS created_at FROM unnest($1::text[]) AS id)` + routeKeys + toSlot0 + orNothing + `) INSERT ` + toSlot1 + orNothing
)

// keySlot is one of the tables that records of keys are in.
type keySlot struct{ table, empty, used string }

// keySlots returns them by their numbers.
func keySlots() [2]keySlot {
	return [...]keySlot{
		{"idempotency_keys", `TRUNCATE idempotency_keys`, `SELECT EXISTS (SELECT FROM idempotency_keys)`},
		{"idempotency_keys_1", `TRUNCATE idempotency_keys_1`, `SELECT EXISTS (SELECT FROM idempotency_keys_1)`},
	}
}

const (
	// slotMargin is for records whose time is that of a clock which is ahead by as much as the fast path allows.
	slotMargin = time.Second
	// A turn, and the removal of a slot's records, wait slotLockTimeout at most for other transactions, since commands queue behind them. They
	// are tried slotTries times, slotPause apart, and then left to a later sweep.
	slotLockTimeout = `SET LOCAL lock_timeout = '20ms'`
	slotTries       = 10
	slotPause       = 100 * time.Millisecond
)

const (
	// selectSlots lists the slot that is written last.
	selectSlots = `SELECT slot, left_at IS NOT NULL, coalesce(left_at < clock_timestamp() - $1::interval, false),
		coalesce(since <= clock_timestamp() - $2::interval, false) FROM key_slots ORDER BY left_at IS NULL AND since IS NOT NULL`
	// lockSlots lets no transaction in that has written a key and is under way, nor any that is about to; reads go on.
	lockSlots = `LOCK TABLE idempotency_keys IN SHARE ROW EXCLUSIVE MODE`
	// An engine may accept the statement and lock nothing.
	slotsLocked = `SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'idempotency_keys'::regclass AND mode = 'ShareRowExclusiveLock'
		AND granted AND pid = pg_backend_pid())`
	leaveSlot = `UPDATE key_slots SET left_at = clock_timestamp()
		WHERE slot = $1 AND since IS NOT NULL AND left_at IS NULL AND since <= clock_timestamp() - $2::interval`
	enterSlot = `UPDATE key_slots SET since = clock_timestamp() WHERE slot = $1 AND since IS NULL`
	clearSlot = `UPDATE key_slots SET since = NULL, left_at = NULL WHERE slot = $1 AND left_at < clock_timestamp() - $2::interval`

	// Servers of before the slots write to the first one alone, and are refused once its column has no default.
	selectOpenSlots = `SELECT atthasdef FROM pg_attribute WHERE attrelid = 'idempotency_keys'::regclass AND attname = 'slot'`
	refuseOlder     = `ALTER TABLE idempotency_keys ALTER COLUMN slot DROP DEFAULT`
	// Nothing in a slot is ever deleted or changed, and all of it goes at once: there is nothing to vacuum.
	leaveUnvacuumed0 = `ALTER TABLE idempotency_keys SET (autovacuum_enabled = off, toast.autovacuum_enabled = off)`
	leaveUnvacuumed1 = `ALTER TABLE idempotency_keys_1 SET (autovacuum_enabled = off, toast.autovacuum_enabled = off)`

	// selectHolding lists the transactions that have a lock of a table which a change would have to wait for: one that writes, or any.
	selectHolding = `SELECT DISTINCT virtualtransaction FROM pg_locks WHERE relation = $1::text::regclass AND granted AND pid IS DISTINCT FROM pg_backend_pid()
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND ($2 OR mode NOT IN ('AccessShareLock', 'RowShareLock'))`
)

// errSlotsBusy says that a change of the slots has to wait for somebody.
var errSlotsBusy = errors.New("others use the slots of idempotency keys")

// slotState is a row of key_slots: Left says that it was written, Past that all its records are past their retention, Due that it has been written
// for long enough.
type slotState struct {
	Slot            int16
	Left, Past, Due bool
}

// SweepKeys removes records that are older than retention, by the database's clock, a slot at a time: a record is kept for between one retention
// and two, and until the next sweep that no transaction holds up. It returns how many slots it has emptied, or, where slots can't be turned,
// how many records it has deleted. Any number of processes may sweep at once.
func (db *DB) SweepKeys(ctx context.Context, retention time.Duration) (removed int64, err error) {
	open, err := queryOne(ctx, db, errEmpty, pgx.RowTo[bool], selectOpenSlots)
	// What has no places of rows is no PostgreSQL, whose locks of tables a turn needs.
	byID := err == nil && open && !db.engine.Has(pgkit.RowPlaces)
	if err == nil && !byID {
		removed, err = db.turnKeys(ctx, retention, open)
		byID = open && pgkit.IsDenied(err) // Only who owns the tables may turn the slots.
	}
	if byID {
		removed, err = db.sweepKeysByID(ctx, retention)
	}
	if err != nil {
		return removed, fmt.Errorf("postgres: sweep idempotency keys: %w", readError(err))
	}
	return removed, nil
}

// turnKeys empties the slot that was left, once its records are past their retention, and makes it the one that is written when it is empty and
// the other one has been written for a retention.
func (db *DB) turnKeys(ctx context.Context, retention time.Duration, open bool) (emptied int64, err error) {
	states, err := query(ctx, db, pgx.RowToStructByPos[slotState], selectSlots, retention+slotMargin, retention)
	if err != nil {
		return 0, err
	}
	tables := keySlots()
	if len(states) != len(tables) {
		return 0, fmt.Errorf("there are %d slots", len(states))
	}
	other, written := states[0], states[1]
	if other.Left && other.Past {
		err = db.changeSlots(ctx, tables[other.Slot].table, true, func(tx pgx.Tx) error { return emptySlot(ctx, tx, other.Slot, retention) })
		if err == nil {
			emptied, other.Left = 1, false
		}
	}
	if err == nil && written.Due && !other.Left {
		err = db.turnIfUsed(ctx, written.Slot, other.Slot, retention, open)
	}
	if errors.Is(err, errSlotsBusy) {
		err = nil // A later sweep finds the same to do.
	}
	return emptied, err
}

// turnIfUsed leaves a slot that has records for the other one. open says that servers of before the slots can write still.
func (db *DB) turnIfUsed(ctx context.Context, from, to int16, retention time.Duration, open bool) error {
	tables := keySlots()
	used, err := queryOne(ctx, db, errEmpty, pgx.RowTo[bool], tables[from].used)
	if err == nil && used && open {
		err = db.changeSlots(ctx, tables[0].table, true, func(tx pgx.Tx) error { return closeFirstSlot(ctx, tx) })
	}
	if err == nil && used {
		err = db.changeSlots(ctx, tables[0].table, false, func(tx pgx.Tx) error { return turnSlots(ctx, tx, from, to, retention) })
	}
	return err
}

// changeSlots calls change in a transaction that waits for locks of a table only briefly, and again where that was too short. It returns
// [errSlotsBusy] where transactions stay that the change would have to wait for: those that write the table, or, with readers, all that use it.
// It does not make commands queue behind those.
func (db *DB) changeSlots(ctx context.Context, table string, readers bool, change func(pgx.Tx) error) error {
	for range slotTries {
		stay, err := db.stayOn(ctx, table, readers)
		if err == nil && !stay {
			err = pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, slotLockTimeout); err != nil {
					return err
				}
				return change(tx)
			})
			stay = isLockTimeout(err)
		}
		if !stay {
			return err
		}
		if !wait.For(ctx, slotPause) {
			return ctx.Err()
		}
	}
	return errSlotsBusy
}

// stayOn reports whether a transaction keeps a lock of a table for long: whether it still has it after a pause.
func (db *DB) stayOn(ctx context.Context, table string, readers bool) (bool, error) {
	before, err := query(ctx, db, pgx.RowTo[string], selectHolding, table, readers)
	if err != nil || len(before) == 0 {
		return false, err
	}
	if !wait.For(ctx, slotPause) {
		return false, ctx.Err()
	}
	after, err := query(ctx, db, pgx.RowTo[string], selectHolding, table, readers)
	return slices.ContainsFunc(after, func(id string) bool { return slices.Contains(before, id) }), err
}

// closeFirstSlot makes the first slot refuse what servers of before the slots insert. None starts on this schema; one that was stopped, and
// goes on after a turn, fails.
func closeFirstSlot(ctx context.Context, tx pgx.Tx) error {
	for _, sql := range []string{refuseOlder, leaveUnvacuumed0, leaveUnvacuumed1} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// turnSlots leaves a slot, and makes the other one the one that is written. Whoever has written a key holds a lock of the first slot's table until
// its transaction ends, whichever slot it has written, and had it before it looked which slot that is. So once this transaction has its own
// lock, all keys in the slot that is left are committed; and who writes a key later looks at the slots after this commit, and finds them there.
func turnSlots(ctx context.Context, tx pgx.Tx, from, to int16, retention time.Duration) error {
	if _, err := tx.Exec(ctx, lockSlots); err != nil {
		return err
	}
	var locked bool
	if err := tx.QueryRow(ctx, slotsLocked).Scan(&locked); err != nil {
		return err
	}
	if !locked {
		return errors.New("the database locks no tables")
	}
	left, err := tx.Exec(ctx, leaveSlot, from, retention)
	if err != nil {
		return err
	}
	entered, err := tx.Exec(ctx, enterSlot, to)
	if err != nil {
		return err
	}
	if left.RowsAffected() != 1 || entered.RowsAffected() != 1 {
		return errSlotsBusy // Another server was faster.
	}
	crashpoint.Hit(crashpoint.KeysTurn)
	return nil
}

// emptySlot gives the space of a slot back, all of whose records are past their retention. Nobody can be about to look one of them up in it,
// and nobody writes to it.
func emptySlot(ctx context.Context, tx pgx.Tx, slot int16, retention time.Duration) error {
	tag, err := tx.Exec(ctx, clearSlot, slot, retention+slotMargin)
	if err != nil {
		return err
	}
	if tag.RowsAffected() != 1 {
		return errSlotsBusy
	}
	if _, err = tx.Exec(ctx, keySlots()[slot].empty); err != nil {
		return err
	}
	crashpoint.Hit(crashpoint.KeysEmpty)
	return nil
}

// sweepRange is how many records one statement of sweepKeysByID looks at.
const sweepRange = 5000

// Records that another session has locked are left to a later sweep.
const sweepKeysAfter = `WITH part AS (SELECT id, created_at < now() - $3::interval AS old FROM idempotency_keys WHERE id > $1 ORDER BY id LIMIT $2),
		gone AS (
			DELETE FROM idempotency_keys WHERE id = ANY (ARRAY(
				SELECT id FROM idempotency_keys WHERE id = ANY (ARRAY(SELECT id FROM part WHERE old)) FOR UPDATE SKIP LOCKED)) RETURNING 1)
	SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM part), coalesce((SELECT id FROM part ORDER BY id DESC LIMIT 1), '')`

// sweepKeysByID is SweepKeys where slots can't be turned, so that all records are in the first one: it goes through them in the order of their
// ids, and so reads the whole table at each sweep.
func (db *DB) sweepKeysByID(ctx context.Context, retention time.Duration) (total int64, err error) {
	after := []byte{}
	for looked := sweepRange; looked == sweepRange; {
		var deleted int64
		if err := db.pool.QueryRow(ctx, sweepKeysAfter, after, sweepRange, retention).Scan(&deleted, &looked, &after); err != nil {
			return total, err
		}
		total += deleted
	}
	return total, nil
}

// StoredKeys estimates how many records there are, from PostgreSQL's own counters and without a look at the tables. It lags by the
// commits of the last seconds (before PostgreSQL 15 by each session's last ones, until its next), and may be off by a few percent while
// autovacuum works on a large table. PostgreSQL loses its counters when it crashes: then the number is that of the last VACUUM or
// ANALYZE, of which slots that are turned have none.
func (db *DB) StoredKeys(ctx context.Context) (int64, error) {
	const countKeys = `SELECT coalesce(sum(greatest(s.n_live_tup, CASE WHEN coalesce(s.last_vacuum, s.last_autovacuum, s.last_analyze, s.last_autoanalyze) IS NULL
			THEN c.reltuples::bigint END, 0)), 0)::bigint
		FROM pg_class c JOIN pg_stat_all_tables s ON s.relid = c.oid
		WHERE c.oid = ANY (ARRAY['idempotency_keys', 'idempotency_keys_1']::regclass[])`
	return queryOne(ctx, db, errEmpty, pgx.RowTo[int64], countKeys)
}
