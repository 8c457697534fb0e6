package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/saga"
)

// Sagas is the sagas' log.
type Sagas struct{ db *DB }

var _ saga.Store = (*Sagas)(nil)

// NewSagas returns the sagas' log on db.
func NewSagas(db *DB) *Sagas { return &Sagas{db: db} }

const (
	sagaFields = `id, number, name, protocol, input, status, reason, steps, decided, coordinator, cancelled, owner, term,
		lease_expires_at, version, next_at, attempts, last_error, created_at, updated_at, ended_at, key, fingerprint, execution`
	selectSaga      = `SELECT ` + sagaFields + ` FROM sagas WHERE id = $1`
	lockSaga        = selectSaga + ` FOR NO KEY UPDATE`
	selectAskedSaga = `SELECT ` + sagaFields + ` FROM sagas WHERE key = $1`
	selectSagas     = `SELECT ` + sagaFields + ` FROM sagas WHERE name = $1 AND number > $2 AND (NOT $3 OR (status = 'pending' AND attempts >= $4))
		ORDER BY number LIMIT $5`
)

// Create implements [saga.Store].
func (g *Sagas) Create(ctx context.Context, key *idempotency.ID, decide func(*saga.Unit)) error {
	return g.db.run(ctx, "saga.create", func(ctx context.Context, tx pgx.Tx) error {
		var (
			b     pgx.Batch
			asked []*saga.Saga
			keys  []idempotency.ID
		)
		// The key's record is asked for last: an answer that was decided in between is seen, and not a saga without one.
		if key != nil {
			keys = append(keys, *key)
			b.Queue(selectAskedSaga, key[:]).Query(collect(&asked, scanSaga))
			if err := send(ctx, tx, &b); err != nil {
				return err
			}
		}
		book, known, err := lockBook(ctx, tx, nil, nil, keys)
		if err != nil {
			return err
		}
		u := &saga.Unit{Now: book.Now(), Keys: idempotency.NewBatch(known)}
		if len(asked) > 0 {
			u.Asked = asked[0]
		}
		decide(u)
		var save pgx.Batch
		if u.Made != nil {
			if err := insertSagaRow(&save, u.Made); err != nil {
				return err
			}
		}
		saveAudit(&save, u.Audit, u.Now)
		saveKeys(&save, u.Keys.Fresh(), u.Now, countedWrites)
		return send(ctx, tx, &save)
	})
}

// A key that was taken meanwhile makes this a stale transaction, whose rerun sees by whom.
const insertSaga = `INSERT INTO sagas (id, name, protocol, input, status, reason, steps, decided, coordinator, cancelled, owner, term,
		lease_expires_at, version, next_at, attempts, last_error, created_at, updated_at, key, fingerprint, execution)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22) ON CONFLICT DO NOTHING`

func insertSagaRow(b *pgx.Batch, s *saga.Saga) error {
	steps, err := json.Marshal(s.Steps)
	if err != nil {
		return err
	}
	key, print, execution := pendingSaga(s)
	expectRows(b.Queue(insertSaga, s.ID, s.Name, string(s.Protocol), string(s.Input), string(s.Status), s.Reason, string(steps), s.Decided,
		s.Coordinator, s.Cancelled, s.Owner, s.Term, s.LeaseExpiresAt, s.Version, s.NextAt, s.Attempts, s.LastError, s.CreatedAt,
		s.UpdatedAt, key, print, execution), 1, errStale)
	return nil
}

func pendingSaga(s *saga.Saga) (key, print []byte, execution *uuid.UUID) {
	if s.Pending == nil {
		return nil, nil, nil
	}
	return s.Pending.ID[:], s.Pending.Fingerprint[:], &s.Pending.Execution
}

// What a run writes is not written here.
const updateSaga = `UPDATE sagas SET cancelled = $2, next_at = $3, attempts = $4, key = $5, fingerprint = $6, execution = $7 WHERE id = $1`

