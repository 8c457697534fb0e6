package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/saga"
	"github.com/fairlead-dev/fairlead/saga/pgsaga"
)

// Sagas is the sagas' log on a DB, in whose transactions the answers to requests are kept too.
type Sagas struct {
	*pgsaga.Log

	db *DB
}

// NewSagas returns the sagas' log on db.
func NewSagas(db *DB) *Sagas { return NewSagasWithUpkeep(db, db) }

// NewSagasWithUpkeep is NewSagas with connections for the upkeep that nothing else can take: another DB of the same database.
func NewSagasWithUpkeep(db, upkeep *DB) *Sagas {
	read := func(ctx context.Context, fn func(context.Context) error) error {
		return reading(ctx, db.presence, readTimeout, fn)
	}
	locking := func(id uuid.UUID) pgsaga.Run {
		return func(ctx context.Context, name string, fn func(context.Context, pgx.Tx) error) error {
			return db.runOn(ctx, name, []blockedRow{{sagaRow, id.String()}}, fn)
		}
	}
	o := pgsaga.LogOptions{
		Run: db.run, Locking: locking, Read: read, Upkeep: upkeep.run, Answers: sagaAnswers{db}, Prefix: "fairlead:",
	}
	return &Sagas{Log: pgsaga.NewLog(db.pool, o), db: db}
}

// Update implements [saga.Store]. It does not wait for a saga that another session has locked.
func (g *Sagas) Update(ctx context.Context, id uuid.UUID, keys []idempotency.ID, decide func(*saga.Unit)) error {
	err := g.Log.Update(ctx, id, keys, decide)
	if reason, blocked := errors.AsType[*command.BlockedError](err); blocked {
		return g.db.refuse(ctx, keys, func(known *idempotency.Batch) { decide(&saga.Unit{Blocked: reason, Keys: known}) })
	}
	return err
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
	var known []idempotency.Record
	err := reading(ctx, a.db.presence, readTimeout, func(ctx context.Context) error {
		var b pgx.Batch
		known = nil
		loadKeys(&b, keys, &known)
		return a.db.pool.SendBatch(ctx, &b).Close()
	})
	return idempotency.NewBatch(known), err
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
