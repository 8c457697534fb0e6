package pgsaga

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/saga"
)

// LogOptions are the parts of a [Log] that its user may bring. All may be zero.
type LogOptions struct {
	Schema Schema
	Run    Run  // nil: the package's own, which tries again for some seconds
	Read   Read // nil: likewise
	// Upkeep runs what keeps leases, takes sagas over and looks up what is in doubt. Give it connections that nothing else
	// can take, so that no load keeps a process from that; nil: Run.
	Upkeep Run
	Prefix string // of the coordinator's identifier; "" means "saga:"
	// Locking runs what locks the saga of an id, where that differs from Run: it may refuse to wait for another session's lock,
	// and return a command.BlockedError. May be nil.
	Locking func(id uuid.UUID) Run
	// Answers keeps what requests were answered in the log's transactions; nil: requests have no keys.
	Answers Answers
}

// Answers is where decided answers to keyed requests are kept, in the log's database.
type Answers interface {
	// Load reads the database's clock and the records of keys.
	Load(ctx context.Context, tx pgx.Tx, keys []idempotency.ID) (now time.Time, known []idempotency.Record, err error)
	// Queue queues the statements that write the unit's fresh answers and its audit.
	Queue(b *pgx.Batch, u *saga.Unit)
	// Known reads decided answers.
	Known(ctx context.Context, keys []idempotency.ID) (*idempotency.Batch, error)
}

// Log is the sagas' log in one database. It is safe for concurrent use.
type Log struct {
	pool    *pgxpool.Pool
	run     Run
	locking func(id uuid.UUID) Run
	upkeep  Run
	read    Read
	answers Answers
	schema  Schema
	prefix  string
	gate    pgkit.Gate // of keys
}

var _ saga.Store = (*Log)(nil)

// NewLog returns the log in the pool's database, which has the tables.
func NewLog(pool *pgxpool.Pool, o LogOptions) *Log {
	own := newRunner(pool, 0)
	l := &Log{gate: pgkit.Gate{Schema: string(o.Schema)}, pool: pool, run: o.Run, read: o.Read, answers: o.Answers, schema: o.Schema, prefix: cmp.Or(o.Prefix, "saga:")}
	if l.run == nil {
		l.run = own.run
	}
	if l.locking = o.Locking; l.locking == nil {
		l.locking = func(uuid.UUID) Run { return l.run }
	}
	if l.upkeep = o.Upkeep; l.upkeep == nil {
		l.upkeep = l.run
	}
	if l.read == nil {
		l.read = read
	}
	if l.answers == nil {
		l.answers = noAnswers{}
	}
	return l
}

// noAnswers is for logs whose sagas have ids, and requests no keys.
type noAnswers struct{}

func (noAnswers) Load(ctx context.Context, tx pgx.Tx, _ []idempotency.ID) (now time.Time, known []idempotency.Record, err error) {
	err = tx.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now)
	return now.UTC(), nil, err
}

func (noAnswers) Queue(*pgx.Batch, *saga.Unit) {}

func (noAnswers) Known(context.Context, []idempotency.ID) (*idempotency.Batch, error) {
	return idempotency.NewBatch(nil), nil
}

