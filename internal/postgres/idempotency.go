package postgres

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

const selectKeys = `SELECT id, fingerprint, execution, status, body FROM idempotency_keys WHERE id = ANY($1)`

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

const insertKeys = `INSERT INTO idempotency_keys (id, fingerprint, execution, status, body, created_at)
	SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::uuid[], $4::smallint[], $5::bytea[], $6::timestamptz[])`

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
	args := []any{ids, prints, executions, statuses, bodies, slices.Repeat([]time.Time{now}, n)}
	if how == guardedWrites {
		b.Queue(insertKeys, args...) // The primary key is the guard, and cheaper than one that asks first.
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

// sweepBlocks is how many of the table's blocks one statement looks at: some 5,000 records, so that no sweep is a long
// transaction.
const sweepBlocks = 256

// keySweep is what a process remembers of its sweeps, so that it looks at each part of the table about once in a
// retention. An index by age would do as well, and would be one more entry to write for each command; records that are
// made together lie together as it is.
type keySweep struct {
	mu sync.Mutex
	// oldest is when the oldest record of a part was made, as far as that is known: what is written there afterwards is
	// younger, but for what was being committed just then, which is swept some seconds late. A part that is not in it has
	// not been looked at.
	oldest map[int64]time.Time
}

// skip reports whether nothing of a part is older than limit.
func (k *keySweep) skip(part int64, limit time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	oldest, ok := k.oldest[part]
	return ok && !oldest.Before(limit)
}

func (k *keySweep) looked(part int64, oldest time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.oldest == nil {
		k.oldest = map[int64]time.Time{}
	}
	k.oldest[part] = oldest
}

// Both halves of the statement see the table as it was before.
const (
	sizeKeys  = `SELECT ceil(pg_relation_size('idempotency_keys') / current_setting('block_size')::numeric)::bigint, now() - $1::interval`
	sweepKeys = `WITH gone AS (
			DELETE FROM idempotency_keys WHERE ctid >= $1::tid AND ctid < $2::tid AND created_at < now() - $3::interval RETURNING 1)
		SELECT (SELECT count(*) FROM gone), coalesce((SELECT min(created_at) FROM idempotency_keys
			WHERE ctid >= $1::tid AND ctid < $2::tid AND created_at >= now() - $3::interval), now())`
)

// SweepKeys deletes the records that are older than retention, by the database's clock, and returns how many there
// were. Any number of processes may sweep at once; each then counts what it has deleted itself.
func (db *DB) SweepKeys(ctx context.Context, retention time.Duration) (int64, error) {
	var (
		blocks, total int64
		limit         time.Time
	)
	if !db.engine.Has(pgkit.RowPlaces) {
		return db.sweepKeysByID(ctx, retention)
	}
	if err := db.pool.QueryRow(ctx, sizeKeys, retention).Scan(&blocks, &limit); err != nil {
		return 0, fmt.Errorf("postgres: sweep idempotency keys: %w", readError(err))
	}
	for part := int64(0); part*sweepBlocks < blocks; part++ {
		if db.keys.skip(part, limit) {
			continue
		}
		var (
			deleted int64
			oldest  time.Time
		)
		err := db.pool.QueryRow(ctx, sweepKeys, beginOf(part), beginOf(part+1), retention).Scan(&deleted, &oldest)
		if isLockTimeout(err) {
			continue // Another session has locked a record: this part is left to a later sweep.
		}
		if err != nil {
			return total, fmt.Errorf("postgres: sweep idempotency keys: %w", readError(err))
		}
		db.keys.looked(part, oldest)
		total += deleted
	}
	return total, nil
}

// sweepRange is how many records one statement of sweepKeysByID looks at.
const sweepRange = 5000

// Records that another session has locked are left to a later sweep.
const sweepKeysAfter = `WITH part AS (SELECT id, created_at < now() - $3::interval AS old FROM idempotency_keys WHERE id > $1 ORDER BY id LIMIT $2),
		gone AS (
			DELETE FROM idempotency_keys WHERE id = ANY (ARRAY(
				SELECT id FROM idempotency_keys WHERE id = ANY (ARRAY(SELECT id FROM part WHERE old)) FOR UPDATE SKIP LOCKED)) RETURNING 1)
	SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM part), coalesce((SELECT id FROM part ORDER BY id DESC LIMIT 1), '')`

// sweepKeysByID is SweepKeys for a database whose rows have no places: it goes through all records in the order of their ids, so that
// it reads the whole table at each sweep.
func (db *DB) sweepKeysByID(ctx context.Context, retention time.Duration) (total int64, err error) {
	after := []byte{}
	for looked := sweepRange; looked == sweepRange; {
		var deleted int64
		if err := db.pool.QueryRow(ctx, sweepKeysAfter, after, sweepRange, retention).Scan(&deleted, &looked, &after); err != nil {
			return total, fmt.Errorf("postgres: sweep idempotency keys: %w", readError(err))
		}
		total += deleted
	}
	return total, nil
}

// StoredKeys estimates how many records there are, from PostgreSQL's own counters and without a look at the table. It lags by the
// commits of the last seconds (before PostgreSQL 15 by each session's last ones, until its next), and may be off by a few percent while
// autovacuum works on a large table. PostgreSQL loses its counters when it crashes: then the number is that of the last VACUUM or
// ANALYZE until the next, which autovacuum makes once a tenth of the records are new.
func (db *DB) StoredKeys(ctx context.Context) (int64, error) {
	const countKeys = `SELECT greatest(s.n_live_tup, CASE WHEN coalesce(s.last_vacuum, s.last_autovacuum, s.last_analyze, s.last_autoanalyze) IS NULL
			THEN c.reltuples::bigint END, 0)
		FROM pg_class c JOIN pg_stat_all_tables s ON s.relid = c.oid WHERE c.oid = 'idempotency_keys'::regclass`
	return queryOne(ctx, db, errEmpty, pgx.RowTo[int64], countKeys)
}

// beginOf is the place before all rows of a part.
func beginOf(part int64) pgtype.TID {
	return pgtype.TID{BlockNumber: uint32(min(part*sweepBlocks, math.MaxUint32)), Valid: true} //nolint:gosec // It is within the limits.
}
