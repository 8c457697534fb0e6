package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

// DB is where the statements run: a pgx pool, connection or transaction.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Options configure [New].
type Options struct {
	Schema string // the database schema that has the table; "" is the first of the search path
	// Retention is how long answers of [Store.Do] are kept, [idempotency.DefaultRetention] by default. The middleware says it
	// itself.
	Retention time.Duration
}

// Store keeps keys in a PostgreSQL table. It is safe for concurrent use if its DB is, as a pool is.
type Store struct {
	db        DB
	sql       statements
	retention time.Duration
}

var _ idempotency.Store = (*Store)(nil)

// New returns a store on db, whose table [Install] makes.
func New(db DB, o Options) *Store {
	return &Store{db: db, sql: newStatements(o.Schema), retention: cmp.Or(o.Retention, idempotency.DefaultRetention)}
}

// statements are the SQL, with the table's schema.
type statements struct {
	begin, look, shorten, extend, complete, answer, release, sweep string
}

// micros is the fence of an execution that has no predecessor: by the clock, so that it grows even where an earlier
// execution's row is gone.
const micros = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

// mine is the guard of what an execution may do: it is the one under the key, and has no answer.
const mine = ` WHERE id = $1 AND execution = $2 AND fence = $3 AND status IS NULL`

func newStatements(schema string) statements {
	return statements{
		// The statement waits for a transaction that is about to insert the same key. A request with another fingerprint replaces
		// only a row whose retention is over.
		begin: pgkit.In(schema, `INSERT INTO @idempotent_requests AS k (id, fingerprint, execution, fence, park, lease_until, retention, expires_at)
			VALUES ($1, $2, $3, `+micros+`, $4, clock_timestamp() + $5::interval, $6::interval,
				CASE WHEN $4 THEN NULL ELSE clock_timestamp() + $5::interval + $6::interval END)
			ON CONFLICT (id) DO UPDATE SET fingerprint = excluded.fingerprint, execution = excluded.execution, park = excluded.park,
				lease_until = clock_timestamp() + $5::interval, retention = excluded.retention,
				expires_at = CASE WHEN $4 THEN NULL ELSE clock_timestamp() + $5::interval + $6::interval END, status = NULL, header = NULL, body = NULL,
				fence = CASE WHEN k.execution = excluded.execution THEN k.fence ELSE greatest(k.fence + 1, excluded.fence) END
			WHERE k.expires_at <= clock_timestamp() OR k.status IS NULL AND k.fingerprint = excluded.fingerprint
				AND (k.execution = excluded.execution OR NOT k.park AND k.lease_until <= clock_timestamp())
			RETURNING fence`),
		look: pgkit.In(schema, `SELECT fingerprint, execution, fence, park, (extract(epoch FROM lease_until - clock_timestamp()) * 1000000)::bigint,
				coalesce(status, 0), status IS NOT NULL, coalesce(header, ''), body
			FROM @idempotent_requests WHERE id = $1 AND (expires_at IS NULL OR expires_at > clock_timestamp())`),
		shorten: pgkit.In(schema, `UPDATE @idempotent_requests SET lease_until = clock_timestamp() + $4::interval,
				expires_at = CASE WHEN park THEN NULL ELSE clock_timestamp() + $4::interval + retention END`+mine+` AND lease_until > clock_timestamp() + $4::interval`),
		extend: pgkit.In(schema, `UPDATE @idempotent_requests SET lease_until = clock_timestamp() + $4::interval,
				expires_at = CASE WHEN park THEN NULL ELSE clock_timestamp() + $4::interval + retention END`+mine+` AND lease_until > clock_timestamp()`),
		complete: pgkit.In(schema, `UPDATE @idempotent_requests SET status = $4, header = $5, body = $6, expires_at = clock_timestamp() + retention`+mine),
		answer:   pgkit.In(schema, `SELECT status, header, body FROM @idempotent_requests WHERE id = $1 AND execution = $2 AND fence = $3 AND status IS NOT NULL`),
		release:  pgkit.In(schema, `DELETE FROM @idempotent_requests`+mine),
		sweep: pgkit.In(schema, `DELETE FROM @idempotent_requests WHERE id IN (SELECT id FROM @idempotent_requests WHERE expires_at <= clock_timestamp()
			ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)`),
	}
}

// beginTries bounds how often a key is begun that is released whenever it is looked at.
const beginTries = 5

// in is the store within a transaction.
func (s *Store) in(tx pgx.Tx) *Store { return &Store{db: tx, sql: s.sql, retention: s.retention} }

