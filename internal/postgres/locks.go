package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/internal/command"
	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/lock"
	"github.com/fairlead-dev/fairlead/lock/pglock"
)

// LockClass labels the metrics of locks that are asked for over the network.
const LockClass = "api"

// LockObserver receives what happens to locks, for metrics. It may be nil.
type LockObserver interface {
	lock.Observer
	lock.StoreObserver
}

// Locks executes the commands of the lock service: each grant, renewal and release commits together with its answer.
// It is safe for concurrent use.
type Locks struct {
	db       *DB
	backend  *pglock.Backend
	observer LockObserver
	together *groupcommit.Group[struct{}, lockErrand, lockDone]

	mu     sync.Mutex
	asking map[string]int // commands under way that ask for a key and no other
}

// NewLocks returns the lock service on db. The caller closes it before db.
func NewLocks(db *DB, observer LockObserver) *Locks {
	l := &Locks{db: db, observer: observer, asking: map[string]int{}}
	l.together = l.newTogether()
	o := pglock.Options{Run: l.runOn(), Logger: db.logger}
	if observer != nil {
		o.Observer = observer
	}
	l.backend = pglock.New(db.pool, o)
	return l
}

// runOn runs transactions that need rows, by [DB.runOn].
func (l *Locks) runOn(rows ...blockedRow) pglock.Run {
	return func(ctx context.Context, name string, fn func(context.Context, pgx.Tx) error) error {
		err := l.db.runOn(ctx, name, rows, fn)
		if _, blocked := errors.AsType[*command.BlockedError](err); blocked {
			err = fmt.Errorf("%w: %w", pglock.ErrLocked, err)
		}
		return err
	}
}

// Close answers those who wait with [lock.ErrClosed]. Locks stay as they are.
func (l *Locks) Close(ctx context.Context) error {
	err := l.together.Close(ctx)
	l.backend.Close()
	return err
}

// Backend gives the process itself the locks that clients have.
func (l *Locks) Backend() *pglock.Backend { return l.backend }

// Acquire grants a lock, once per idempotency key. Besides what the database says it returns [lock.ErrHeld], a
// [lock.DeadlockError], and the cause of ctx's end: none of these is stored, and nothing is held after them.
func (l *Locks) Acquire(ctx context.Context, c command.Command[lock.Request]) (command.Answer, error) {
	began, wait := time.Now(), c.Op.Wait
	if len(c.Op.Keys) == 1 {
		alone, leave := l.alone(c.Op.Keys[0])
		defer leave()
		if alone {
			done, err := l.share(ctx, lockErrand{key: c.Key, render: c.Render, ask: &c.Op})
			if err == nil && done.grant != nil && l.observer != nil {
				l.observer.Asked(LockClass, lock.OutcomeOf(nil), time.Since(began), false)
			}
			if err != nil || done.decided {
				return done.answer, err
			}
		}
	}
	return executeOn(ctx, l.db, c, func() (command.Answer, error) {
		if wait > 0 { // What it has waited for a row counts.
			c.Op.Wait = max(0, wait-time.Since(began))
		}
		return l.acquire(ctx, c, began)
	})
}

func (l *Locks) acquire(ctx context.Context, c command.Command[lock.Request], began time.Time) (answer command.Answer, err error) {
	fresh := false
	var k keyState
	var asked pgx.Tx // in which k was read
	known := func(ctx context.Context, tx pgx.Tx, b *pgx.Batch) func() (bool, error) {
		read := queueLookup(ctx, tx, b, c.Key)
		return func() (_ bool, err error) {
			if k, err = read(); err != nil {
				return false, err
			}
			asked = tx
			if k.known {
				answer = command.Answer{Answer: k.answer}
			}
			return k.known, nil
		}
	}
	rows := make([]blockedRow, len(c.Op.Keys))
	for i, key := range c.Op.Keys {
		rows[i] = blockedRow{lockKeyRow, key}
	}
	g, err := l.backend.AcquireWith(ctx, c.Op, pglock.Hooks{
		Run:     l.runOn(rows...),
		Request: c.Key.ID[:],
		Known:   known,
		Granted: func(ctx context.Context, tx pgx.Tx, g lock.Grant) error {
			// While the request waited, its idempotency key may have been used for other locks.
			if asked != tx {
				var b pgx.Batch
				answered := known(ctx, tx, &b)
				if err := pgkit.Send(ctx, tx, &b); err != nil {
					return err
				}
				if answered, err := answered(); err != nil {
					return err
				} else if answered {
					return pglock.ErrAnswered
				}
			}
			fresh = true
			answer, err = l.record(ctx, tx, c.Key, c.Render(g, nil), k.now)
			return err
		},
	})
	if errors.Is(err, pglock.ErrAnswered) {
		return answer, nil
	}
	if l.observer != nil && (fresh || err != nil) && !errors.Is(err, pglock.ErrLocked) {
		l.observer.Asked(LockClass, lock.OutcomeOf(err), time.Since(began), g.Waited)
	}
	if err != nil {
		return command.Answer{}, fmt.Errorf("postgres: %w", err)
	}
	return answer, nil
}

