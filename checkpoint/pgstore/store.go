package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

// Store keeps states in PostgreSQL. It is safe for concurrent use.
type Store struct {
	pool   *pgxpool.Pool
	schema string
}

var _ checkpoint.Transactor = (*Store)(nil)

// New returns a store on the pool's database, with the table that [Install] made in that schema.
func New(pool *pgxpool.Pool, schema string) *Store { return &Store{pool: pool, schema: schema} }

const selectState = `SELECT state FROM @checkpoint_states
	WHERE lock_key = $1 AND operation_id = $2 AND (expires_at IS NULL OR expires_at > clock_timestamp())`

// Load implements [checkpoint.Store].
func (s *Store) Load(ctx context.Context, key checkpoint.Key) (body []byte, err error) {
	err = checkpoint.Try(ctx, "load", key, passing, func(ctx context.Context) error {
		err := s.pool.QueryRow(ctx, pgkit.In(s.schema, selectState), key.LockKey, key.ID).Scan(&body)
		if errors.Is(err, pgx.ErrNoRows) {
			body, err = nil, nil
		}
		return err
	})
	return body, err
}

const (
	// What has expired is as good as gone, and makes way.
	insertState = `INSERT INTO @checkpoint_states AS s (lock_key, operation_id, revision, token, run, state, updated_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp(), CASE WHEN $7 THEN clock_timestamp() + $8::bigint * interval '1 microsecond' END)
		ON CONFLICT (lock_key, operation_id) DO UPDATE SET revision = excluded.revision, token = excluded.token, run = excluded.run,
			state = excluded.state, updated_at = excluded.updated_at, expires_at = excluded.expires_at
		WHERE s.expires_at <= clock_timestamp()`
	updateState = `UPDATE @checkpoint_states SET revision = $3, token = $4, run = $5, state = $6, updated_at = clock_timestamp(),
			expires_at = CASE WHEN $7 THEN clock_timestamp() + $8::bigint * interval '1 microsecond' END
		WHERE lock_key = $1 AND operation_id = $2 AND revision = $3 - 1 AND token <= $4
			AND (expires_at IS NULL OR expires_at > clock_timestamp())`
	// replaceState is for a row that another program wrote: it has to be as it was read.
	replaceState = `UPDATE @checkpoint_states SET revision = $3, token = $4, run = $5, state = $6, updated_at = clock_timestamp(),
			expires_at = CASE WHEN $7 THEN clock_timestamp() + $8::bigint * interval '1 microsecond' END
		WHERE lock_key = $1 AND operation_id = $2 AND state = $9 AND (expires_at IS NULL OR expires_at > clock_timestamp())`
	selectHead = `SELECT revision, token, run FROM @checkpoint_states
		WHERE lock_key = $1 AND operation_id = $2 AND (expires_at IS NULL OR expires_at > clock_timestamp())`
	lockHead = selectHead + ` FOR NO KEY UPDATE`
)

// querier is a pool or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Save implements [checkpoint.Store]. It is one statement, and one more where that wrote nothing.
func (s *Store) Save(ctx context.Context, key checkpoint.Key, save *checkpoint.Save) error {
	return checkpoint.Try(ctx, "save", key, passing, func(ctx context.Context) error { return s.save(ctx, s.pool, key, save) })
}

func (s *Store) save(ctx context.Context, q querier, key checkpoint.Key, save *checkpoint.Save) error {
	write := updateState
	args := []any{key.LockKey, key.ID, save.Revision, save.Token, save.Run, save.Body, save.Ended, save.TTL.Microseconds()}
	switch {
	case save.Replaces != nil:
		write, args = replaceState, append(args, save.Replaces)
	case save.Revision == 1:
		write = insertState
	}
	tag, err := q.Exec(ctx, pgkit.In(s.schema, write), args...)
	if err != nil || tag.RowsAffected() == 1 {
		return err
	}
	switch found, err := s.look(ctx, q, selectHead, key, save.Head); {
	case err != nil || found == ours:
		return err
	case found == absent && (save.Revision > 1 || save.Replaces != nil):
		return fmt.Errorf("pgstore: save %s: %w", key, checkpoint.ErrLost)
	}
	// Another's save, or its end, came between the two statements. The next try sees clearly.
	return pgkit.ErrStale
}

