package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/crashpoint"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/multidraw"
)

// Multidraws is the multi-draws' store.
type Multidraws struct{ db *DB }

var _ multidraw.Store = (*Multidraws)(nil)

// NewMultidraws returns the multi-draws' store on db.
func NewMultidraws(db *DB) *Multidraws { return &Multidraws{db: db} }

const (
	// Prizes are left out of lists, where they may be a megabyte each.
	multidrawRow = `id, number, lock_key, status, total, completed, every, checkpoints, low, high, parameters, commitment, digest,
		owner, term, lease_expires_at, started_at, updated_at, completed_at, rolled_back_at, key, fingerprint, execution`
	// The draws of a small operation come with it, and the seed of a completed one; each from the statement's own snapshot.
	multidrawFields = multidrawRow + `, prizes,
		CASE WHEN total <= 1000 THEN (SELECT string_agg(data, '' ORDER BY seq) FROM multidraw_chunks WHERE multidraw = id AND seq <= checkpoints) END,
		CASE WHEN completed_at IS NOT NULL THEN (SELECT seed FROM multidraw_seeds WHERE multidraw = id) END`

	selectMultidraw  = `SELECT ` + multidrawFields + ` FROM multidraws WHERE id = $1`
	lockMultidraw    = `SELECT id FROM multidraws WHERE id = $1 FOR NO KEY UPDATE`
	selectAsked      = `SELECT key, fingerprint, execution, id FROM multidraws WHERE key = $1`
	selectHolder     = `SELECT id FROM multidraws WHERE lock_key = $1 AND status IN ('running', 'interrupted')`
	selectDrawSeed   = `SELECT seed FROM multidraw_seeds WHERE multidraw = $1`
	selectMultidraws = `SELECT ` + multidrawRow + `, NULL, NULL, NULL FROM multidraws WHERE number > $1 ORDER BY number LIMIT $2`
)

// errNoTransition is returned when a statement that is guarded by a lock has no effect.
var errNoTransition = errors.New("a row that was locked has changed")

// Create implements [multidraw.Store].
func (m *Multidraws) Create(ctx context.Context, id uuid.UUID, lockKey string, keys []idempotency.ID, decide func(*multidraw.Unit)) error {
	return m.db.run(ctx, "multidraw.create", func(ctx context.Context, tx pgx.Tx) error {
		var (
			b       pgx.Batch
			holders []uuid.UUID
			asked   []command.Asked
			earlier []multidraw.Operation
		)
		// Who has the lock key is asked first and the keys last: a repeat of the request that took the lock key then sees that
		// request, too, and does not get that the lock key is held. What is free here is taken by way of a unique index.
		rows, err := m.db.gate.Rows(ctx, tx)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if rows {
				b.Queue(pgkit.In("", pgkit.GateRow), pgkit.GateOf(key[0], key[1]))
			} else {
				b.Queue(claimKey, key[:])
			}
		}
		b.Queue(selectHolder, lockKey).Query(collect(&holders, pgx.RowTo[uuid.UUID]))
		for _, key := range keys {
			b.Queue(selectAsked, key[:]).Query(extend(&asked, scanAsked))
		}
		// A rerun finds its own, if its COMMIT was done and the answer lost.
		b.Queue(selectMultidraw, id).Query(collect(&earlier, scanMultidraw))
		if err := pgkit.Send(ctx, tx, &b); err != nil {
			return err
		}
		book, known, err := lockBook(ctx, tx, nil, keys)
		if err != nil {
			return err
		}
		u := &multidraw.Unit{
			Unit:    command.Unit{Now: book.Now(), Keys: idempotency.NewBatch(known), Asked: firstOf(asked)},
			Earlier: firstOf(earlier), Holder: firstOf(holders),
		}
		decide(u)
		var save pgx.Batch
		if u.Made != nil {
			if err := insertMultidraw(&save, u); err != nil {
				return err
			}
		}
		return sendDecided(ctx, tx, &save, u.Audit, u.Keys.Fresh(), u.Now)
	})
}

// An idempotency key belongs to its operation until the answer is decided, and then to the record of the answer. Whoever
// makes an operation under a key, and whoever moves the key from one to the other, has this lock until the commit. Without
// it, a repeat that has found no record yet could meet no operation with the key any more.
const (
	claimKey        = `SELECT pg_advisory_xact_lock(('x' || encode(substr($1::bytea, 1, 8), 'hex'))::bit(64)::bigint)`
	claimPendingKey = `SELECT pg_advisory_xact_lock(('x' || encode(substr(key, 1, 8), 'hex'))::bit(64)::bigint)
		FROM multidraws WHERE id = $1 AND key IS NOT NULL`
)

