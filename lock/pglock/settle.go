package pglock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/lock"
)

type tag = pgconn.CommandTag

// tables are the statements on the tables of one schema. Their methods work within the caller's transaction and may be
// run again in another one.
type tables struct {
	st       *statements
	observer lock.StoreObserver
}

// settled is the outcome of a transaction that made keys free.
type settled struct {
	woken []uuid.UUID // those that were granted
	more  []string    // keys to be settled together, since a request in line wants others besides these
}

// pass grants to those in line whose turn has come.
func (t *tables) pass(ctx context.Context, tx pgx.Tx, s *scene) (out settled, err error) {
	more := map[string]bool{}
	for _, r := range s.line {
		for _, k := range r.keys {
			if _, locked := s.tokens[k]; !locked {
				more[k] = true
			}
		}
	}
	if len(more) > 0 {
		out.more = slices.Sorted(maps.Keys(more))
		for k := range s.tokens {
			out.more = append(out.more, k)
		}
		slices.Sort(out.more)
	}
	if len(s.line) == 0 {
		return out, nil
	}
	// Whoever wants a key that is not locked is left to the next round, but stays in the way of those behind.
	guess := scene{tokens: s.tokens, holders: maps.Clone(s.holders)}
	for k := range more {
		guess.holders[k] = unknownOwner
	}
	chosen, err := t.decide(ctx, tx, &guess, s.line)
	if err != nil {
		return out, err
	}
	for i, r := range chosen {
		// A hand-over that is the end of a release travels with its COMMIT: each round trip less is time that the keys' rows
		// are locked for less.
		if _, err := t.give(ctx, tx, s, r, handOver(r), s.later && i == len(chosen)-1); err != nil {
			return out, err
		}
		out.woken = append(out.woken, r.id)
	}
	return out, nil
}

// execer is a pool or a transaction.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (tag, error)
}

// endAhead lets grants whose leases were written by a clock that was ahead end within their TTL from now on. Whoever looks does
// so. Holders that are alive renew them before that: they trust a lease for no longer than its TTL by their own clocks.
func (t *tables) endAhead(ctx context.Context, db execer, ids []uuid.UUID) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := db.Exec(ctx, t.st.EndAhead, pgkit.Texts(ids))
	return err
}

// settle grants keys that are free to those in line for them.
func (t *tables) settle(ctx context.Context, tx pgx.Tx, keys []string) (settled, error) {
	s, err := t.look(ctx, tx, keys)
	if err != nil {
		return settled{}, err
	}
	return t.pass(ctx, tx, s)
}

// release ends a lock and passes its keys on. The transaction is to be committed whether the lock was still held or not. With
// later, it commits without waiting for the disk, so that the keys' rows are not locked for as long. The next holder learns of its
// grant by a transaction that commits after this one, and durably. If the database crashes between the two, the lock is still that
// of its last holder, until its lease ends.
func (t *tables) release(ctx context.Context, tx pgx.Tx, id uuid.UUID, later bool) (out Released, err error) {
	s := newScene()
	s.later = later
	var keys []string
	var seconds float64
	var b pgx.Batch
	b.Queue(t.st.LockKeysOf, id).Query(s.scanKeys)
	b.Queue(t.st.ReadHeadOf, id).Query(s.scanLine)
	b.Queue(t.st.ReadLineOf, id).Query(s.scanLine)
	b.Queue(t.st.EndGrant, id).QueryRow(func(row pgx.Row) error { return row.Scan(&out.Held, &out.Owner, &keys, &seconds) })
	err = tx.SendBatch(ctx, &b).Close()
	if errors.Is(err, pgx.ErrNoRows) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.For = time.Duration(seconds * float64(time.Second))
	if !out.Held && t.observer != nil {
		t.observer.Expired(1)
	}
	out.next, err = t.pass(ctx, tx, s)
	return out, err
}

// taken makes a full lease of a grant that was handed over; nil when it has expired, or never was.
func (t *tables) taken(ctx context.Context, tx pgx.Tx, r request, h Hooks) (*lock.Grant, error) {
	g, err := scanGrant(tx.QueryRow(ctx, t.st.Take, r.id, r.owner))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &g, h.granted(ctx, tx, g)
}

func scanGrant(row pgx.Row) (g lock.Grant, err error) {
	var id uuid.UUID
	var keys []string
	var tokens []int64
	var ttl int64
	if err := row.Scan(&id, &g.Owner, &keys, &tokens, &ttl, &g.GrantedAt, &g.ExpiresAt); err != nil {
		return g, err
	}
	g.ID, g.TTL = id.String(), time.Duration(ttl)*time.Microsecond
	g.GrantedAt, g.ExpiresAt = g.GrantedAt.UTC(), g.ExpiresAt.UTC()
	g.Tokens = make(map[string]int64, len(keys))
	for i, k := range keys {
		g.Tokens[k] = tokens[i]
	}
	return g, nil
}

