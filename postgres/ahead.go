package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/ledger"
)

// runAhead runs a transaction that can be sent ahead of what is read under locks (docs/adr/0010): ahead does so, once, and
// whatever becomes of that but plain success is left to locked. The first result says which of them it was that committed.
// ahead returns what [pipeline.commit] does, and locked what [DB.run] does.
func (db *DB) runAhead(name string, ahead, locked func() error) (bool, error) {
	start := time.Now()
	err := ahead()
	var lost error
	switch {
	case err == nil:
		db.observe(name, 1, start, "committed")
		return true, nil
	case errors.Is(err, errNotReplicated):
		db.observe(name, 1, start, "unknown")
		return true, fmt.Errorf("postgres: %s: %w", name, command.UnknownOutcome(err))
	case errors.Is(err, errLinkLost):
		lost = err
		db.retry(name, "commit_unknown")
	case !errors.Is(err, errNotSent):
		_, reason := classify(err)
		db.retry(name, reason)
	}
	err = locked()
	if lost != nil && errors.Is(err, command.ErrUnavailable) {
		// This run did nothing, but nobody knows of the first.
		return false, fmt.Errorf("postgres: %s: %w", name, command.UnknownOutcome(lost))
	}
	return false, err
}

// askTime asks for the database's time before what is known of it is too old, lest transactions that are sent ahead have
// to stop for it. Those go on meanwhile. Without an answer the next one asks, or the first that must know.
func (db *DB) askTime(ctx context.Context) {
	if !db.accounts.clockDue() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, clockPatience)
	defer cancel()
	if now, err := queryOne(ctx, db, nil, pgx.RowTo[time.Time], `SELECT clock_timestamp()`); err == nil {
		db.accounts.asked(now, time.Now())
	}
}

// readUnknown reads the accounts that are not remembered; nil is one that isn't there.
func (db *DB) readUnknown(ctx context.Context, ids []string) (map[string]*ledger.Account, error) {
	unknown := db.accounts.unknown(ids)
	if len(unknown) == 0 {
		return nil, nil
	}
	found, err := query(ctx, db, scanAccount, selectAccounts, unknown)
	if err != nil {
		return nil, err
	}
	read := make(map[string]*ledger.Account, len(unknown))
	for _, id := range unknown {
		read[id] = nil
	}
	for i := range found {
		read[found[i].ID] = &found[i]
	}
	return read, nil
}