const (
	// A lock key, or key, that was taken meanwhile makes this a stale transaction, whose rerun sees by whom.
	insertOperation = `INSERT INTO multidraws (id, lock_key, status, total, completed, every, checkpoints, low, high, prizes, parameters,
			commitment, digest, owner, term, lease_expires_at, started_at, updated_at, completed_at, key, fingerprint, execution)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)
		ON CONFLICT DO NOTHING`
	insertDrawSeed = `INSERT INTO multidraw_seeds (multidraw, seed) VALUES ($1, $2)`
	insertChunks   = `INSERT INTO multidraw_chunks (multidraw, seq, data, at)
		SELECT $1, c.seq, c.data, $3 FROM unnest($2::bytea[]) WITH ORDINALITY AS c (data, seq)`
)

func insertMultidraw(b *pgx.Batch, u *multidraw.Unit) error {
	o := u.Made
	var low, high *int64
	var prizes *string
	if r := o.Spec.Range; r != nil {
		low, high = &r.Min, &r.Max
	} else {
		text, err := json.Marshal(o.Spec.Prizes)
		if err != nil {
			return err
		}
		prizes = new(string(text))
	}
	key, fingerprint, execution := command.Columns(o.Pending)
	expectRows(b.Queue(insertOperation, o.ID, o.LockKey, string(o.Status), o.Total, o.Completed, o.Every, o.Checkpoints, low, high, prizes,
		o.Parameters[:], o.Commitment[:], o.Digest[:], o.Owner, o.Term, o.LeaseExpiresAt, o.StartedAt, o.UpdatedAt, o.CompletedAt,
		key, fingerprint, execution), 1, errStale)
	expectRows(b.Queue(insertDrawSeed, o.ID, u.Seed[:]), 1, errLostRow)
	if len(u.Chunks) > 0 {
		expectRows(b.Queue(insertChunks, o.ID, u.Chunks, o.UpdatedAt), len(u.Chunks), errLostRow)
	}
	return nil
}

func scanAsked(row pgx.CollectableRow) (a command.Asked, err error) {
	var (
		key, fingerprint []byte
		execution        uuid.UUID
	)
	err = row.Scan(&key, &fingerprint, &execution, &a.Object)
	if err == nil {
		a.Request = *command.Pending(key, fingerprint, &execution)
	}
	return a, err
}

const updateOperation = `UPDATE multidraws SET status = $2, owner = $3, term = $4, lease_expires_at = $5, updated_at = $6,
		rolled_back_at = $7, key = $8, fingerprint = $9, execution = $10
	WHERE id = $1`

// Update implements [multidraw.Store]. What a checkpoint writes is not written here.
func (m *Multidraws) Update(ctx context.Context, id uuid.UUID, keys []idempotency.ID, decide func(*multidraw.Unit)) error {
	return m.db.runOn(ctx, "multidraw.update", rowOf(id), func(ctx context.Context, tx pgx.Tx) error {
		var (
			b     pgx.Batch
			found []multidraw.Operation
			seeds [][]byte
		)
		rows, err := m.db.gate.Rows(ctx, tx)
		if err != nil {
			return err
		}
		b.Queue(lockMultidraw, id)
		if rows {
			b.Queue(pgkit.In("", pgkit.GateRowOf("multidraws")), id)
		} else {
			b.Queue(claimPendingKey, id)
		}
		// Each statement has its own snapshot, so what is read after the lock is what its last holder committed.
		b.Queue(selectMultidraw, id).Query(collect(&found, scanMultidraw))
		b.Queue(selectDrawSeed, id).Query(collect(&seeds, pgx.RowTo[[]byte]))
		if err := pgkit.Send(ctx, tx, &b); err != nil {
			return err
		}
		if len(found) == 0 {
			return &multidraw.NotFoundError{ID: id}
		}
		if len(seeds) != 1 || len(seeds[0]) != len(fairdraw.Seed{}) {
			return &multidraw.CorruptError{Reason: "the operation has no seed"}
		}
		book, known, err := lockBook(ctx, tx, nil, keys)
		if err != nil {
			return err
		}
		u := &multidraw.Unit{
			Unit:      command.Unit{Now: book.Now(), Keys: idempotency.NewBatch(known)},
			Operation: &found[0], Seed: fairdraw.Seed(seeds[0]),
		}
		decide(u)
		var save pgx.Batch
		if u.Changed {
			o := u.Operation
			key, fingerprint, execution := command.Columns(o.Pending)
			expectRows(save.Queue(updateOperation, id, string(o.Status), o.Owner, o.Term, o.LeaseExpiresAt, o.UpdatedAt, o.RolledBackAt,
				key, fingerprint, execution), 1, errNoTransition)
		}
		return sendDecided(ctx, tx, &save, u.Audit, u.Keys.Fresh(), u.Now)
	})
}

