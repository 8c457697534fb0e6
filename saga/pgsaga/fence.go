package pgsaga

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/saga"
)

// fenceTimeout bounds how long an incarnation that takes a fence waits for those that end a transaction behind it.
const fenceTimeout = 500 * time.Millisecond

const (
	selectFence = `SELECT token, incarnation, since, (extract(epoch FROM clock_timestamp() - at) * 1000000)::bigint FROM @saga_fences WHERE coordinator = $1`
	holderFence = `SELECT incarnation FROM @saga_fences WHERE coordinator = $1`
	insertFence = `INSERT INTO @saga_fences (coordinator, token, incarnation, since, at) VALUES ($1, $2, $3, clock_timestamp(), clock_timestamp())
		ON CONFLICT DO NOTHING RETURNING since`
	moveFence = `UPDATE @saga_fences SET token = $2, incarnation = $3, at = clock_timestamp(), since = CASE WHEN incarnation = $3 THEN since ELSE clock_timestamp() END
		WHERE coordinator = $1 AND token = $4 RETURNING since`
	// The lock that an incarnation shares with nobody while it takes the fence, and whoever ends a transaction with others.
	lockFence   = `SELECT pg_advisory_xact_lock(hashtextextended('saga fence ' || $1, 0))`
	shareFence  = `SELECT pg_advisory_lock_shared(hashtextextended('saga fence ' || $1, 0))`
	unlockFence = `SELECT pg_advisory_unlock_shared(hashtextextended('saga fence ' || $1, 0))`
)

// Fence implements [saga.Participant].
func (d *Database) Fence(ctx context.Context, coordinator string) (*saga.Fence, error) {
	found, err := query(ctx, read, d.upkeep, func(row pgx.CollectableRow) (f saga.Fence, err error) {
		var us int64
		err = row.Scan(&f.Token, &f.Incarnation, &f.Since, &us)
		f.Age = time.Duration(us) * time.Microsecond
		return f, err
	}, d.schema.in(selectFence), coordinator)
	if err != nil {
		return nil, fmt.Errorf("pgsaga: read the fence of %s: %w", coordinator, err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return &found[0], nil
}

// MoveFence implements [saga.Participant].
func (d *Database) MoveFence(ctx context.Context, coordinator string, from, token, incarnation uuid.UUID) (*saga.Fence, error) {
	f := &saga.Fence{Token: token, Incarnation: incarnation}
	err := d.fencing.Once(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var holder uuid.UUID
		if err := tx.QueryRow(ctx, d.schema.in(holderFence), coordinator).Scan(&holder); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if holder != incarnation {
			// What the other began under its fence comes to an end first.
			if err := d.lockFence(ctx, tx, coordinator); err != nil {
				return err
			}
		}
		if from == uuid.Nil {
			return tx.QueryRow(ctx, d.schema.in(insertFence), coordinator, token, incarnation).Scan(&f.Since)
		}
		return tx.QueryRow(ctx, d.schema.in(moveFence), coordinator, token, incarnation, from).Scan(&f.Since)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("pgsaga: move the fence of %s: %w", coordinator, err)
	}
	return f, nil
}

// lockFence takes the fence's lock. A database without advisory locks has the fence's row alone: nothing is prepared there, see
// [Database.CanPrepare].
func (d *Database) lockFence(ctx context.Context, tx pgx.Tx, coordinator string) error {
	rows, err := d.gate.Rows(ctx, tx)
	if err != nil || rows {
		return err
	}
	_, err = tx.Exec(ctx, lockFence, coordinator)
	return err
}

// EndPrepared implements [saga.Participant]. A prepared transaction can't be ended within a transaction, which could lock the
// fence's row: so the session has a lock.
func (d *Database) EndPrepared(ctx context.Context, gid string, commit bool, coordinator string, incarnation uuid.UUID) (err error) {
	if err := checkGID(gid); err != nil {
		return err
	}
	conn, err := d.upkeep.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("pgsaga: end %s: %w", gid, err)
	}
	defer conn.Release()
	defer func() {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		if _, err := conn.Exec(undo, unlockFence, coordinator); err != nil {
			_ = conn.Conn().Close(undo) // That unlocks, too; the pool destroys what is closed.
		}
	}()
	if _, err := conn.Exec(ctx, shareFence, coordinator); err != nil {
		return fmt.Errorf("pgsaga: end %s: %w", gid, err)
	}
	var holder uuid.UUID
	// A statement of its own, which sees what was committed before the lock was given.
	err = conn.QueryRow(ctx, d.schema.in(holderFence), coordinator).Scan(&holder)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && holder != incarnation {
		err = saga.ErrFenced
	}
	if err != nil {
		return fmt.Errorf("pgsaga: end %s: %w", gid, err)
	}
	return d.endOn(ctx, conn, gid, commit)
}

// Committed implements [saga.Participant].
func (d *Database) Committed(ctx context.Context, id uuid.UUID) ([]string, error) {
	gids, err := d.committed(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("pgsaga: branches of %s: %w", id, err)
	}
	return gids, nil
}

// marked reads the marks that were committed with branches of a saga.
func (d *Database) marked(ctx context.Context, id uuid.UUID) ([]string, error) {
	return query(ctx, read, d.upkeep, pgx.RowTo[string], d.schema.in(`SELECT gid FROM @saga_marks WHERE saga = $1 AND gid IS NOT NULL`), id)
}