// Renew lets a lock live on, once per idempotency key. Its result is a [lock.Grant], its refusal [lock.ErrLost].
func (l *Locks) Renew(ctx context.Context, c command.Command[lock.Renewal]) (command.Answer, error) {
	return executeOn(ctx, l.db, c, func() (command.Answer, error) { return l.renew(ctx, c) })
}

func (l *Locks) renew(ctx context.Context, c command.Command[lock.Renewal]) (answer command.Answer, err error) {
	id, notOne := uuid.Parse(c.Op.ID)
	err = l.db.runOn(ctx, "lock renew", []blockedRow{{lockGrantRow, id.String()}}, func(ctx context.Context, tx pgx.Tx) error {
		k, err := l.lookup(ctx, tx, c.Key)
		if err != nil || k.known {
			answer = command.Answer{Answer: k.answer}
			return err
		}
		noteUnrecorded(tx, nil)
		var result any
		refusal := lock.ErrLost
		if notOne == nil {
			result, refusal = l.backend.RenewIn(ctx, tx, id, c.Op.TTL)
		}
		if refusal != nil && !errors.Is(refusal, lock.ErrLost) {
			return refusal
		}
		answer, err = l.record(ctx, tx, c.Key, c.Render(result, refusal), k.now)
		return err
	})
	return answer, err
}

// Release ends a lock, once per idempotency key, and hands its keys on. Its refusal is [lock.ErrLost]. An operator's release
// has its row in the audit log.
func (l *Locks) Release(ctx context.Context, c command.Command[lock.Renewal]) (command.Answer, error) {
	id, err := uuid.Parse(c.Op.ID)
	if err != nil {
		return command.Answer{}, lock.ErrLost
	}
	var audit []command.Audit
	if c.Operator {
		audit = []command.Audit{command.Audited(c, "lock.release", c.Op.ID)}
	}
	done, err := l.share(ctx, lockErrand{key: c.Key, render: c.Render, ends: id, audit: audit})
	if err == nil && done.released != nil && done.released.Held && l.observer != nil {
		l.observer.Ended(LockClass, done.released.For, nil)
	}
	if err != nil || done.decided {
		return done.answer, err
	}
	return executeOn(ctx, l.db, c, func() (command.Answer, error) { return l.release(ctx, c, id, audit) })
}

func (l *Locks) release(ctx context.Context, c command.Command[lock.Renewal], id uuid.UUID, audit []command.Audit) (answer command.Answer, err error) {
	var done pglock.Released
	replayed := false
	err = pglock.Transact(ctx, l.runOn(blockedRow{lockGrantRow, id.String()}), "lock release", func(ctx context.Context, tx pgx.Tx) error {
		k, err := l.lookup(ctx, tx, c.Key)
		done, replayed = pglock.Released{}, k.known
		if err != nil || k.known {
			answer = command.Answer{Answer: k.answer}
			return err
		}
		noteUnrecorded(tx, nil)
		if done, err = l.backend.ReleaseIn(ctx, tx, id); err != nil {
			return err
		}
		if done.Held {
			answer, err = l.record(ctx, tx, c.Key, c.Render(nil, nil), k.now, audit...)
		} else {
			answer, err = l.record(ctx, tx, c.Key, c.Render(nil, lock.ErrLost), k.now)
		}
		return err
	})
	if err != nil {
		return command.Answer{}, err
	}
	l.backend.Wake(ctx, done)
	if l.observer != nil && !replayed && done.Held {
		l.observer.Ended(LockClass, done.For, nil)
	}
	return answer, nil
}

