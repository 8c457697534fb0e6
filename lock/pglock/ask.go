package pglock

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/lock"
)

// errMoved is returned when a row that is not locked changed between being read and being written: the transaction is
// rolled back and run again.
var errMoved = errors.New("another transaction was faster")

// request is a request as the tables have it.
type request struct {
	id          uuid.UUID
	keys        []string // sorted, unique
	owner       string
	newOwner    bool   // it holds nothing
	ttl, hold   int64  // microseconds
	fingerprint []byte // names the request to other processes that are asked the same; nil: nobody is
	ticket      int64
	process     string // where it waits, if it may be told of its grant through memory; "": it may not
	again       bool   // it may stand in line already
}

// lease is how long a grant of the request lasts at first, in microseconds.
func (r *request) lease() int64 {
	if r.hold > 0 {
		return min(r.ttl, r.hold)
	}
	return r.ttl
}

// scene is what a transaction sees of some keys once their rows are locked.
type scene struct {
	tokens   map[string]int64     // last token of each locked key
	chapters map[string]int64     // of the locked keys' rows
	holders  map[string]string    // key to owner
	grants   map[uuid.UUID][]byte // who holds any of the keys, and the fingerprints of those that are not taken yet
	line     []request            // who waits for any of the keys, by ticket
	expired  int64
	later    bool // a hand-over need not be on disk when it commits
}

func newScene() *scene {
	return &scene{tokens: map[string]int64{}, chapters: map[string]int64{}, holders: map[string]string{}, grants: map[uuid.UUID][]byte{}}
}

// look locks the keys' rows and reads who holds them and who waits. Leases that have expired are ended, and those that were
// written by a clock that was ahead end within their TTL from now on. The batch may
// come with statements before those of look. Where it is for a request that asks for one key, which is held, then only
// that request and its rivals are read of the line: nobody else's turn can have come.
func (t *tables) look(ctx context.Context, tx pgx.Tx, b *pgx.Batch, keys []string, asks *request) (*scene, error) {
	s := newScene()
	b.Queue(t.st.LockKeys, keys).Query(s.scanKeys)
	b.Queue(t.st.DropExpired, keys).Exec(func(tag tag) error { s.expired = tag.RowsAffected(); return nil })
	var ahead []uuid.UUID
	b.Queue(t.st.ReadHolders, keys).Query(func(rows pgx.Rows) error {
		var key, owner string
		var id uuid.UUID
		var fingerprint []byte
		var late bool
		_, err := pgx.ForEachRow(rows, []any{&key, &id, &owner, &fingerprint, &late}, func() error {
			s.holders[key], s.grants[id] = owner, slices.Clone(fingerprint)
			if late {
				ahead = append(ahead, id)
			}
			return nil
		})
		return err
	})
	if asks != nil && len(keys) == 1 {
		b.Queue(t.st.ReadLineFor, keys[0], asks.id, asks.fingerprint).Query(s.scanLine)
	} else {
		b.Queue(t.st.ReadLine, keys).Query(s.scanLine)
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, err
	}
	if s.expired > 0 && t.observer != nil {
		t.observer.Expired(int(s.expired))
	}
	return s, t.endAhead(ctx, tx, ahead)
}

func (s *scene) scanKeys(rows pgx.Rows) error {
	var key string
	var token, chapter int64
	_, err := pgx.ForEachRow(rows, []any{&key, &token, &chapter}, func() error { s.tokens[key], s.chapters[key] = token, chapter; return nil })
	return err
}

func (s *scene) scanLine(rows pgx.Rows) error {
	line, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r request, err error) {
		err = row.Scan(&r.id, &r.ticket, &r.owner, &r.keys, &r.ttl, &r.hold, &r.fingerprint)
		return r, err
	})
	s.line = append(s.line, line...)
	return err
}

// unknownOwner stands for whoever may hold a key that the transaction has not locked.
const unknownOwner = ""

