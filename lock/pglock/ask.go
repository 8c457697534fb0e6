package pglock

import (
	"context"
	"encoding/hex"
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
// written by a clock that was ahead end within their TTL from now on.
func (t *tables) look(ctx context.Context, tx pgx.Tx, keys []string) (*scene, error) {
	return t.lookFor(ctx, tx, &pgx.Batch{}, keys, nil, nil)
}

// lookFor is look for requests that ask for these keys. The batch may come with statements before those of look, and more adds some behind them. Of a
// line for one key, which is held, only the requests and their rivals are read: nobody else's turn can have come.
func (t *tables) lookFor(ctx context.Context, tx pgx.Tx, b *pgx.Batch, keys []string, asks []*joining, more func(*pgx.Batch)) (*scene, error) {
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
	ids, fingerprints := make([]string, len(asks)), make([]string, len(asks))
	for i, j := range asks {
		ids[i], fingerprints[i] = j.w.request.id.String(), hex.EncodeToString(j.w.request.fingerprint)
	}
	if len(asks) > 0 && len(keys) == 1 {
		b.Queue(t.st.ReadLineFor, keys[0], ids, fingerprints).Query(s.scanLine)
	} else {
		b.Queue(t.st.ReadLine, keys).Query(s.scanLine)
	}
	if more != nil {
		more(b)
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

// decideAll tries to grant requests for the same keys, in their order, and puts those in line that can't be and are patient. Requests before them
// whose turn has come are granted, too. Each is asked, under the locks, whether it was answered before. It returns
// [ErrAnswered] where nothing is to be committed; what has become of each request is in it.
func (t *tables) decideAll(ctx context.Context, tx pgx.Tx, batch []*joining) error {
	keys := batch[0].w.request.keys
	var b pgx.Batch
	b.Queue(t.st.InsertKeys, keys)
	answers := make([]func() (bool, error), len(batch))
	s, err := t.lookFor(ctx, tx, &b, keys, batch, func(b *pgx.Batch) {
		for i, j := range batch {
			if j.w.hooks.Known != nil {
				answers[i] = j.w.hooks.Known(ctx, tx, b)
			}
		}
	})
	if err != nil {
		return err
	}
	var pending []*joining
	for i, j := range batch {
		if fresh, err := t.known(ctx, tx, s, j, answers[i], len(batch) == 1); err != nil {
			return err
		} else if fresh {
			j.out.rival = slices.ContainsFunc(pending, func(p *joining) bool { return j.w.request.same(&p.w.request) })
			if !j.out.rival {
				pending = append(pending, j)
			}
		}
	}
	if len(pending) == 0 {
		if s.expired == 0 && batch[0].out.grant == nil { // It was not taken.
			return ErrAnswered
		}
		return nil
	}
	first := pending[0]
	if err := t.decideFirst(ctx, tx, s, first); err != nil {
		return err
	}
	var line pgx.Batch
	for _, j := range pending {
		switch {
		case j.out.grant != nil:
		case j != first && s.free(keys): // Who is before it has yet to be found out.
			j.end = undecided
		case j.w.patient():
			t.enqueue(&line, j, first.out.grant == nil)
		}
	}
	if first.out.grant == nil && line.Len() > 0 {
		return last(ctx, tx, &line)
	}
	err = pgkit.Send(ctx, tx, &line)
	if err == nil && first.out.grant != nil {
		err = first.w.hooks.granted(ctx, tx, *first.out.grant)
	}
	return err
}

// known finds what has become of a request before, and says that it is fresh where nothing has.
func (t *tables) known(ctx context.Context, tx pgx.Tx, s *scene, j *joining, answered func() (bool, error), alone bool) (fresh bool, err error) {
	r := j.w.request
	j.out, j.err, j.end = asked{}, nil, decided
	if answered != nil && j.answered(answered) {
		return false, nil
	}
	if _, mine := s.grants[r.id]; mine { // This transaction had committed, and is run again; or the lock was handed over while its waiter looked.
		if !alone {
			j.end = undecided
			return false, nil
		}
		j.out.grant, err = t.taken(ctx, tx, r, j.w.hooks)
		if err == nil && j.out.grant == nil {
			err = errMoved // The hand-over was over a moment after it was read.
		}
		return false, err
	}
	if r.fingerprint != nil && s.rivals(r) {
		j.out.rival = true
		return false, nil
	}
	if i := slices.IndexFunc(s.line, func(w request) bool { return w.id == r.id }); i >= 0 {
		j.out.ticket = s.line[i].ticket
		return false, nil
	}
	return true, nil
}

// answered reports whether a request was answered before, or can't be decided.
func (j *joining) answered(before func() (bool, error)) bool {
	known, err := before()
	if known && err == nil {
		err = ErrAnswered
	}
	j.err = err
	return err != nil
}

// decideFirst grants those whose turn has come, who may include a request that is not in line.
func (t *tables) decideFirst(ctx context.Context, tx pgx.Tx, s *scene, j *joining) error {
	r := j.w.request
	r.ticket = math.MaxInt64
	chosen, err := t.decide(ctx, tx, s, append(s.line, r))
	if err != nil {
		return err
	}
	for _, c := range chosen {
		if c.id != r.id {
			if _, err := t.give(ctx, tx, s, c, handOver(c), false); err != nil {
				return err
			}
			j.out.woken = append(j.out.woken, c.id)
			continue
		}
		r.fingerprint = nil // What it stands for is stored along with it.
		g, err := t.give(ctx, tx, s, r, r.lease(), false)
		if err != nil {
			return err
		}
		j.out.grant = &g
	}
	return nil
}

// same reports whether two requests stand for the same.
func (r *request) same(other *request) bool {
	return r.fingerprint != nil && slices.Equal(r.fingerprint, other.fingerprint)
}

// rivals reports whether the same request is under way under another id.
func (s *scene) rivals(r request) bool {
	for id, fingerprint := range s.grants {
		if id != r.id && slices.Equal(fingerprint, r.fingerprint) {
			return true
		}
	}
	return slices.ContainsFunc(s.line, func(w request) bool { return w.id != r.id && r.same(&w) })
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

// enqueue queues what puts a request in line. Nothing else of the transaction has to be on disk where the places alone need not.
func (t *tables) enqueue(b *pgx.Batch, j *joining, placesAlone bool) {
	r := j.w.request
	if r.fingerprint != nil {
		b.Queue(t.st.DropDead, r.fingerprint)
	}
	if j.again { // It was not seen there, so its process was silent for too long, or it was made a deadlock's victim. It begins anew.
		b.Queue(t.st.DropOwn, r.id)
		t.dropQueue(b, r)
	}
	// A place in line that a crash takes away is asked for again, unless it stands for what others are asked, too.
	later := placesAlone && r.fingerprint == nil
	b.Queue(t.st.InsertWaiter, r.id, r.owner, r.keys, r.ttl, r.hold, r.fingerprint, aliveFor.Microseconds(), later, r.process).QueryRow(func(row pgx.Row) error {
		return row.Scan(&j.out.ticket, nil)
	})
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
