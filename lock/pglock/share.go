package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/pgkit"
	"github.com/fairlead-dev/fairlead/lock"
)

const (
	// maxShared bounds the requests and releases of one round trip, and so for how long their keys are locked.
	maxShared = 128
	// SharePatience bounds for how long one waits for the round trips before its own, whose connections may be silent.
	SharePatience = 100 * time.Millisecond
)

// errSent is of a round trip that may have been carried out.
var errSent = errors.New("the outcome of what shared a round trip is unknown")

// errand is a simple request, or a release of a lock of one key. The errands of one process for different keys share round trips and
// commits: while one is on its way, the next ones gather. lock_share carries out those that nobody else has to do with; the
// others find out by themselves.
type errand struct {
	key  string
	asks *waiter // nil: it releases
	ends string  // the id of the lock
}

// errandDone is what has become of an errand. The zero value says that nothing was done.
type errandDone struct {
	done   bool
	grant  *lock.Grant // of a request
	inTime bool        // the released lock's lease was not over
}

func (b *Backend) newErrands() *groupcommit.Group[struct{}, errand, errandDone] {
	return groupcommit.New(b.runErrands, groupcommit.Options{
		MaxBatch: maxShared, Overlap: 1, MinOverlap: 8, Patience: SharePatience, CloseGrace: cleanupTimeout, Divisible: func(error) bool { return false },
	})
}

// endErrands waits until those under way are done.
func (b *Backend) endErrands() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.base), cleanupTimeout)
	defer cancel()
	_ = b.errands.Close(ctx) // Whoever is answered before is told that the outcome is unknown.
}

// share carries out an errand together with others, if there are others.
func (b *Backend) share(ctx context.Context, e errand) (errandDone, decision) {
	if b.busy.Load() < 2 || b.unshared.Load() {
		return errandDone{}, undecided
	}
	out, err := b.errands.Do(ctx, struct{}{}, e)
	switch {
	case err == nil && out.done:
		return out, decided
	case errors.Is(err, groupcommit.ErrInFlight), errors.Is(err, errSent) && !pgkit.Undone(err):
		return errandDone{}, unknown
	}
	return errandDone{}, undecided
}

// runErrands is the round trip.
func (b *Backend) runErrands(ctx context.Context, _ struct{}, batch []errand) ([]errandDone, error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	c := sharedCall{places: make(map[string]int, len(batch)), keys: make(map[string]bool, len(batch))}
	for i, e := range batch {
		if e.asks == nil {
			c.end(i, &e.key, e.ends)
		} else {
			c.ask(i, &e.asks.request)
		}
	}
	start := time.Now()
	if err := b.callShared(ctx, b.pool, &c); err != nil {
		return nil, fmt.Errorf("%w: %w", errSent, err)
	}
	out := make([]errandDone, len(batch))
	for i, id := range c.ended {
		out[c.places[id]] = errandDone{done: true, inTime: c.inTime[i]}
	}
	for i, id := range c.granted {
		at := c.places[id]
		out[at] = errandDone{done: true, grant: batch[at].asks.request.grant(c.tokens[i], c.leases[i], start)}
	}
	return out, nil
}

// Shares reports whether [Backend.ShareIn] may do anything: not on a database without the function for it, once that is known.
func (b *Backend) Shares() bool { return !b.unshared.Load() }

// ShareIn grants requests and ends locks within the caller's transaction, which is a READ COMMITTED one, as far as nobody else has to do
// with them: a request is for one key that is free and that nobody waits for, a lock has one key that nobody waits for, and no other transaction
// has locked their rows. It waits for nobody. Grants and ended have a nil for each that it left alone, which [Backend.AcquireWith] or
// [Backend.ReleaseIn] decides. As with the latter, the transaction must commit even if a lock was no longer held.
func (b *Backend) ShareIn(ctx context.Context, tx pgx.Tx, asks []lock.Request, ends []uuid.UUID) (grants []*lock.Grant, ended []*Released, err error) {
	grants, ended = make([]*lock.Grant, len(asks)), make([]*Released, len(ends))
	if !b.Shares() {
		return grants, ended, nil
	}
	c := sharedCall{places: make(map[string]int, len(asks)+len(ends)), keys: make(map[string]bool, len(asks))}
	requests := make([]request, len(asks))
	for i, a := range asks {
		id, err := uuid.Parse(a.ID)
		if err != nil || len(a.Keys) != 1 {
			continue
		}
		requests[i] = request{id: id, keys: a.Keys, owner: a.Owner, ttl: a.TTL.Microseconds(), hold: a.MaxHold.Microseconds()}
		c.ask(i, &requests[i])
	}
	for i, id := range ends {
		c.end(i, nil, id.String())
	}
	start := time.Now()
	if err := b.callShared(ctx, tx, &c); err != nil {
		return nil, nil, err
	}
	for i, id := range c.ended {
		ended[c.places[id]] = &Released{Held: c.inTime[i], For: time.Duration(c.ages[i]) * time.Microsecond}
		if !c.inTime[i] && b.observer != nil {
			b.observer.Expired(1)
		}
	}
	for i, id := range c.granted {
		grants[c.places[id]] = requests[c.places[id]].grant(c.tokens[i], c.leases[i], start)
	}
	return grants, ended, nil
}

// sharedCall is a call of lock_share.
type sharedCall struct {
	places map[string]int  // of requests, and of locks to be ended, by their ids
	keys   map[string]bool // that are asked for

	askKeys, askIDs, owners, endIDs []string
	endKeys                         []*string // nil: not known
	ttls, holds                     []int64

	ended, granted []string
	inTime         []bool
	ages, tokens   []int64
	leases         []time.Time
}

// ask adds a request, unless there is one for its key. What is not added is left alone.
func (c *sharedCall) ask(place int, r *request) {
	_, twice := c.places[r.id.String()]
	if key := r.keys[0]; !twice && !c.keys[key] {
		c.keys[key] = true
		c.askKeys, c.askIDs, c.owners = append(c.askKeys, key), append(c.askIDs, r.id.String()), append(c.owners, r.owner)
		c.ttls, c.holds = append(c.ttls, r.ttl), append(c.holds, r.hold)
		c.places[r.id.String()] = place
	}
}

// end adds a lock to be ended.
func (c *sharedCall) end(place int, key *string, id string) {
	if _, twice := c.places[id]; !twice {
		c.endKeys, c.endIDs = append(c.endKeys, key), append(c.endIDs, id)
		c.places[id] = place
	}
}

func (b *Backend) callShared(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, c *sharedCall,
) error {
	err := db.QueryRow(ctx, b.st.Share, c.askKeys, c.askIDs, c.owners, c.ttls, c.holds, c.endKeys, c.endIDs).
		Scan(&c.ended, &c.inTime, &c.ages, &c.granted, &c.tokens, &c.leases)
	if pgkit.Code(err) == undefinedFunction && !b.unshared.Swap(true) {
		b.logger.WarnContext(ctx, "locks of different keys share no commits: the engine has no PL/pgSQL, or the tables are of an older version, so install the schema again", "error", err)
	}
	return err
}