const (
	sagaFields = `id, number, name, protocol, input, status, reason, steps, decided, coordinator, cancelled, owner, term,
		lease_expires_at, version, next_at, attempts, last_error, created_at, updated_at, ended_at, key, fingerprint, execution, deadline_at`
	oneSaga    = `SELECT ` + sagaFields + ` FROM @sagas WHERE id = $1`
	manySagas  = `SELECT ` + sagaFields + ` FROM @sagas WHERE id = ANY ($1::text[]::uuid[])`
	lockSaga   = `SELECT ` + sagaFields + ` FROM @sagas WHERE id = $1 FOR NO KEY UPDATE`
	askedSagas = `SELECT ` + sagaFields + ` FROM @sagas WHERE id = $1 OR key = $2`
	// A key or id that was taken meanwhile is a unique violation: the transaction runs again and sees by whom.
	insertSaga = `INSERT INTO @sagas (id, name, protocol, input, status, reason, steps, decided, coordinator, cancelled, owner, term,
				lease_expires_at, version, next_at, attempts, last_error, created_at, updated_at, key, fingerprint, execution, deadline_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)`
	// What a run writes is not written here.
	updateSaga = `UPDATE @sagas SET cancelled = $2, next_at = $3, attempts = $4, key = $5, fingerprint = $6, execution = $7 WHERE id = $1`
	// A run writes in its own term and version only, and decides to commit only what was not cancelled; that an earlier term
	// was decided is no decision but a fact. A lease that is given up expires at the epoch, which is past whatever happens
	// to the clock. What a two-phase transaction decides or ends with is for the run of the server alone under which it began: a server that
	// was restored meanwhile has lost what that rests on.
	saveSaga = `UPDATE @sagas SET status = $4, reason = $5, steps = $6, decided = $7, attempts = $8, last_error = $9, version = version + 1,
				updated_at = clock_timestamp(), ended_at = CASE WHEN $4 <> 'pending' THEN clock_timestamp() END,
				lease_expires_at = CASE WHEN $10::bigint IS NULL THEN lease_expires_at ELSE to_timestamp(0) END,
				next_at = CASE WHEN $10::bigint IS NULL THEN next_at ELSE clock_timestamp() + $10::bigint * interval '1 microsecond' END
			WHERE id = $1 AND term = $2 AND version = $3 AND status = 'pending'
				AND ($7::bigint = 0 OR decided = $7 OR $7 < term OR NOT cancelled)
				AND ($11::uuid IS NULL OR $4 = 'pending' AND decided = $7 OR EXISTS (SELECT FROM @saga_coordinator WHERE incarnation = $11 AND instance LIKE '%' || ` + serverRun + `))
			RETURNING cancelled`
	stateOfSaga = `SELECT term, version, cancelled FROM @sagas WHERE id = $1`
	// aheadSaga is true of a row that a clock wrote which was ahead: it was changed later than now, or its lease is longer than any.
	aheadSaga = `(updated_at > clock_timestamp() OR lease_expires_at > clock_timestamp() + $2::bigint * interval '1 microsecond')`
	dueSagas  = `SELECT id, ` + aheadSaga + ` FROM @sagas WHERE status = 'pending' AND name = ANY ($3)
			AND (next_at <= clock_timestamp() AND lease_expires_at <= clock_timestamp() OR ` + aheadSaga + `) ORDER BY next_at LIMIT $1`
	// What lasts from then lasts as long from now. A run that is alive renews its lease before it ends.
	rightSagas = `UPDATE @sagas SET updated_at = least(updated_at, clock_timestamp()),
				next_at = CASE WHEN updated_at > clock_timestamp() THEN least(next_at, clock_timestamp() + (next_at - updated_at)) ELSE next_at END,
				lease_expires_at = least(lease_expires_at, clock_timestamp() + $2::bigint * interval '1 microsecond')
			WHERE id IN (SELECT id FROM @sagas WHERE id = ANY ($1::text[]::uuid[]) AND status = 'pending' AND ` + aheadSaga + ` FOR NO KEY UPDATE SKIP LOCKED)`
	takeSagas = `UPDATE @sagas SET owner = $1, term = term + 1, version = version + 1, lease_expires_at = clock_timestamp() + $2::bigint * interval '1 microsecond'
			WHERE id IN (SELECT id FROM @sagas WHERE id = ANY ($3::text[]::uuid[]) AND status = 'pending' AND next_at <= clock_timestamp()
				AND lease_expires_at <= clock_timestamp() FOR NO KEY UPDATE SKIP LOCKED)
			RETURNING ` + sagaFields
	renewSagas = `UPDATE @sagas SET lease_expires_at = clock_timestamp() + $3::bigint * interval '1 microsecond'
			WHERE id IN (SELECT id FROM @sagas WHERE id = ANY ($2::text[]::uuid[]) AND owner = $1 AND status = 'pending' AND lease_expires_at > to_timestamp(0)
				FOR NO KEY UPDATE SKIP LOCKED)
			RETURNING id`
	endedSagas = `SELECT id FROM @sagas WHERE ended_at < clock_timestamp() - $1::bigint * interval '1 microsecond' AND id <> ALL ($2::text[]::uuid[])
			ORDER BY ended_at LIMIT $3`
	removeSagas = `DELETE FROM @sagas WHERE id IN (SELECT id FROM @sagas WHERE id = ANY ($1::text[]::uuid[]) AND status <> 'pending' FOR UPDATE SKIP LOCKED)`
)