// rowOf is an operation's row, for which others may make a transaction wait.
func rowOf(id uuid.UUID) []blockedRow { return []blockedRow{{multidrawRowKind, id.String()}} }

// saveCheckpoint is one statement, so that COMMIT can travel with it: where the row is not in that term, or has come to
// another place, it writes nothing.
const saveCheckpoint = `WITH moved AS (
		UPDATE multidraws SET completed = $4, checkpoints = $5, digest = $6, updated_at = clock_timestamp(),
			lease_expires_at = clock_timestamp() + $7::bigint * interval '1 microsecond',
			status = CASE WHEN total = $4 THEN 'completed' ELSE status END,
			completed_at = CASE WHEN total = $4 THEN clock_timestamp() END
		WHERE id = $1 AND term = $2 AND completed = $3 AND status = 'running'
		RETURNING id, updated_at
	)
	INSERT INTO multidraw_chunks (multidraw, seq, data, at) SELECT id, $5, $8, updated_at FROM moved`

// Checkpoint implements [multidraw.Store].
func (m *Multidraws) Checkpoint(ctx context.Context, c *multidraw.Checkpoint) error {
	next := &c.Chunk.Next
	err := m.db.persistOn(ctx, "multidraw.checkpoint", rowOf(c.ID), func(ctx context.Context, tx pgx.Tx) error {
		var b pgx.Batch
		var wrote int64
		b.Queue(saveCheckpoint, c.ID, c.Term, c.From, next.Completed, next.Checkpoints(), next.Digest[:], c.TTL.Microseconds(), c.Chunk.Saved).
			Exec(func(tag pgconn.CommandTag) error {
				wrote = tag.RowsAffected()
				return nil
			})
		if err := finish(ctx, tx, &b, crashpoint.MultidrawBeforeCheckpoint, errLostRow); err != nil || wrote == 1 {
			return err
		}
		return m.fenced(ctx, c)
	})
	if err == nil {
		crashpoint.Hit(crashpoint.MultidrawAfterCheckpoint)
	}
	return err
}

// fenced finds out why a checkpoint was not written. It was, where an earlier try was committed and its answer lost: nobody but
// the run in this term can have brought the operation there.
func (m *Multidraws) fenced(ctx context.Context, c *multidraw.Checkpoint) error {
	o, err := m.Operation(ctx, c.ID)
	if err != nil {
		return err
	}
	if o.Term == c.Term && o.Completed == c.Chunk.Next.Completed && o.Digest == c.Chunk.Next.Digest {
		return nil
	}
	return &multidraw.FencedError{ID: c.ID, Term: o.Term, Status: o.Status, Completed: o.Completed}
}

// Renew implements [multidraw.Store]. A row that is being written at this moment is being renewed by that.
func (m *Multidraws) Renew(ctx context.Context, owner uuid.UUID, ids []uuid.UUID, ttl time.Duration) error {
	const renewOperations = `UPDATE multidraws SET lease_expires_at = clock_timestamp() + $3::bigint * interval '1 microsecond'
		WHERE id IN (SELECT id FROM multidraws WHERE id = ANY ($2) AND owner = $1 AND status = 'running' FOR NO KEY UPDATE SKIP LOCKED)`
	return m.db.run(ctx, "multidraw.renew", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, renewOperations, owner, ids, ttl.Microseconds())
		return err
	})
}

// Expire implements [multidraw.Store]. The lease is looked at again once the row is locked. It looks before it writes, since
// most often there is nothing.
//
// A lease longer than any was written by a clock that was ahead. It ends within the TTL from now on; a run that is alive renews
// it before that.
func (m *Multidraws) Expire(ctx context.Context, ttl time.Duration) (lost []uuid.UUID, err error) {
	const (
		aheadLease  = `lease_expires_at > clock_timestamp() + $1::bigint * interval '1 microsecond'`
		findExpired = `SELECT id FROM multidraws WHERE status = 'running' AND (lease_expires_at <= clock_timestamp() OR ` + aheadLease + `)`
		endAhead    = `UPDATE multidraws SET lease_expires_at = clock_timestamp() + $1::bigint * interval '1 microsecond'
			WHERE id IN (SELECT id FROM multidraws WHERE id = ANY ($2) AND status = 'running' AND ` + aheadLease + ` FOR NO KEY UPDATE SKIP LOCKED)`
		interruptLapsed = `UPDATE multidraws SET status = 'interrupted', updated_at = clock_timestamp()
			WHERE id IN (SELECT id FROM multidraws WHERE id = ANY ($1) AND status = 'running' AND lease_expires_at <= clock_timestamp()
				FOR NO KEY UPDATE SKIP LOCKED) RETURNING id`
	)
	expired, err := query(ctx, m.db, pgx.RowTo[uuid.UUID], findExpired, ttl.Microseconds())
	if err != nil || len(expired) == 0 {
		return nil, err
	}
	err = m.db.run(ctx, "multidraw.expire", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, endAhead, ttl.Microseconds(), expired); err != nil {
			return err
		}
		lost, err = pgkit.Rows(ctx, tx, pgx.RowTo[uuid.UUID], interruptLapsed, expired)
		return err
	})
	return lost, err
}

