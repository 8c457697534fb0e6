package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

const selectKeys = `SELECT id, fingerprint, execution, status, body FROM stored_keys WHERE id = ANY($1)`

// loadKeys reads the records of the given keys. Run after the contended rows were locked, it sees every decision that
// an earlier holder of those locks made.
func loadKeys(b *pgx.Batch, ids []idempotency.ID, into *[]idempotency.Record) {
	if len(ids) == 0 {
		return
	}
	b.Queue(selectKeys, rawKeys(ids)).Query(collect(into, scanRecord))
}

// readKeys reads the records of the given keys outside of a transaction.
func (db *DB) readKeys(ctx context.Context, ids []idempotency.ID) ([]idempotency.Record, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return query(ctx, db, scanRecord, selectKeys, rawKeys(ids))
}

func rawKeys(ids []idempotency.ID) [][]byte {
	raw := make([][]byte, len(ids))
	for i := range ids {
		raw[i] = ids[i][:]
	}
	return raw
}

func scanRecord(row pgx.CollectableRow) (r idempotency.Record, err error) {
	err = row.Scan((*digest)(&r.ID), (*digest)(&r.Fingerprint), &r.Execution, &r.Status, &r.Body)
	return r, err
}

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
	args := []any{ids, prints, executions, statuses, bodies, slices.Repeat([]time.Time{now}, n)}
	if how == guardedWrites {
		b.Queue(insertKeys, args...) // The primary keys of the slots are the guard, and cheaper than one that asks first.
		return
	}
	expectRows(b.Queue(insertKeysOrNothing, args...), n, errStale)
}

// sendDecided sends what was queued, and with it the audit and the records of the keys.
func sendDecided(ctx context.Context, tx pgx.Tx, b *pgx.Batch, audit []command.Audit, fresh []idempotency.Record, now time.Time) error {
	saveAudit(b, audit, now)
	saveKeys(b, fresh, now, countedWrites)
	return pgkit.Send(ctx, tx, b)
}