// claimKey takes a lock of an idempotency key until the commit. The key belongs to its saga until the answer is decided, and
// then to the record of the answer; whoever makes a saga under it, and whoever moves it from one to the other, has the lock.
// Without it, a repeat that has found no record yet could meet no saga with the key any more.
func (l *Log) claimKey(ctx context.Context, tx pgx.Tx, key []byte) error {
	rows, err := l.gate.Rows(ctx, tx)
	if err != nil {
		return err
	}
	if rows {
		_, err := tx.Exec(ctx, l.schema.in(pgkit.GateRow), pgkit.GateOf(key[0], key[1]))
		return err
	}
	_, err = tx.Exec(ctx, `SELECT pg_advisory_xact_lock(('x' || encode(substr($1::bytea, 1, 8), 'hex'))::bit(64)::bigint)`, key)
	return err
}

// Create implements [saga.Store].
func (l *Log) Create(ctx context.Context, id uuid.UUID, keys []idempotency.ID, decide func(*saga.Unit)) error {
	return l.run(ctx, "saga.create", func(ctx context.Context, tx pgx.Tx) error {
		var raw []byte
		for _, key := range keys {
			raw = key[:]
			if err := l.claimKey(ctx, tx, raw); err != nil {
				return err
			}
		}
		there, err := pgkit.Rows(ctx, tx, scan, l.schema.in(askedSagas), id, raw)
		if err != nil {
			return err
		}
		var u saga.Unit
		for _, s := range there {
			if s.ID == id {
				u.Existing = s
			} else {
				u.Asked = &idempotency.Asked{Request: *s.Pending, Object: s.ID} // It was found by its key.
			}
		}
		// The key's record is asked for last: an answer that was decided in between is seen, and not a saga without one.
		return l.decide(ctx, tx, keys, &u, decide, func(b *pgx.Batch) error {
			if u.Made == nil {
				return nil
			}
			return l.queueInsert(b, u.Made)
		})
	})
}

// decide reads the keys' records, lets the unit be decided, and writes what write queues, and the answers.
func (l *Log) decide(
	ctx context.Context, tx pgx.Tx, keys []idempotency.ID, u *saga.Unit, decide func(*saga.Unit), write func(*pgx.Batch) error,
) error {
	now, known, err := l.answers.Load(ctx, tx, keys)
	if err != nil {
		return err
	}
	u.Now, u.Keys = now, idempotency.NewBatch(known)
	decide(u)
	var b pgx.Batch
	if err := write(&b); err != nil {
		return err
	}
	l.answers.Queue(&b, u)
	return pgkit.Send(ctx, tx, &b)
}

func (l *Log) queueInsert(b *pgx.Batch, s *saga.Saga) error {
	steps, err := json.Marshal(s.Steps)
	if err != nil {
		return err
	}
	key, fingerprint, execution := command.Columns(s.Pending)
	b.Queue(l.schema.in(insertSaga), s.ID, s.Name, string(s.Protocol), string(s.Input), string(s.Status), s.Reason, string(steps), s.Decided,
		s.Coordinator, s.Cancelled, s.Owner, s.Term, s.LeaseExpiresAt, s.Version, s.NextAt, s.Attempts, s.LastError, s.CreatedAt,
		s.UpdatedAt, key, fingerprint, execution, s.DeadlineAt)
	return nil
}

