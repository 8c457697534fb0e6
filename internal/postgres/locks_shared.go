package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/postgres/speculation"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/pglock"
)

// maxSharedLocks bounds the commands of one transaction, and so for how long their keys are locked.
const maxSharedLocks = 128

// lockErrand is a command that asks for a lock of one key, or ends a lock. Errands for different keys share transactions: while one is
// under way, the next ones gather (docs/adr/0033).
type lockErrand struct {
	key    *idempotency.Request
	render command.Render
	ask    *lock.Request // nil: it ends a lock
	ends   uuid.UUID
	audit  []command.Audit // of the lock's end
}

// lockDone is what has become of an errand. The zero value says that it was left alone: it is decided by itself.
type lockDone struct {
	decided  bool
	answer   command.Answer
	grant    *lock.Grant      // nil as well where the answer is an earlier one
	released *pglock.Released // likewise
}

func (l *Locks) newTogether() *groupcommit.Group[struct{}, lockErrand, lockDone] {
	return groupcommit.New(l.decideTogether, groupcommit.Options{
		MaxBatch: maxSharedLocks, Overlap: 1, MinOverlap: 8, Patience: pglock.SharePatience, Divisible: func(error) bool { return false },
	})
}

// share decides an errand together with others. An error is the command's; one that is left alone has none.
func (l *Locks) share(ctx context.Context, e lockErrand) (lockDone, error) {
	if !l.backend.Shares() {
		return lockDone{}, nil
	}
	done, err := l.together.Do(ctx, struct{}{}, e)
	reason := "contended"
	_, blocked := errors.AsType[*command.BlockedError](err)
	switch {
	case err == nil && done.decided:
		return done, nil
	case errors.Is(err, groupcommit.ErrInFlight), errors.Is(err, command.ErrUnavailable), errors.Is(err, command.ErrUnknownOutcome):
		return done, err // The database has been waited for, and what is known of it is said.
	case errors.Is(err, groupcommit.ErrLate):
		reason = "late"
	case errors.Is(err, groupcommit.ErrFull):
		reason = "full"
	case errors.Is(err, groupcommit.ErrClosed):
		reason = speculation.Closing
	case blocked:
		reason = speculation.Blocked
	case err != nil:
		reason = speculation.Reason(err)
	}
	if l.db.observer != nil {
		l.db.observer.Fallback(sharedLocks, reason)
	}
	return lockDone{}, nil
}

// sharedLocks names the transactions in metrics.
const sharedLocks = "locks together"

// decideTogether decides, in one transaction, those of the errands that nobody else has to do with.
func (l *Locks) decideTogether(ctx context.Context, _ struct{}, batch []lockErrand) (done []lockDone, err error) {
	ids := make([]idempotency.ID, len(batch))
	for i := range batch {
		ids[i] = batch[i].key.ID
	}
	err = l.db.runOn(ctx, sharedLocks, nil, func(ctx context.Context, tx pgx.Tx) error {
		done = make([]lockDone, len(batch))
		book, known, err := lockBook(ctx, tx, nil, ids)
		if err != nil {
			return err
		}
		noteUnrecorded(tx, known)
		return l.decideFresh(ctx, tx, batch, idempotency.NewBatch(known), book.Now(), done)
	})
	return done, err
}

func (l *Locks) decideFresh(ctx context.Context, tx pgx.Tx, batch []lockErrand, keys *idempotency.Batch, now time.Time, done []lockDone) error {
	var (
		asks          []lock.Request
		ends          []uuid.UUID
		asked, ending []int // their places in the batch
	)
	met := make(map[idempotency.ID]bool, len(batch))
	for i, e := range batch {
		answer, known, err := keys.Lookup(*e.key)
		switch {
		case known:
			done[i] = lockDone{decided: true, answer: command.Answer{Answer: answer}}
		case err != nil || met[e.key.ID]: // It is refused, or waits for the first one's answer, by itself.
		case e.ask != nil:
			asks, asked = append(asks, *e.ask), append(asked, i)
		default:
			ends, ending = append(ends, e.ends), append(ending, i)
		}
		met[e.key.ID] = true
	}
	if len(asks)+len(ends) == 0 {
		return nil
	}
	grants, ended, err := l.backend.ShareIn(ctx, tx, asks, ends)
	if err != nil {
		return err
	}
	var audit []command.Audit
	decide := func(i int, r command.Rendered, d lockDone) {
		d.decided = true
		d.answer.Answer = idempotency.Answer{Status: r.Status, Body: r.Body}
		done[i] = d
		if r.Decided {
			keys.Store(*batch[i].key, r.Status, r.Body)
		}
	}
	for n, i := range asked {
		if g := grants[n]; g != nil {
			decide(i, batch[i].render(*g, nil), lockDone{grant: g})
		}
	}
	for n, i := range ending {
		switch r := ended[n]; {
		case r == nil:
		case r.Held:
			decide(i, batch[i].render(nil, nil), lockDone{released: r})
			audit = append(audit, batch[i].audit...)
		default:
			decide(i, batch[i].render(nil, lock.ErrLost), lockDone{released: r})
		}
	}
	var b pgx.Batch
	saveAudit(&b, audit, now)
	saveKeys(&b, keys.Fresh(), now, guardedWrites)
	return sendAndCommit(ctx, tx, &b)
}

// alone notes that a command asks for a key, and reports whether no other of this process does. Those that do wait for each other.
func (l *Locks) alone(key string) (alone bool, leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asking[key]++
	return l.asking[key] == 1, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.asking[key]--; l.asking[key] == 0 {
			delete(l.asking, key)
		}
	}
}