// decide tells which of those in line, by the order of asking, are to be granted now.
func (t *tables) decide(ctx context.Context, tx pgx.Tx, s *scene, line []request) ([]request, error) {
	waiters := make([]lock.Waiter, len(line))
	for i := range line {
		waiters[i] = line[i].waiter()
	}
	chosen := s.grantable(lock.NewGraph(s.holders, waiters), line)
	// A request whose keys are free, and which only waits behind others, may overtake those that wait for its own owner.
	// Whether they do is not always to be seen from these keys alone.
	var owners []string
	taken := map[string]bool{}
	for _, r := range chosen {
		for _, k := range r.keys {
			taken[k] = true
		}
	}
	for _, r := range line {
		if s.free(r.keys) && !slices.ContainsFunc(r.keys, func(k string) bool { return taken[k] }) {
			owners = append(owners, r.owner)
		}
	}
	if len(owners) == 0 {
		return chosen, nil
	}
	var hold bool
	if err := tx.QueryRow(ctx, t.st.OwnersHold, owners).Scan(&hold); err != nil || !hold {
		return chosen, err
	}
	holders, all, err := t.graph(ctx, tx)
	if err != nil {
		return nil, err
	}
	for _, r := range line {
		if r.ticket == math.MaxInt64 {
			all = append(all, r.waiter())
		}
	}
	for k, owner := range s.holders {
		if owner != unknownOwner {
			holders[k] = owner // What this transaction has just given is not in the database yet.
		}
	}
	return s.grantable(lock.NewGraph(holders, all), line), nil
}

// free reports whether the transaction has locked all of the keys and nobody holds any.
func (s *scene) free(keys []string) bool {
	return !slices.ContainsFunc(keys, func(k string) bool {
		_, locked := s.tokens[k]
		_, held := s.holders[k]
		return !locked || held
	})
}

func (s *scene) grantable(g *lock.Graph, line []request) []request {
	var out []request
	for _, w := range g.Grantable() {
		i := slices.IndexFunc(line, func(r request) bool { return r.id.String() == w.ID })
		if i >= 0 && s.free(line[i].keys) {
			out = append(out, line[i])
		}
	}
	return out
}

func (r *request) waiter() lock.Waiter {
	return lock.Waiter{ID: r.id.String(), Owner: r.owner, Keys: r.keys, Ticket: r.ticket}
}

// asked is the outcome of one transaction of a request.
type asked struct {
	grant  *lock.Grant // nil: not granted
	rival  bool        // another process is executing the same request
	woken  []uuid.UUID // others that were granted
	ticket int64       // in line, if it was to wait
}

// decideOn tries to grant a request, and puts it in line where it can't be and wait says so. Requests before it whose turn has
// come are granted, too. known is asked, under the locks, whether the request was answered before.
func (t *tables) decideOn(ctx context.Context, tx pgx.Tx, r request, wait bool, h Hooks) (asked, error) {
	var a asked
	var b pgx.Batch
	b.Queue(t.st.InsertKeys, r.keys)
	s, err := t.look(ctx, tx, &b, r.keys, &r)
	if err != nil {
		return a, err
	}
	if h.Known != nil {
		known, err := h.Known(ctx, tx)
		if err != nil {
			return a, err
		}
		if known {
			return a, ErrAnswered
		}
	}
	if _, mine := s.grants[r.id]; mine { // This transaction had committed, and is run again; or the lock was handed over while its waiter looked.
		a.grant, err = t.taken(ctx, tx, r, h)
		if err == nil && a.grant == nil {
			err = errMoved // The hand-over was over a moment after it was read.
		}
		return a, err
	}
	if r.fingerprint != nil && s.rivals(r) {
		a.rival = true
		return a, nil
	}
	if i := slices.IndexFunc(s.line, func(w request) bool { return w.id == r.id }); i >= 0 {
		a.ticket = s.line[i].ticket
		return a, nil
	}
	r.ticket = math.MaxInt64
	chosen, err := t.decide(ctx, tx, s, append(s.line, r))
	if err != nil {
		return a, err
	}
	for _, c := range chosen {
		if c.id != r.id {
			if _, err := t.give(ctx, tx, s, c, handOver(c), false); err != nil {
				return a, err
			}
			a.woken = append(a.woken, c.id)
			continue
		}
		r.fingerprint = nil // What it stands for is stored along with it.
		g, err := t.give(ctx, tx, s, r, r.lease(), false)
		if err != nil {
			return a, err
		}
		a.grant = &g
	}
	if a.grant != nil {
		return a, h.granted(ctx, tx, *a.grant)
	}
	if wait {
		a.ticket, err = t.enqueue(ctx, tx, r)
	}
	return a, err
}

