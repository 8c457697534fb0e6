package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/live"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

// probe finds out what the engine of a database does. What only the steps of the schema need, they find out: see portable.
func probe(ctx context.Context, config *pgx.ConnConfig) (found pgkit.Capabilities, err error) {
	ctx, cancel := context.WithTimeout(ctx, sessionTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config.Copy())
	if err != nil {
		return found, err
	}
	found, err = pgkit.Probe(ctx, conn, pgkit.Notify, pgkit.AdvisoryLocks, pgkit.RowPlaces, pgkit.Functions, pgkit.Batches, pgkit.ReadCommitted)
	return found, errors.Join(err, conn.Close(ctx))
}

// raising are the statements that raise standing bids whose amounts may repeat.
type raising struct{ counted, guarded string }

func (db *DB) raising() raising {
	if !db.engine.Has(pgkit.RowPlaces) {
		return raising{raiseStandingByKey, guardedRaiseStandingByKey}
	}
	return raising{raiseStanding, guardedRaiseStanding}
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