// Update implements [saga.Store].
func (g *Sagas) Update(ctx context.Context, id uuid.UUID, keys []idempotency.ID, decide func(*saga.Unit)) error {
	return g.db.run(ctx, "saga.update", func(ctx context.Context, tx pgx.Tx) error {
		var (
			b     pgx.Batch
			found []*saga.Saga
		)
		b.Queue(lockSaga, id).Query(collect(&found, scanSaga))
		if err := send(ctx, tx, &b); err != nil {
			return err
		}
		if len(found) == 0 {
			return &saga.NotFoundError{ID: id}
		}
		book, known, err := lockBook(ctx, tx, nil, nil, keys)
		if err != nil {
			return err
		}
		u := &saga.Unit{Now: book.Now(), Keys: idempotency.NewBatch(known), Saga: found[0]}
		decide(u)
		var save pgx.Batch
		if u.Changed {
			key, print, execution := pendingSaga(u.Saga)
			expectRows(save.Queue(updateSaga, id, u.Saga.Cancelled, u.Saga.NextAt, u.Saga.Attempts, key, print, execution), 1, errNoTransition)
		}
		saveAudit(&save, u.Audit, u.Now)
		saveKeys(&save, u.Keys.Fresh(), u.Now, countedWrites)
		return send(ctx, tx, &save)
	})
}

// saveSaga writes in the run's term and version only. A lease that is given up expires at the epoch, which is past whatever
// happens to the clock.
const saveSaga = `UPDATE sagas SET status = $4, reason = $5, steps = $6, decided = $7, attempts = $8, last_error = $9, version = version + 1,
		updated_at = clock_timestamp(), ended_at = CASE WHEN $4 <> 'pending' THEN clock_timestamp() END,
		lease_expires_at = CASE WHEN $10::bigint IS NULL THEN lease_expires_at ELSE to_timestamp(0) END,
		next_at = CASE WHEN $10::bigint IS NULL THEN next_at ELSE clock_timestamp() + $10::bigint * interval '1 microsecond' END
	WHERE id = $1 AND term = $2 AND version = $3 AND status = 'pending'`

// Save implements [saga.Store].
func (g *Sagas) Save(ctx context.Context, s *saga.Saga, park *time.Duration) error {
	steps, err := json.Marshal(s.Steps)
	if err != nil {
		return err
	}
	var wait *int64
	if park != nil {
		wait = new(park.Microseconds())
	}
	err = g.db.run(ctx, "saga.save", func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, saveSaga, s.ID, s.Term, s.Version, string(s.Status), s.Reason, string(steps), s.Decided, s.Attempts, s.LastError, wait)
		if err != nil || tag.RowsAffected() == 1 {
			return err
		}
		// An earlier try may have been committed and its answer lost: nobody but the run in this term writes the next version.
		var term, version int64
		if err := tx.QueryRow(ctx, `SELECT term, version FROM sagas WHERE id = $1`, s.ID).Scan(&term, &version); err != nil {
			return err
		}
		if term == s.Term && version == s.Version+1 {
			return nil
		}
		return &saga.FencedError{ID: s.ID, Term: term}
	})
	if err == nil {
		s.Version++
	}
	return err
}

// Claim implements [saga.Store]. It looks before it writes, since most often there is nothing.
func (g *Sagas) Claim(ctx context.Context, owner uuid.UUID, ttl time.Duration, limit int) (claimed []*saga.Saga, err error) {
	const (
		dueSagas = `SELECT id FROM sagas
			WHERE status = 'pending' AND next_at <= clock_timestamp() AND lease_expires_at <= clock_timestamp() ORDER BY next_at LIMIT $1`
		takeSagas = `UPDATE sagas SET owner = $1, term = term + 1, version = version + 1, lease_expires_at = clock_timestamp() + $2::bigint * interval '1 microsecond'
			WHERE id IN (SELECT id FROM sagas WHERE id = ANY ($3) AND status = 'pending' AND next_at <= clock_timestamp()
				AND lease_expires_at <= clock_timestamp() FOR NO KEY UPDATE SKIP LOCKED)
			RETURNING ` + sagaFields
	)
	ids, err := query(ctx, g.db, pgx.RowTo[uuid.UUID], dueSagas, limit)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	err = g.db.run(ctx, "saga.claim", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, takeSagas, owner, ttl.Microseconds(), ids)
		if err != nil {
			return err
		}
		claimed, err = pgx.CollectRows(rows, scanSaga)
		return err
	})
	return claimed, err
}

