package postgres

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

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

// beginOf is the place before all rows of a part.
func beginOf(part int64) pgtype.TID {
	return pgtype.TID{BlockNumber: uint32(min(part*sweepBlocks, math.MaxUint32)), Valid: true} //nolint:gosec // It is within the limits.
}