// Update implements [saga.Store].
func (l *Log) Update(ctx context.Context, id uuid.UUID, keys []idempotency.ID, decide func(*saga.Unit)) error {
	return l.locking(id)(ctx, "saga.update", func(ctx context.Context, tx pgx.Tx) error {
		found, err := pgkit.Rows(ctx, tx, scan, l.schema.in(lockSaga), id)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return &saga.NotFoundError{ID: id}
		}
		u := saga.Unit{Saga: found[0]}
		if u.Saga.Pending != nil {
			if err := l.claimKey(ctx, tx, u.Saga.Pending.ID[:]); err != nil {
				return err
			}
		}
		return l.decide(ctx, tx, keys, &u, decide, func(b *pgx.Batch) error {
			if u.Changed { // The row is locked: it is there.
				key, fingerprint, execution := command.Columns(u.Saga.Pending)
				b.Queue(l.schema.in(updateSaga), id, u.Saga.Cancelled, u.Saga.NextAt, u.Saga.Attempts, key, fingerprint, execution)
			}
			return nil
		})
	})
}

// Save implements [saga.Store].
func (l *Log) Save(ctx context.Context, s *saga.Saga, park *time.Duration) error {
	steps, err := json.Marshal(s.Steps)
	if err != nil {
		return err
	}
	var wait *int64
	if park != nil {
		wait = new(park.Microseconds())
	}
	var life *uuid.UUID
	if decides := s.Status != saga.Pending || s.Decided == s.Term; decides && s.Life != uuid.Nil {
		life = &s.Life
	}
	cancelled := false
	err = l.locking(s.ID)(ctx, "saga.save", func(ctx context.Context, tx pgx.Tx) error {
		err := tx.QueryRow(ctx, l.schema.in(saveSaga), s.ID, s.Term, s.Version, string(s.Status), s.Reason, string(steps), s.Decided, s.Attempts, s.LastError, wait,
			life).Scan(&cancelled)
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		var term, version int64
		if err := tx.QueryRow(ctx, l.schema.in(stateOfSaga), s.ID).Scan(&term, &version, &cancelled); err != nil {
			return err
		}
		switch {
		case term == s.Term && version == s.Version+1:
			// An earlier try was committed and its answer lost: nobody but the run in this term writes the next version.
			return nil
		case term == s.Term && version == s.Version && cancelled && s.Decided != 0:
			return saga.ErrCancelled
		case term == s.Term && version == s.Version && life != nil:
			return saga.ErrOtherLife
		}
		return &saga.FencedError{ID: s.ID, Term: term}
	})
	if err == nil {
		s.Version++
		s.Cancelled = cancelled
	}
	return err
}

// Claim implements [saga.Store]. It looks before it writes, since most often there is nothing.
func (l *Log) Claim(ctx context.Context, owner uuid.UUID, names []string, ttl time.Duration, limit int) (claimed []*saga.Saga, err error) {
	err = l.upkeep(ctx, "saga.claim", func(ctx context.Context, tx pgx.Tx) error {
		claimed = nil
		var ids, ahead []uuid.UUID
		_, err := pgkit.Rows(ctx, tx, func(row pgx.CollectableRow) (id uuid.UUID, err error) {
			var late bool
			if err = row.Scan(&id, &late); late {
				ahead = append(ahead, id)
			} else {
				ids = append(ids, id)
			}
			return id, err
		}, l.schema.in(dueSagas), limit, ttl.Microseconds(), names)
		if err == nil && len(ahead) > 0 {
			_, err = tx.Exec(ctx, l.schema.in(rightSagas), pgkit.Texts(ahead), ttl.Microseconds())
		}
		if err != nil || len(ids) == 0 {
			return err
		}
		claimed, err = pgkit.Rows(ctx, tx, scan, l.schema.in(takeSagas), owner, ttl.Microseconds(), pgkit.Texts(ids))
		return err
	})
	return claimed, err
}

// Find implements [saga.Reader].
func (l *Log) Find(ctx context.Context, ids []uuid.UUID) ([]*saga.Saga, error) {
	return rowsOf(ctx, l.upkeep, "saga.find", scan, l.schema.in(manySagas), pgkit.Texts(ids))
}

// rowsOf runs a statement in a transaction of its own, and reads its rows.
func rowsOf[T any](ctx context.Context, run Run, name string, scan pgx.RowToFunc[T], sql string, args ...any) (out []T, err error) {
	err = run(ctx, name, func(ctx context.Context, tx pgx.Tx) error {
		out, err = pgkit.Rows(ctx, tx, scan, sql, args...)
		return err
	})
	return out, err
}