// left is the outcome of leaving the line.
type left struct {
	grant *lock.Grant // it had been granted, and was taken after all
	cycle []string    // it had been made the victim of a deadlock
}

// leaveAll takes requests for the same keys out of the line. Those that were granted meanwhile are taken or ended.
func (t *tables) leaveAll(ctx context.Context, tx pgx.Tx, batch []*joining) (settled, error) {
	s, err := t.lookFor(ctx, tx, &pgx.Batch{}, batch[0].w.request.keys, batch, nil)
	if err != nil {
		return settled{}, err
	}
	var b pgx.Batch
	freed := false
	for _, j := range batch {
		r := j.w.request
		j.left, j.err, j.end = left{}, nil, decided
		if fingerprint, granted := s.grants[r.id]; granted {
			if len(fingerprint) == 0 && r.fingerprint != nil {
				continue // What stands for it was committed along, and gives it to whoever asks again.
			}
			if j.take && len(batch) > 1 {
				j.end = undecided
				continue
			}
			if j.take {
				if j.left.grant, err = t.taken(ctx, tx, r, j.w.hooks); err == nil {
					err = j.w.leaveTombstone(ctx, tx)
				}
				return settled{}, err
			}
			b.Queue(t.st.DropGrant, r.id)
			freed = true
			for _, k := range r.keys {
				delete(s.holders, k)
			}
		}
		t.withdraw(&b, s, j)
	}
	if freed { // Of a line for a key that was held, not all was read.
		b.Queue(t.st.ReadLine, batch[0].w.request.keys).Query(func(rows pgx.Rows) error { s.line = nil; return s.scanLine(rows) })
	}
	if err := pgkit.Send(ctx, tx, &b); err != nil {
		return settled{}, err
	}
	return t.pass(ctx, tx, s)
}

// withdraw queues what takes a request out of the line.
func (t *tables) withdraw(b *pgx.Batch, s *scene, j *joining) {
	r := j.w.request
	b.Queue(t.st.Withdraw, r.id).QueryRow(func(row pgx.Row) error {
		if err := row.Scan(&j.left.cycle); !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return nil
	})
	if i := slices.IndexFunc(s.line, func(w request) bool { return w.id == r.id }); i >= 0 {
		b.Queue(t.st.DropPlaces, s.line[i].ticket, r.keys)
		s.line = slices.Delete(s.line, i, i+1)
	} else {
		t.dropQueue(b, r)
	}
	if j.w.unsure {
		b.Queue(t.st.Tombstone, r.id, r.owner, r.keys)
	}
}

// Querier is a connection, a pool, or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// graph reads who waits, oldest first, and the owners of the keys that somebody waits for.
func (t *tables) graph(ctx context.Context, q Querier) (holders map[string]string, waiters []lock.Waiter, err error) {
	rows, err := q.Query(ctx, t.st.ReadGraph)
	if err != nil {
		return nil, nil, err
	}
	holders = map[string]string{}
	waiters, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (x lock.Waiter, err error) {
		var id uuid.UUID
		var keys, owners []string
		if err := row.Scan(&id, &x.Ticket, &x.Owner, &x.Keys, &x.Since, &keys, &owners); err != nil {
			return x, err
		}
		x.ID, x.Since = id.String(), x.Since.UTC()
		for i, k := range keys {
			holders[k] = owners[i]
		}
		return x, nil
	})
	return holders, waiters, err
}

// arbitrate breaks all deadlocks that there are, under the arbiter's lock. It returns them with their victims and the keys that
// those wanted.
func (t *tables) arbitrate(ctx context.Context, tx pgx.Tx) (broken []lock.Deadlock, victims []uuid.UUID, keys []string, err error) {
	if _, err := tx.Exec(ctx, t.st.LockArbiter); err != nil {
		return nil, nil, nil, err
	}
	holders, waiters, err := t.graph(ctx, tx)
	if err != nil {
		return nil, nil, nil, err
	}
	broken = lock.NewGraph(holders, waiters).Deadlocks()
	for _, d := range broken {
		id, err := uuid.Parse(d.Victim)
		if err != nil {
			return nil, nil, nil, err
		}
		w := waiters[slices.IndexFunc(waiters, func(x lock.Waiter) bool { return x.ID == d.Victim })]
		var b pgx.Batch
		mustAffect(b.Queue(t.st.MarkVictim, id, d.Cycle), 1) // It may just have been granted, or have left.
		b.Queue(t.st.DropPlaces, w.Ticket, w.Keys)
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return nil, nil, nil, err
		}
		victims = append(victims, id)
		keys = append(keys, w.Keys...)
	}
	return broken, victims, keys, nil
}