// Renew implements [saga.Store]. A row that is being written at this moment is renewed the next time. A lease that was given
// up is not.
func (g *Sagas) Renew(ctx context.Context, owner uuid.UUID, ids []uuid.UUID, ttl time.Duration) error {
	const renewSagas = `UPDATE sagas SET lease_expires_at = clock_timestamp() + $3::bigint * interval '1 microsecond'
		WHERE id IN (SELECT id FROM sagas WHERE id = ANY ($2) AND owner = $1 AND status = 'pending' AND lease_expires_at > to_timestamp(0)
			FOR NO KEY UPDATE SKIP LOCKED)`
	return g.db.run(ctx, "saga.renew", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, renewSagas, owner, ids, ttl.Microseconds())
		return err
	})
}

// Saga implements [saga.Reader].
func (g *Sagas) Saga(ctx context.Context, id uuid.UUID) (*saga.Saga, error) {
	return queryOne(ctx, g.db, &saga.NotFoundError{ID: id}, scanSaga, selectSaga, id)
}

// Sagas implements [saga.Reader].
func (g *Sagas) Sagas(ctx context.Context, name string, stuck bool, after int64, limit int) ([]*saga.Saga, error) {
	return query(ctx, g.db, scanSaga, selectSagas, name, after, stuck, saga.StuckAfter, limit)
}

// Known implements [saga.Reader].
func (g *Sagas) Known(ctx context.Context, keys []idempotency.ID) (*idempotency.Batch, error) {
	var known []idempotency.Record
	err := reading(ctx, readTimeout, func(ctx context.Context) error {
		var b pgx.Batch
		known = nil
		loadKeys(&b, keys, &known)
		return g.db.pool.SendBatch(ctx, &b).Close()
	})
	return idempotency.NewBatch(known), err
}

// Coordinator begins the identifiers of the transactions that this log prepares. It is made of what PostgreSQL says of the
// database, so that it is the same in each process, survives a failover, and is another in a restored copy.
func (g *Sagas) Coordinator(ctx context.Context) (string, error) {
	id, err := g.db.Identity(ctx)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte("fairlead coordinator " + id))
	return "fairlead:" + hex.EncodeToString(sum[:8]), nil
}

// Identity tells this database from all others, by the identifier of its cluster and its own within.
func (db *DB) Identity(ctx context.Context) (string, error) {
	const selectIdentity = `SELECT c.system_identifier::text || '/' || d.oid FROM pg_control_system() AS c, pg_database AS d WHERE d.datname = current_database()`
	id, err := queryOne(ctx, db, errEmpty, pgx.RowTo[string], selectIdentity)
	if err != nil {
		return "", fmt.Errorf("postgres: identify the database: %w", err)
	}
	return id, nil
}

func scanSaga(row pgx.CollectableRow) (*saga.Saga, error) {
	var (
		s            saga.Saga
		input, steps string
		key, print   []byte
		execution    *uuid.UUID
	)
	err := row.Scan(&s.ID, &s.Number, &s.Name, &s.Protocol, &input, &s.Status, &s.Reason, &steps, &s.Decided, &s.Coordinator, &s.Cancelled,
		&s.Owner, &s.Term, &s.LeaseExpiresAt, &s.Version, &s.NextAt, &s.Attempts, &s.LastError, &s.CreatedAt, &s.UpdatedAt, &s.EndedAt,
		&key, &print, &execution)
	if err != nil {
		return nil, err
	}
	s.Input = []byte(input)
	s.LeaseExpiresAt, s.NextAt, s.CreatedAt, s.UpdatedAt, s.EndedAt = s.LeaseExpiresAt.UTC(), s.NextAt.UTC(), s.CreatedAt.UTC(), s.UpdatedAt.UTC(), utc(s.EndedAt)
	if key != nil && execution != nil {
		s.Pending = &idempotency.Request{Execution: *execution}
		copy(s.Pending.ID[:], key)
		copy(s.Pending.Fingerprint[:], print)
	}
	return &s, json.Unmarshal([]byte(steps), &s.Steps)
}
