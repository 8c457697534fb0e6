package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// runAhead runs a transaction that can be sent ahead of what is read under locks (docs/adr/0010): ahead does so, once, and
// whatever becomes of that but plain success is left to locked. Each such fallback is reported with its reason. The first
// result says which of them it was that committed. ahead returns what [pipeline.commit] does, and locked what [DB.run] does.
func (db *DB) runAhead(name string, ahead, locked func() error) (bool, error) {
	start := time.Now()
	err := ahead()
	if err == nil {
		db.observe(name, 1, start, "committed")
		return true, nil
	}
	reason := fallbackReason(err)
	db.fallback(name, reason)
	var lost error
	switch {
	case errors.Is(err, errNotReplicated), errors.Is(err, errAway) && errors.Is(err, errLinkLost):
		db.observe(name, 1, start, "unknown")
		return true, fmt.Errorf("postgres: %s: %w", name, command.UnknownOutcome(err))
	case errors.Is(err, errAway): // It has been waited for long enough.
		db.observe(name, 1, start, "failed")
		return false, fmt.Errorf("postgres: %s: %w", name, command.Unavailable(errAway))
	case errors.Is(err, errLinkLost):
		lost = err
		db.retry(name, reason)
	case !isNotSent(err):
		db.retry(name, reason)
	}
	err = locked()
	if lost != nil && errors.Is(err, command.ErrUnavailable) {
		// This run did nothing, but nobody knows of the first.
		return false, fmt.Errorf("postgres: %s: %w", name, command.UnknownOutcome(lost))
	}
	return false, err
}

// Reasons for which a transaction was not sent ahead, or failed when it was. Others are "connection", "encode",
// "commit_unknown", "not_replicated", and SQLSTATEs.
const (
	fallbackAbsent    = "absent"    // nothing is remembered of the auction
	fallbackBackoff   = "backoff"   // another server wrote lately
	fallbackBehind    = "behind"    // a transaction that it rested on failed
	fallbackBlocked   = "blocked"   // a row is locked by somebody else
	fallbackBusy      = "busy"      // other transactions of this process work on the accounts
	fallbackClock     = "clock"     // the database's time is not known
	fallbackClosing   = "closing"   // the round is about to end
	fallbackCommand   = "command"   // the batch has a command that is decided under locks
	fallbackExtension = "extension" // a bid moves the round's end
	fallbackForgotten = "forgotten" // an account was forgotten meanwhile
	fallbackRead      = "read"      // accounts could not be read
	fallbackRefusal   = "refusal"   // a command is refused
	fallbackRepeat    = "repeat"    // a key was used lately
	fallbackStale     = "stale"     // the database has something else than what is remembered
	fallbackKeyKnown  = "key_known" // a key has a record, which this process did not know of
)

// fallbackReason names why a transaction that was to be sent ahead did not commit.
func fallbackReason(err error) string {
	if unsent, ok := errors.AsType[*notSentError](err); ok {
		return unsent.reason
	}
	switch {
	case errors.Is(err, errNotReplicated):
		return "not_replicated"
	case errors.Is(err, errLinkLost):
		return "commit_unknown"
	case isKeyKnown(err):
		return fallbackKeyKnown
	case errors.Is(err, errBehind):
		return fallbackBehind
	case isGuard(err):
		return fallbackStale
	case isLockTimeout(err):
		return fallbackBlocked
	}
	return cmp.Or(pgkit.Code(err), "other")
}

// askTime asks for the database's time before what is known of it is too old, lest transactions that are sent ahead have
// to stop for it. Those go on meanwhile. Without an answer the next one asks, or the first that must know.
func (db *DB) askTime(ctx context.Context) {
	if !db.clock.due() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, clockPatience)
	defer cancel()
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return
	}
	defer conn.Release()
	var now time.Time
	asked := time.Now() // The wait for a connection is no part of the answer's way.
	if err := conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err == nil {
		db.clock.learned(now, asked, time.Now())
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

// speculate is what all transactions that are sent ahead have in common. It makes sure that no other transaction of this
// process works on the accounts, reads those that are not remembered, and sends what fill queues. fill gets the accounts in
// a book, which bears the latest time that it may be, by how much it may be earlier, and the ids of accounts that do not
// exist. See [pipeline.commit].
func (db *DB) speculate(ctx context.Context, p *pipeline, place string, accounts []string, keys []idempotency.ID,
	fill func(b *pgx.Batch, book *ledger.Book, uncertain time.Duration, absent []string) error,
) error {
	switch {
	case db.presence.Hopeless():
		return notSent("connection", errAway)
	case db.recent.any(keys):
		return notSent(fallbackRepeat, nil)
	case db.blocked.find(accountRow, accounts...) != nil:
		return notSent(fallbackBlocked, nil)
	case !db.accounts.enter(ctx, p, accounts):
		return notSent(fallbackBusy, nil)
	}
	defer db.accounts.leave(accounts)
	read, err := db.readUnknown(ctx, accounts)
	if err != nil {
		return notSent(fallbackRead, err)
	}
	sent := false
	err = p.commit(ctx, place, func(b *pgx.Batch) error {
		now, ok := db.clock.now()
		if !ok {
			return notSent(fallbackClock, nil)
		}
		book := ledger.NewBook(now.latest, newID)
		absent, ok := db.accounts.loadAll(accounts, read, book)
		if !ok {
			return notSent(fallbackForgotten, nil)
		}
		if err := fill(b, book, now.latest.Sub(now.earliest), absent); err != nil {
			return err
		}
		// What the next call decides on. Should this transaction fail, the checks of those that rest on it do so, too.
		db.accounts.keep(book)
		sent = true
		return nil
	})
	if err != nil && sent {
		db.accounts.forget(accounts)
	}
	return err
}
