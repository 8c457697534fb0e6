package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/lock"
)

// Release implements [lock.Backend]. Knowing the key of a lock of one key saves a look for it.
func (b *Backend) Release(ctx context.Context, g lock.Grant) error {
	id, err := uuid.Parse(g.ID)
	if err != nil {
		return lock.ErrLost
	}
	t := tenure{id: id, since: g.Start, alone: !g.Waited}
	if len(g.Tokens) == 1 {
		for key := range g.Tokens {
			t.key = key
		}
	}
	return b.end(ctx, t)
}

// tenure is a lock that is to end.
type tenure struct {
	id      uuid.UUID
	key     string    // "": not known, or not one
	since   time.Time // zero: not known
	base    uuid.UUID // whose row it has
	token   *int64    // nil: any
	served  []string  // of its cohort
	tickets []int64   // the served ones'
	alone   bool      // nobody is known to want the key
}

// end ends a lock: by passing it on within its cohort, or else in the tables.
func (b *Backend) end(ctx context.Context, t tenure) (err error) {
	b.busy.Add(1)
	defer b.busy.Add(-1)
	t.base = t.id
	c, passed, err := b.pass(t.id)
	if passed || err != nil {
		return err
	}
	if c != nil {
		select {
		case c.writing <- struct{}{}:
			defer func() { <-c.writing }()
		case <-ctx.Done():
			return fmt.Errorf("pglock: release: %w", context.Cause(ctx))
		}
		t.key, t.since = c.key, c.since
		if b.freeze(c, t.id) {
			t.base, t.token = c.base.id, &c.holder.token
			t.served, t.tickets = c.servedRows()
			defer func() {
				if err == nil || errors.Is(err, lock.ErrLost) {
					b.finish(c)
				}
			}()
		}
	}
	if t.key != "" && c == nil {
		if out, end := b.share(ctx, errand{key: t.key, ends: t.id.String()}); end == decided {
			if out.inTime {
				return nil
			}
			if b.observer != nil {
				b.observer.Expired(1)
			}
			return lock.ErrLost
		}
	}
	if t.key != "" {
		outcome, err := outcomeUndecided, error(nil)
		if t.alone && c == nil {
			outcome, err = b.endAlone(ctx, t)
		}
		if outcome == outcomeUndecided && err == nil {
			outcome, err = b.endAtOnce(ctx, t)
		}
		switch {
		case err != nil || outcome == outcomeUndecided: // A transaction finds out.
		case outcome == outcomeReleased:
			return nil
		default:
			return lock.ErrLost
		}
	}
	done, err := b.endByTransaction(ctx, t)
	if err != nil {
		return fmt.Errorf("pglock: release: %w", err)
	}
	b.Wake(ctx, done)
	if !done.Held {
		return lock.ErrLost
	}
	return nil
}

func (b *Backend) endByTransaction(ctx context.Context, t tenure) (done Released, err error) {
	err = Transact(ctx, b.run, "lock release", func(ctx context.Context, tx pgx.Tx) (err error) {
		if len(t.served) > 0 {
			var batch pgx.Batch
			batch.Queue(b.st.DropServed, t.served)
			batch.Queue(b.st.DropServedPlaces, t.key, t.tickets)
			if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
				return err
			}
		}
		done, err = b.release(ctx, tx, t.base, true)
		if err == nil && done.Owner == "" && t.base != t.id { // No row has that name any more: the cohort was settled.
			done, err = b.release(ctx, tx, t.id, true)
		}
		return err
	})
	return done, err
}

// endAlone ends a lock of one key that nobody stands in line for.
func (b *Backend) endAlone(ctx context.Context, t tenure) (outcome string, err error) {
	if b.plain.Load() || b.older.Load() {
		return outcomeUndecided, nil
	}
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	var ended *string
	err = b.pool.QueryRow(ctx, b.st.Free, t.key, t.id.String()).Scan(&ended)
	switch {
	case pgkit.Code(err) == undefinedFunction:
		b.noteOlder(ctx, !b.older.Swap(true))
		return outcomeUndecided, nil
	case err != nil:
		return "", err
	case ended == nil:
		return outcomeUndecided, nil
	}
	if *ended == outcomeExpired && b.observer != nil {
		b.observer.Expired(1)
	}
	return *ended, nil
}

// endAtOnce ends a lock of one key in one round trip, and tells those whose it is then.
func (b *Backend) endAtOnce(ctx context.Context, t tenure) (outcome string, err error) {
	if b.plain.Load() {
		return outcomeUndecided, nil
	}
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	depth := 1
	if !t.since.IsZero() && time.Since(t.since) <= shortHold {
		depth = maxCohort
	}
	var (
		successors []uuid.UUID
		tickets    []int64
		ours       *bool
		token      *int64
		expires    *time.Time
	)
	name := "cohort " + t.id.String()
	start := time.Now()
	err = b.pool.QueryRow(ctx, b.st.Release, t.key, t.base.String(), t.id.String(), t.token, t.served, t.tickets, b.process, depth, HandOver.Microseconds(), name, b.channel()).
		Scan(&outcome, &successors, &tickets, &ours, &token, &expires)
	if err != nil {
		return "", err
	}
	if outcome == outcomeExpired && b.observer != nil {
		b.observer.Expired(1)
	}
	if outcome == outcomeUndecided || len(successors) == 0 {
		return outcome, nil
	}
	if b.observer != nil {
		b.observer.HandedOver()
	}
	if !*ours {
		b.poke(successors[0]) // It may be of this process all the same; others have been notified.
		return outcome, nil
	}
	next := make([]successor, len(successors))
	for i, id := range successors {
		next[i] = successor{id: id, ticket: tickets[i], token: *token + int64(i)}
	}
	b.handOn(t.key, next, *expires, start) //nolint:contextcheck // What it starts outlives the release.
	return outcome, nil
}