// finding is what there is where a save is to go.
type finding int

const (
	absent finding = iota // nothing
	before                // what the save may replace
	ours                  // the save itself
)

// look tells what there is. Where the save does not follow from that, it returns a [*checkpoint.FencedError].
func (s *Store) look(ctx context.Context, q querier, query string, key checkpoint.Key, want checkpoint.Head) (finding, error) {
	var seen checkpoint.Head
	err := q.QueryRow(ctx, pgkit.In(s.schema, query), key.LockKey, key.ID).Scan(&seen.Revision, &seen.Token, &seen.Run)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return absent, nil
	case err != nil:
		return absent, err
	case seen.Revision == want.Revision && seen.Run == want.Run:
		return ours, nil
	case !want.Follows(seen):
		return before, &checkpoint.FencedError{Key: key, Want: want, Seen: seen}
	}
	return before, nil
}

// ownTimeout bounds what comes after the work of a transaction: its save with the commit, or its rollback.
const ownTimeout = 5 * time.Second

// SaveWith implements [checkpoint.Transactor]. The row is locked before work begins, so that nobody else can work on the
// operation until the transaction ends, and nobody works who has been fenced.
func (s *Store) SaveWith(ctx context.Context, key checkpoint.Key, next checkpoint.Head, work func(context.Context) (*checkpoint.Save, error)) error {
	var failed error // of work, which is not ours to judge or to wrap
	err := checkpoint.Try(ctx, "save", key, passing, func(bounded context.Context) error {
		failed = nil
		tx, err := s.pool.Begin(bounded)
		if err != nil {
			return err
		}
		defer func() {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), ownTimeout)
			defer cancel()
			_ = tx.Rollback(undo)
		}()
		found, err := s.look(bounded, tx, lockHead, key, next)
		if err != nil || found == ours {
			return err
		}
		if found == absent && next.Revision > 1 {
			return fmt.Errorf("pgstore: save %s: %w", key, checkpoint.ErrLost)
		}
		// Steps take as long as they take: only our own statements are bounded.
		t := &transaction{tx: tx}
		save, err := work(context.WithValue(ctx, txKey{}, t))
		if err != nil && (save == nil || t.lost) {
			failed = err
			return err
		}
		if save.Head != next {
			return fmt.Errorf("pgstore: a save with revision %d came for revision %d", save.Revision, next.Revision)
		}
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), ownTimeout)
		defer cancel()
		if err := s.save(own, tx, key, save); err != nil {
			return err
		}
		return tx.Commit(own)
	})
	if err != nil && failed != nil {
		return failed
	}
	return err
}

const deleteState = `DELETE FROM @checkpoint_states WHERE lock_key = $1 AND operation_id = $2`

// Delete implements [checkpoint.Store].
func (s *Store) Delete(ctx context.Context, key checkpoint.Key) error {
	return checkpoint.Try(ctx, "delete", key, passing, func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, pgkit.In(s.schema, deleteState), key.LockKey, key.ID)
		return err
	})
}

const deleteExpired = `DELETE FROM @checkpoint_states WHERE (lock_key, operation_id) IN (
	SELECT lock_key, operation_id FROM @checkpoint_states WHERE expires_at <= clock_timestamp() ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)`

// Sweep deletes up to limit states that have expired, and returns how many it did. Call it every now and then: states that
// have expired are never seen, but take room.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	tag, err := s.pool.Exec(ctx, pgkit.In(s.schema, deleteExpired), limit)
	if err != nil {
		return 0, fmt.Errorf("pgstore: sweep: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

// passing reports failures that a later try may not meet: other transactions in the way, and connections that ended. A
// save whose COMMIT was not answered is tried again, and recognised by its head. A unique violation is the step's own. A database that refuses a connection may take the next one.
func passing(err error) bool {
	_, refused := errors.AsType[*pgconn.ConnectError](err)
	v, _ := pgkit.Classify(err, pgkit.UniqueViolation, pgkit.QueryCanceled)
	return refused || v == pgkit.Conflict || v == pgkit.Lost
}
