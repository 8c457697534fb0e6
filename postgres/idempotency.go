package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
)

// sweepKeysBatch is how many expired records one statement deletes, so that no sweep is a long transaction.
const sweepKeysBatch = 5000

const selectKeys = `SELECT id, fingerprint, execution, status, body FROM idempotency_keys WHERE id = ANY($1)`

// loadKeys reads the records of the given keys. Run after the contended rows were locked, it sees every decision that
// an earlier holder of those locks made.
func loadKeys(b *pgx.Batch, ids []idempotency.ID, into *[]idempotency.Record) {
	if len(ids) == 0 {
		return
	}
	raw := make([][]byte, len(ids))
	for i := range ids {
		raw[i] = ids[i][:]
	}
	b.Queue(selectKeys, raw).Query(func(rows pgx.Rows) error {
		var id, fingerprint, body []byte
		var execution uuid.UUID
		var status int16
		_, err := pgx.ForEachRow(rows, []any{&id, &fingerprint, &execution, &status, &body}, func() error {
			*into = append(*into, idempotency.Record{
				Request: idempotency.Request{
					ID: idempotency.ID(id), Fingerprint: idempotency.Fingerprint(fingerprint), Execution: execution,
				},
				Status: int(status), Body: slices.Clone(body),
			})
			return nil
		})
		return err
	})
}

const insertKeys = `INSERT INTO idempotency_keys (id, fingerprint, execution, status, body, created_at)
	SELECT id, fingerprint, execution, status, body, $6
	FROM unnest($1::bytea[], $2::bytea[], $3::uuid[], $4::smallint[], $5::bytea[]) AS k (id, fingerprint, execution, status, body)`

const insertKeysOrNothing = insertKeys + ` ON CONFLICT (id) DO NOTHING`

// saveKeys writes the records of this transaction's decisions. A record that is there already was written by another
// process since ours were loaded: the transaction is stale, and its rerun will answer from that record. The rows are
// inserted in order of id, so that two transactions that share keys wait for each other in one direction only.
func saveKeys(b *pgx.Batch, fresh []idempotency.Record, now time.Time, how writes) {
	if len(fresh) == 0 {
		return
	}
	ordered := slices.Clone(fresh)
	slices.SortFunc(ordered, func(x, y idempotency.Record) int { return slices.Compare(x.ID[:], y.ID[:]) })
	n := len(ordered)
	ids, prints, executions := make([][]byte, n), make([][]byte, n), make([][16]byte, n)
	statuses, bodies := make([]int16, n), make([][]byte, n)
	for i := range ordered {
		r := &ordered[i]
		ids[i], prints[i], executions[i] = r.ID[:], r.Fingerprint[:], r.Execution
		statuses[i], bodies[i] = int16(r.Status), r.Body //nolint:gosec // An HTTP status has three digits.
		if bodies[i] == nil {
			bodies[i] = []byte{}
		}
	}
	args := []any{ids, prints, executions, statuses, bodies, now}
	if how == guardedWrites {
		b.Queue(insertKeys, args...) // The primary key is the guard, and cheaper than one that asks first.
		return
	}
	expectRows(b.Queue(insertKeysOrNothing, args...), n, errStale)
}

// SweepKeys deletes the records that are older than retention, by the database's clock, and returns how many there
// were. Any number of processes may sweep at once.
func (db *DB) SweepKeys(ctx context.Context, retention time.Duration) (int64, error) {
	const deleteKeys = `DELETE FROM idempotency_keys WHERE id IN (
		SELECT id FROM idempotency_keys WHERE created_at < clock_timestamp() - $1::interval
		ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)`
	var total int64
	for {
		tag, err := db.pool.Exec(ctx, deleteKeys, retention, sweepKeysBatch)
		if err != nil {
			return total, fmt.Errorf("postgres: sweep idempotency keys: %w", readError(err))
		}
		total += tag.RowsAffected()
		if tag.RowsAffected() < sweepKeysBatch {
			return total, nil
		}
	}
}