// Known implements [multidraw.Reader].
func (m *Multidraws) Known(ctx context.Context, keys []idempotency.ID) (*idempotency.Batch, error) {
	return m.db.known(ctx, keys)
}

// Operation implements [multidraw.Reader].
func (m *Multidraws) Operation(ctx context.Context, id uuid.UUID) (*multidraw.Operation, error) {
	o, err := queryOne(ctx, m.db.reads, &multidraw.NotFoundError{ID: id}, scanMultidraw, selectMultidraw, id)
	if err != nil {
		return nil, err
	}
	return &o, nil
}

// Operations implements [multidraw.Reader].
func (m *Multidraws) Operations(ctx context.Context, after int64, limit int) ([]multidraw.Operation, error) {
	return query(ctx, m.db.reads, scanMultidraw, selectMultidraws, after, limit)
}

// Saved implements [multidraw.Reader]. Chunks are only ever added, so the operation and its draws need no common snapshot.
func (m *Multidraws) Saved(ctx context.Context, o *multidraw.Operation, from, to int64) ([]byte, error) {
	const selectChunks = `SELECT seq, data FROM multidraw_chunks WHERE multidraw = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq`
	to = min(to, o.Completed)
	if from < 0 || from >= to {
		return nil, nil
	}
	every := int64(o.Every)
	first, last := from/every, (to-1)/every
	chunks, err := query(ctx, m.db.reads, pgx.RowToStructByPos[chunkRow], selectChunks, o.ID, first+1, last+1)
	if err != nil {
		return nil, err
	}
	if int64(len(chunks)) != last-first+1 {
		return nil, &multidraw.CorruptError{Reason: "a checkpoint is missing"}
	}
	width := o.Spec.Width()
	var out []byte
	for i, c := range chunks {
		seq := first + int64(i) + 1
		if want := min(every, o.Completed-(seq-1)*every) * int64(width); c.Seq != seq || int64(len(c.Data)) < want {
			return nil, &multidraw.CorruptError{Reason: fmt.Sprintf("checkpoint %d has %d bytes", c.Seq, len(c.Data))}
		}
		out = append(out, c.Data...)
	}
	return o.Spec.Slice(out, int(from-first*every), int(to-first*every)), nil
}

type chunkRow struct {
	Seq  int64
	Data []byte
}

// firstOf is the first of some, nil where there are none.
func firstOf[T any](some []T) *T {
	if len(some) == 0 {
		return nil
	}
	return &some[0]
}

func scanMultidraw(row pgx.CollectableRow) (o multidraw.Operation, err error) {
	var (
		low, high                                *int64
		parameters, commitment, digest, key, fpr []byte
		execution                                *uuid.UUID
		prizes                                   *string
		seed                                     []byte
	)
	err = row.Scan(&o.ID, &o.Number, &o.LockKey, &o.Status, &o.Total, &o.Completed, &o.Every, &o.Checkpoints, &low, &high, &parameters,
		&commitment, &digest, &o.Owner, &o.Term, &o.LeaseExpiresAt, &o.StartedAt, &o.UpdatedAt, &o.CompletedAt, &o.RolledBackAt,
		&key, &fpr, &execution, &prizes, &o.Inline, &seed)
	if err != nil {
		return o, err
	}
	copy(o.Parameters[:], parameters)
	copy(o.Commitment[:], commitment)
	copy(o.Digest[:], digest)
	o.Pending = command.Pending(key, fpr, execution)
	if seed != nil {
		o.Seed = new(fairdraw.Seed)
		copy(o.Seed[:], seed)
	}
	if low != nil && high != nil {
		o.Spec.Range = &multidraw.Range{Min: *low, Max: *high}
	}
	if prizes != nil {
		if err := json.Unmarshal([]byte(*prizes), &o.Spec.Prizes); err != nil {
			return o, &multidraw.CorruptError{Reason: "the prizes are no list"}
		}
		_, _, err = o.Spec.Results(o.Inline)
	}
	return o, err
}