// AdvanceTokens makes the tokens of locks and the terms of leaders jump ahead, past those of a history that is lost. It returns
// the number above which all later tokens of locks are.
func (db *DB) AdvanceTokens(ctx context.Context) (floor int64, err error) {
	if _, err := db.elections.AdvanceTokens(ctx, db.pool, pglock.LostGrants); err != nil {
		return 0, fmt.Errorf("postgres: %w", err)
	}
	if floor, err = pglock.Schema("").AdvanceTokens(ctx, db.pool, pglock.LostGrants); err != nil {
		return 0, fmt.Errorf("postgres: %w", err)
	}
	return floor, nil
}

// Snapshot returns who holds, who waits, and for whom.
func (l *Locks) Snapshot(ctx context.Context) (lock.Snapshot, error) {
	var out lock.Snapshot
	err := reading(ctx, l.db.presence, readTimeout, func(ctx context.Context) (err error) {
		out, err = l.backend.Snapshot(ctx)
		return err
	})
	return out, err
}

// DatabaseWaits lists who waits for PostgreSQL's own locks in the database, longest first and 200 at most.
func (l *Locks) DatabaseWaits(ctx context.Context) (out []operator.DatabaseWait, err error) {
	err = reading(ctx, l.db.presence, readTimeout, func(ctx context.Context) error {
		waits, err := pglock.DatabaseWaits(ctx, l.db.reads.pool)
		out = make([]operator.DatabaseWait, len(waits))
		for i, w := range waits {
			out[i] = operator.DatabaseWait{
				PID: w.PID, Application: w.Application, Kind: w.Kind, Mode: w.Mode, Relation: w.Relation, Since: w.Since, Statement: w.Statement,
			}
			for _, b := range w.Blockers {
				out[i].Blockers = append(out[i].Blockers, operator.DatabaseBlocker(b))
			}
		}
		return err
	})
	return out, err
}

// Deadlocks are those that this process has broken, newest first.
func (l *Locks) Deadlocks() []operator.Deadlock {
	broken := l.backend.Deadlocks()
	out := make([]operator.Deadlock, len(broken))
	for i, d := range broken {
		out[i] = operator.Deadlock{At: d.At, Cycle: d.Cycle, Keys: d.Keys}
	}
	return out
}

// Sweep deletes the rows of what ended by itself long ago and returns how many there were.
func (l *Locks) Sweep(ctx context.Context) (int, error) { return l.backend.Sweep(ctx) }

// keyState is what is known of an idempotency key.
type keyState struct {
	known  bool
	answer idempotency.Answer
	now    time.Time
}

// lookup reads a key's record. It returns [idempotency.ErrKeyReused] when the key stands for another request.
func (l *Locks) lookup(ctx context.Context, tx pgx.Tx, key *idempotency.Request) (keyState, error) {
	var b pgx.Batch
	read := queueLookup(ctx, tx, &b, key)
	if err := pgkit.Send(ctx, tx, &b); err != nil {
		return keyState{}, err
	}
	return read()
}

// queueLookup is lookup whose statements travel with others.
func queueLookup(ctx context.Context, tx pgx.Tx, b *pgx.Batch, key *idempotency.Request) (read func() (keyState, error)) {
	book := &bookLock{keys: []idempotency.ID{key.ID}}
	book.queue(ctx, tx, b)
	return func() (k keyState, err error) {
		k.now = book.now
		k.answer, k.known, err = idempotency.NewBatch(book.known).Lookup(*key)
		return k, err
	}
}

// record stores the answer and what is to be audited, and commits in the same round trip. Should another transaction have stored
// an answer for the key meanwhile, the whole transaction runs again and finds that one.
func (l *Locks) record(ctx context.Context, tx pgx.Tx, key *idempotency.Request, r command.Rendered, now time.Time, audit ...command.Audit) (command.Answer, error) {
	answer := command.Answer{Answer: idempotency.Answer{Status: r.Status, Body: r.Body}}
	if !r.Decided {
		return answer, nil
	}
	var b pgx.Batch
	saveAudit(&b, audit, now)
	saveKeys(&b, []idempotency.Record{{Request: *key, Status: r.Status, Body: r.Body}}, now, guardedWrites)
	return answer, sendAndCommit(ctx, tx, &b)
}