// rivals reports whether the same request is under way under another id.
func (s *scene) rivals(r request) bool {
	for id, fingerprint := range s.grants {
		if id != r.id && slices.Equal(fingerprint, r.fingerprint) {
			return true
		}
	}
	return slices.ContainsFunc(s.line, func(w request) bool { return w.id != r.id && slices.Equal(w.fingerprint, r.fingerprint) })
}

// handOver is the lease of a grant that its waiter has yet to take, in microseconds.
func handOver(r request) int64 { return min(HandOver.Microseconds(), r.lease()) }

// give grants a request whose keys are locked and free. With finish, the transaction is committed by it, where it is ours to
// commit.
func (t *tables) give(ctx context.Context, tx pgx.Tx, s *scene, r request, lease int64, finish bool) (lock.Grant, error) {
	g := lock.Grant{ID: r.id.String(), Owner: r.owner, TTL: time.Duration(r.ttl) * time.Microsecond, Tokens: make(map[string]int64, len(r.keys))}
	tokens := make([]int64, len(r.keys))
	for i, k := range r.keys {
		s.tokens[k]++
		s.holders[k] = r.owner
		tokens[i], g.Tokens[k] = s.tokens[k], s.tokens[k]
	}
	var b pgx.Batch
	later := s.later && r.ticket != math.MaxInt64
	if r.ticket != math.MaxInt64 {
		if finish {
			b.Queue(t.st.MustDropWaiter, r.id)
		} else {
			mustAffect(b.Queue(t.st.DropWaiter, r.id), 1)
		}
		b.Queue(t.st.DropPlaces, r.ticket, r.keys)
	}
	b.Queue(t.st.InsertGrant, r.id, r.owner, r.keys, tokens, r.ttl, r.hold, r.fingerprint, lease, later).QueryRow(func(row pgx.Row) error {
		return row.Scan(&g.ExpiresAt, nil)
	})
	for _, k := range r.keys {
		mustAffect(b.Queue(t.st.TakeKey, r.id, k, s.chapters[k]), 1) // They are locked, and never deleted.
	}
	send := pgkit.Send
	if finish {
		send = last
	}
	err := send(ctx, tx, &b)
	g.ExpiresAt = g.ExpiresAt.UTC()
	return g, err
}

func (t *tables) enqueue(ctx context.Context, tx pgx.Tx, r request) (ticket int64, err error) {
	var b pgx.Batch
	if r.fingerprint != nil {
		b.Queue(t.st.DropDead, r.fingerprint)
	}
	if r.again { // It was not seen there, so its process was silent for too long, or it was made a deadlock's victim. It begins anew.
		b.Queue(t.st.DropOwn, r.id)
		t.dropQueue(&b, r)
	}
	// A place in line that a crash takes away is asked for again, unless it stands for what others are asked, too.
	later := r.fingerprint == nil
	b.Queue(t.st.InsertWaiter, r.id, r.owner, r.keys, r.ttl, r.hold, r.fingerprint, aliveFor.Microseconds(), later, r.process).QueryRow(func(row pgx.Row) error {
		return row.Scan(&ticket, nil)
	})
	return ticket, last(ctx, tx, &b)
}

// dropQueue takes a request out of the lines in which it stands, whatever its ticket is.
func (t *tables) dropQueue(b *pgx.Batch, r request) {
	for _, k := range r.keys {
		b.Queue(t.st.DropQueue, r.id, k)
	}
}

// mustAffect makes a queued statement fail with errMoved unless it affects n rows.
func mustAffect(q *pgx.QueuedQuery, n int) {
	q.Exec(func(tag tag) error {
		if tag.RowsAffected() != int64(n) {
			return errMoved
		}
		return nil
	})
}
