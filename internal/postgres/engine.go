package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

// probe finds out what the engine of the database does, on the first connection of the pool. What only the steps of the schema need, they
// find out: see portable.
func (db *DB) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sessionTimeout)
	defer cancel()
	err := db.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) (err error) {
		db.engine, err = pgkit.Probe(ctx, conn.Conn(), pgkit.Notify, pgkit.AdvisoryLocks, pgkit.RowPlaces, pgkit.RowVersions, pgkit.Functions, pgkit.Batches,
			pgkit.Partitions, pgkit.ReadCommitted)
		return err
	})
	if err != nil {
		return err
	}
	for _, l := range db.engine.Unsure() {
		db.logger.WarnContext(ctx, "this role may not try whether the database has a capability, which is taken to be there", "capability", string(l.Capability), "error", l.Why)
	}
	if !db.engine.Foreign() || !db.engine.Has(pgkit.ReadCommitted) {
		return nil
	}
	// An engine may call a transaction READ COMMITTED and give it one snapshot.
	sees, err := seesCommits(ctx, db.reads.pool, db.pool)
	if err == nil && !sees {
		db.engine = db.engine.And(pgkit.Lack{Capability: pgkit.ReadCommitted, What: "READ COMMITTED", Why: "a transaction did not see what another one had committed", Instead: "nothing"})
	}
	return err
}

// seesCommits looks whether a transaction of one pool sees what a session of the other one has committed since it began. It writes the row of
// a server that has never been at work. Without the schema, there is nothing to be wrong about.
func seesCommits(ctx context.Context, reader, writer *pgxpool.Pool) (sees bool, err error) {
	const (
		selectTrial = `SELECT count(*) > 0 FROM servers WHERE id = $1`
		insertTrial = `INSERT INTO servers (id, name, version, step, beat, started_at, at) VALUES ($1, 'trial', '', 0, 0, $2, $2)`
	)
	id := uuid.New()
	err = pgx.BeginFunc(ctx, reader, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, selectTrial, id).Scan(&sees); err != nil {
			return err
		}
		if _, err := writer.Exec(ctx, insertTrial, id, time.Unix(0, 0)); err != nil {
			return err
		}
		return tx.QueryRow(ctx, selectTrial, id).Scan(&sees)
	})
	if pgkit.Code(err) == undefinedTable {
		return true, nil
	}
	if err == nil {
		_, err = writer.Exec(ctx, deleteBeat, id)
	}
	return sees, err
}

// raising are the statements that raise standing bids whose amounts may repeat.
type raising struct {
	counted, guarded string
	chapters         int // 1 while [DB.chapters] is set
}

func (db *DB) raising() raising {
	if !db.engine.Has(pgkit.RowPlaces) {
		return raising{raiseStandingByKey, guardedRaiseStandingByKey, 0}
	}
	r := raising{raiseStanding, guardedRaiseStanding, 0}
	if db.chapters.Load() {
		r.chapters = 1
	}
	return r
}

// Missing names the capabilities that the database was found to lack when it was opened.
func (db *DB) Missing() (names []string) {
	for _, l := range db.engine.Lacks() {
		names = append(names, string(l.Capability))
	}
	return names
}

// Wire carries hints of events between the servers of a database; nil where the database notifies nobody, and they poll.
func (db *DB) Wire() live.Wire {
	if !db.engine.Has(pgkit.Notify) {
		return nil
	}
	return NewNotifications(db)
}
