package pglock

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// AdvisoryKey is the number that stands for a name among PostgreSQL's advisory locks: the first eight bytes of the
// name's SHA-256, most significant first. It is the same in every program, version and language:
//
//	SELECT ('x' || substr(encode(sha256(convert_to(name, 'UTF8')), 'hex'), 1, 16))::bit(64)::bigint
//
// Two names may share a number, by a chance of 1 in 2^64 a pair; they then exclude each other without need. Advisory
// locks are one space in a database: begin names with what they are for, as in "invoice/7".
func AdvisoryKey(name string) int64 {
	sum := sha256.Sum256([]byte(name))
	return int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // All 64 bits are meant, the sign too.
}

// AdvisoryXactLock takes an advisory lock for each name, and waits for those that others hold. They are PostgreSQL's own,
// and end with the transaction: for code that already has one, and needs neither a token nor a lease. The order in which
// the names are given does not matter; of two calls in one transaction it does, and PostgreSQL breaks the deadlocks that
// come of that after its deadlock_timeout.
//
// Under READ COMMITTED each statement after it sees what the holders before have committed; under REPEATABLE READ the
// snapshot may be from before the wait, and nothing should be decided from it.
//
// Errors: the context's, or PostgreSQL's, among them 55P03 when its lock_timeout is over; after either the transaction can
// only be rolled back.
func AdvisoryXactLock(ctx context.Context, tx pgx.Tx, names ...string) error {
	keys := make([]int64, len(names))
	for i, n := range names {
		keys[i] = AdvisoryKey(n)
	}
	slices.Sort(keys)
	// One statement each: the order in which one statement calls a function for several rows is not promised.
	var b pgx.Batch
	for _, k := range slices.Compact(keys) {
		b.Queue(`SELECT pg_advisory_xact_lock($1)`, k)
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("pglock: advisory lock %q: %w", names, err)
	}
	return nil
}
