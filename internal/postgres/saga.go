package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// NewSagas returns the sagas' log on db, in whose transactions the answers to requests are kept too. It does not wait for a saga
// that another session has locked.
func NewSagas(db *DB) *pgsaga.Log { return NewSagasWithUpkeep(db, db) }

// NewSagasWithUpkeep is NewSagas with connections for the upkeep that nothing else can take: another DB of the same database.
func NewSagasWithUpkeep(db, upkeep *DB) *pgsaga.Log {
	read := func(ctx context.Context, fn func(context.Context) error) error {
		return reading(ctx, db.presence, readTimeout, fn)
	}
	locking := func(id uuid.UUID) pgsaga.Run {
		return func(ctx context.Context, name string, fn func(context.Context, pgx.Tx) error) error {
			return db.runOn(ctx, name, []blockedRow{{sagaRow, id.String()}}, fn)
		}
	}
	return pgsaga.NewLog(db.pool, pgsaga.LogOptions{
		Run: db.run, Locking: locking, Read: read, Upkeep: upkeep.run, Answers: sagaAnswers{db}, Prefix: "fairlead:",
	})
}

// sagaAnswers keeps the answers to requests for sagas as all others are kept.
type sagaAnswers struct{ db *DB }

// Load implements [pgsaga.Answers].
func (a sagaAnswers) Load(ctx context.Context, tx pgx.Tx, keys []idempotency.ID) (time.Time, []idempotency.Record, error) {
	book, known, err := lockBook(ctx, tx, nil, keys)
	if err != nil {
		return time.Time{}, nil, err
	}
	return book.Now(), known, nil
}

// Queue implements [pgsaga.Answers].
func (a sagaAnswers) Queue(b *pgx.Batch, u *saga.Unit) {
	saveAudit(b, u.Audit, u.Now)
	saveKeys(b, u.Keys.Fresh(), u.Now, countedWrites)
}

// Known implements [pgsaga.Answers].
func (a sagaAnswers) Known(ctx context.Context, keys []idempotency.ID) (*idempotency.Batch, error) {
	return a.db.known(ctx, keys)
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