// Renew implements [saga.Store]. A row that is being written at this moment is renewed the next time. A lease that was given
// up is not.
func (l *Log) Renew(ctx context.Context, owner uuid.UUID, ids []uuid.UUID, ttl time.Duration) ([]uuid.UUID, error) {
	return rowsOf(ctx, l.upkeep, "saga.renew", pgx.RowTo[uuid.UUID], l.schema.in(renewSagas), owner, pgkit.Texts(ids), ttl.Microseconds())
}

// Saga implements [saga.Reader].
func (l *Log) Saga(ctx context.Context, id uuid.UUID) (*saga.Saga, error) {
	found, err := query(ctx, l.read, l.pool, scan, l.schema.in(oneSaga), id)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, &saga.NotFoundError{ID: id}
	}
	return found[0], nil
}

// Sagas implements [saga.Reader].
func (l *Log) Sagas(ctx context.Context, q saga.Query) ([]*saga.Saga, error) {
	sql, args := l.schema.list(q)
	return query(ctx, l.read, l.pool, scan, sql, args...)
}

// list makes the statement of a list. Each combination of filters has a statement of its own, because PostgreSQL would plan one
// for all of them badly. Statuses are written into the text, so that partial indexes can be used.
func (s Schema) list(q saga.Query) (sql string, args []any) {
	args = []any{q.After, q.Limit}
	beyond, order := `>`, ` ORDER BY number LIMIT $2`
	if q.Before != 0 {
		args[0], beyond, order = q.Before, `<`, ` ORDER BY number DESC LIMIT $2`
	}
	sql = `SELECT ` + sagaFields + ` FROM @sagas WHERE number ` + beyond + ` $1`
	if q.Name != "" {
		args = append(args, q.Name)
		sql += fmt.Sprintf(` AND name = $%d`, len(args))
	}
	switch q.Status {
	case "":
	case saga.Pending, saga.Completed, saga.Failed, saga.WasCompensated:
		sql += ` AND status = '` + string(q.Status) + `'`
	default:
		args = append(args, string(q.Status))
		sql += fmt.Sprintf(` AND status = $%d`, len(args))
	}
	if q.Stuck {
		args = append(args, saga.StuckAfter)
		sql += fmt.Sprintf(` AND status = 'pending' AND attempts >= $%d`, len(args))
	}
	if q.IDs != nil {
		args = append(args, pgkit.Texts(q.IDs))
		sql += fmt.Sprintf(` AND id = ANY ($%d::text[]::uuid[])`, len(args))
	}
	return s.in(sql + order), args
}

// Known implements [saga.Reader].
func (l *Log) Known(ctx context.Context, keys []idempotency.ID) (*idempotency.Batch, error) {
	return l.answers.Known(ctx, keys)
}

func scan(row pgx.CollectableRow) (*saga.Saga, error) {
	var (
		s                saga.Saga
		input, steps     string
		key, fingerprint []byte
		execution        *uuid.UUID
	)
	err := row.Scan(&s.ID, &s.Number, &s.Name, &s.Protocol, &input, &s.Status, &s.Reason, &steps, &s.Decided, &s.Coordinator, &s.Cancelled,
		&s.Owner, &s.Term, &s.LeaseExpiresAt, &s.Version, &s.NextAt, &s.Attempts, &s.LastError, &s.CreatedAt, &s.UpdatedAt, &s.EndedAt,
		&key, &fingerprint, &execution, &s.DeadlineAt)
	if err != nil {
		return nil, err
	}
	s.Input = []byte(input)
	s.LeaseExpiresAt, s.NextAt, s.CreatedAt, s.UpdatedAt = s.LeaseExpiresAt.UTC(), s.NextAt.UTC(), s.CreatedAt.UTC(), s.UpdatedAt.UTC()
	s.EndedAt, s.DeadlineAt = utc(s.EndedAt), utc(s.DeadlineAt)
	s.Pending = command.Pending(key, fingerprint, execution)
	return &s, json.Unmarshal([]byte(steps), &s.Steps)
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	return new(t.UTC())
}