// Begin implements [idempotency.Store].
func (s *Store) Begin(ctx context.Context, r idempotency.Request, t idempotency.Terms) (idempotency.Entry, error) {
	if err := t.Validate(); err != nil {
		return idempotency.Entry{}, fmt.Errorf("pgstore: begin: %w", err)
	}
	for range beginTries {
		var fence int64
		err := s.db.QueryRow(ctx, s.sql.begin, r.ID[:], r.Fingerprint[:], r.Execution, t.OnCrash == idempotency.ParkAsUnknown, t.Lease, t.Retention).
			Scan(&fence)
		if err == nil {
			g := idempotency.Grant{ID: r.ID, Execution: r.Execution, Fence: fence}
			return idempotency.Entry{Phase: idempotency.Started, Grant: g, Fingerprint: r.Fingerprint}, nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return idempotency.Entry{}, fmt.Errorf("pgstore: begin: %w", err)
		}
		// A statement of its own sees what the one before has waited for.
		e, err := s.Look(ctx, r.ID)
		switch {
		case err == nil && e.Phase == idempotency.Absent: // Released meanwhile.
		case err == nil && e.Fingerprint != r.Fingerprint:
			return idempotency.Entry{}, idempotency.ErrKeyReused
		case err == nil && e.Phase == idempotency.InFlight && e.LeaseLeft > t.Lease:
			// A clock wrote it that was ahead. The execution, if it is alive, extends its lease before this one is over.
			if _, err := s.db.Exec(ctx, s.sql.shorten, r.ID[:], e.Grant.Execution, e.Grant.Fence, t.Lease); err != nil {
				return idempotency.Entry{}, fmt.Errorf("pgstore: begin: %w", err)
			}
			e.LeaseLeft = t.Lease
			return e, nil
		default:
			return e, err
		}
	}
	return idempotency.Entry{}, errRestless
}

// errRestless is returned when others begin and release a key again and again.
var errRestless = errors.New("pgstore: the key is begun and released by others all the time")

// Look implements [idempotency.Store].
func (s *Store) Look(ctx context.Context, id idempotency.ID) (e idempotency.Entry, err error) {
	var (
		fingerprint, body []byte
		header            string
		park, answered    bool
		leftMicros        int64
		status            int
	)
	err = s.db.QueryRow(ctx, s.sql.look, id[:]).Scan(&fingerprint, &e.Grant.Execution, &e.Grant.Fence, &park, &leftMicros, &status, &answered, &header, &body)
	if errors.Is(err, pgx.ErrNoRows) {
		return idempotency.Entry{}, nil
	}
	if err != nil {
		return idempotency.Entry{}, fmt.Errorf("pgstore: look: %w", err)
	}
	e.Grant.ID, e.Fingerprint = id, idempotency.Fingerprint(fingerprint)
	switch {
	case answered:
		e.Phase = idempotency.Answered
		e.Response, err = response(status, header, body)
	case park && leftMicros <= 0:
		e.Phase = idempotency.Unknown
	default:
		e.Phase, e.LeaseLeft = idempotency.InFlight, max(0, time.Duration(leftMicros)*time.Microsecond)
	}
	return e, err
}

func response(status int, header string, body []byte) (r idempotency.Response, err error) {
	h, err := idempotency.DecodeHeader(header)
	return idempotency.Response{Status: status, Header: h, Body: body}, err
}

// Extend implements [idempotency.Store].
func (s *Store) Extend(ctx context.Context, g idempotency.Grant, lease time.Duration) error {
	return s.change(ctx, "extend", s.sql.extend, g, lease)
}

// Release implements [idempotency.Store].
func (s *Store) Release(ctx context.Context, g idempotency.Grant) error {
	return s.change(ctx, "release", s.sql.release, g)
}

func (s *Store) change(ctx context.Context, what, sql string, g idempotency.Grant, args ...any) error {
	tag, err := s.db.Exec(ctx, sql, append([]any{g.ID[:], g.Execution, g.Fence}, args...)...)
	if err == nil && tag.RowsAffected() == 0 {
		err = idempotency.ErrLost
	}
	if err != nil {
		return fmt.Errorf("pgstore: %s: %w", what, err)
	}
	return nil
}

// Complete implements [idempotency.Store].
func (s *Store) Complete(ctx context.Context, g idempotency.Grant, answer idempotency.Response) (kept idempotency.Response, err error) {
	defer func() {
		if err != nil {
			kept, err = idempotency.Response{}, fmt.Errorf("pgstore: complete: %w", err)
		}
	}()
	header, body := idempotency.EncodeHeader(answer.Header), answer.Body
	if body == nil {
		body = []byte{}
	}
	tag, err := s.db.Exec(ctx, s.sql.complete, g.ID[:], g.Execution, g.Fence, answer.Status, header, body)
	if err != nil || tag.RowsAffected() == 1 {
		return answer, err
	}
	var status int
	err = s.db.QueryRow(ctx, s.sql.answer, g.ID[:], g.Execution, g.Fence).Scan(&status, &header, &body)
	if errors.Is(err, pgx.ErrNoRows) {
		return kept, idempotency.ErrLost
	}
	if err != nil {
		return kept, err
	}
	return response(status, header, body)
}

// Sweep implements [idempotency.Store].
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	tag, err := s.db.Exec(ctx, s.sql.sweep, limit)
	if err != nil {
		return 0, fmt.Errorf("pgstore: sweep: %w", err)
	}
	return int(tag.RowsAffected()), nil
}
