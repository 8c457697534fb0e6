package pglock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/lock"
)

// Times of cohorts.
const (
	// passFor is how long a cohort passes its lock on, from the time at which it was granted. It bounds what the tables do
	// not tell, and what is trusted of a lease without asking the database.
	passFor = 20 * time.Millisecond
	// shortHold is for how long a lock was held at most whose release makes a cohort: those who hold it for longer are
	// likely to be followed by others who do, and gain nothing.
	shortHold = 10 * time.Millisecond
	// settleAfter is when it is written down who of a cohort has the lock, if it is still held.
	settleAfter = 50 * time.Millisecond
	// holdBack bounds how long a request waits for the end of a cohort, before it gets in line.
	holdBack = 2 * time.Millisecond
	// maxCohort bounds the requests of one.
	maxCohort = 64
)

// cohort is a run of requests of this process that stand in a key's line one behind the other. The database has granted
// them the key together: the tables have the first one's lease, and tokens for all. They pass the lock on among
// themselves, in the order of the line, without the database. The last one's release writes to the tables what became of all.
// Their lease is the first one's, and nobody is passed the lock later than [passFor] after its start. (Dice, Marathe, Shavit:
// Lock Cohorting, PPoPP 2012; there the cohort shares a processor's cache, here a round trip and a commit.)
//
// Until that release the others' rows stay in line, so that they keep their places if this process dies. In the tables the
// holder has a name of the cohort's own, which asks for nothing. So the graph shows no false cycle; it shows a true one once
// the tables name the holder, [settleAfter] the start.
//
// The backend's mutex guards it.
type cohort struct {
	key        string
	base       successor   // whose row has the lease
	start      time.Time   // from before the lease began
	expires    time.Time   // by the database's clock
	successors []successor // who are to have it, in order
	served     []successor // who have had it after the base
	holder     successor   // who has it: the last of the served ones, or the base
	since      time.Time   // when the holder got it
	until      time.Time   // when passing on ends
	settler    *time.Timer
	over       chan struct{} // closed at its end, when its last release is done
	writing    chan struct{} // has a value while it is written to the tables
}

type successor struct {
	id     uuid.UUID
	ticket int64
	token  int64
}

// servedRows are the rows in line of those that have had the lock.
func (c *cohort) servedRows() (ids []string, tickets []int64) {
	for _, h := range c.served {
		ids, tickets = append(ids, h.id.String()), append(tickets, h.ticket)
	}
	return ids, tickets
}

// pass passes the lock of a request on to the next of its cohort, if it has one and it is time. It returns [lock.ErrLost]
// when the request has passed it on before.
func (b *Backend) pass(id uuid.UUID) (c *cohort, passed bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c = b.cohorts[id]
	if c == nil {
		return nil, false, nil
	}
	if c.holder.id != id {
		return nil, false, lock.ErrLost
	}
	for now := time.Now(); len(c.successors) > 0 && now.Before(c.until) && !b.closed; {
		next := c.successors[0]
		c.successors = c.successors[1:]
		w := b.waiters[next.id]
		if w == nil || !w.deliver(w.request.grant(next.token, c.expires, c.start)) {
			continue // It has left, and so have its rows, or will.
		}
		if id != c.base.id { // That one's row is the cohort's, so that nobody may take it for the base's own.
			delete(b.cohorts, id)
		}
		b.cohorts[next.id] = c
		c.holder, c.since, c.served = next, now, append(c.served, next)
		if b.observer != nil {
			b.observer.HandedOver()
		}
		return c, true, nil
	}
	return c, false, nil
}

// deliver gives a waiting request its grant. The caller has the backend's mutex, and has found the request among those
// that wait.
func (w *waiter) deliver(g *lock.Grant) bool {
	select {
	case w.granted <- g:
		return true
	default:
		return false
	}
}

// freeze makes a request that has the lock of a cohort keep it. It reports false if the tables have it already.
func (b *Backend) freeze(c *cohort, holder uuid.UUID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cohorts[holder] != c {
		return false
	}
	c.until = time.Time{}
	return true
}

// finish ends a cohort that was frozen, and tells those who hold back for it.
func (b *Backend) finish(c *cohort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.cohorts, c.holder.id)
	delete(b.cohorts, c.base.id)
	if b.runs[c.key] == c {
		delete(b.runs, c.key)
	}
	c.settler.Stop()
	close(c.over)
}

// handOn gives the first of the successors the lock. If that one is no longer there it has left, and its leaving ends the lock.
func (b *Backend) handOn(key string, successors []successor, expires, start time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := successors[0]
	w := b.waiters[first.id]
	if w == nil {
		return
	}
	if len(successors) > 1 {
		c := &cohort{
			key: key, base: first, start: start, expires: expires, successors: successors[1:], holder: first, since: time.Now(),
			until: start.Add(min(passFor, time.Duration(w.request.ttl)*time.Microsecond/4)), writing: make(chan struct{}, 1), over: make(chan struct{}),
		}
		b.runs[key] = c
		if w.looking { // What it finds, it may write its name into.
			c.until = time.Time{}
		}
		c.settler = time.AfterFunc(settleAfter, func() { b.settleLater(c) })
		b.cohorts[first.id] = c
	}
	w.deliver(w.request.grant(first.token, expires, start))
}

// settleLater is what the cohort's timer does.
func (b *Backend) settleLater(c *cohort) {
	b.mu.Lock()
	if b.closed || b.cohorts[c.holder.id] != c {
		b.mu.Unlock()
		return
	}
	b.tasks.Add(1)
	b.mu.Unlock()
	defer b.tasks.Done()
	ctx, cancel := context.WithTimeout(b.base, cleanupTimeout)
	defer cancel()
	if err := b.settleCohort(ctx, b.pool, c); err != nil && !errors.Is(err, lock.ErrLost) {
		b.logger.DebugContext(ctx, "telling who has a lock failed, and is tried again", "key", c.key, "error", err)
		c.settler.Reset(settleAfter)
	}
}

// settleCohort ends a cohort by writing to the tables who has the lock, who then holds it like any other. It returns
// [lock.ErrLost] when it was no longer there.
func (b *Backend) settleCohort(ctx context.Context, pool *pgxpool.Pool, c *cohort) error {
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	b.mu.Lock()
	holder := c.holder
	b.mu.Unlock()
	if !b.freeze(c, holder.id) {
		return nil
	}
	served, tickets := c.servedRows()
	id := holder.id.String() // Which is its owner's name, too.
	var there bool
	if err := pool.QueryRow(ctx, b.st.Settle, c.key, c.base.id.String(), served, tickets, id, id, holder.token, time.Since(c.since).Microseconds()).
		Scan(&there); err != nil {
		return err
	}
	b.finish(c)
	if !there {
		return lock.ErrLost
	}
	return nil
}

// flush writes to the tables that a request has the lock of its cohort, where they don't say so yet. It returns [lock.ErrLost] when the request has passed that on.
func (b *Backend) flush(ctx context.Context, pool *pgxpool.Pool, id uuid.UUID) error {
	b.mu.Lock()
	c := b.cohorts[id]
	passed := c != nil && c.holder.id != id
	b.mu.Unlock()
	switch {
	case c == nil:
		return nil
	case passed:
		return lock.ErrLost
	}
	return b.settleCohort(ctx, pool, c)
}

// wait waits for the end of a cohort, for a moment: its members, whose turns are short, may ask again, and so they do
// together. Each that asked alone would be handed the lock alone ever after, since the order of the line stays.
func (c *cohort) wait(ctx context.Context) {
	select {
	case <-c.over:
	case <-time.After(holdBack):
	case <-ctx.Done():
	}
}

// settleAll writes all cohorts to the tables, at the end.
func (b *Backend) settleAll() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.base), notifyTimeout)
	defer cancel()
	b.mu.Lock()
	all := slices.Collect(maps.Values(b.cohorts)) // Some twice, which does no harm.
	b.mu.Unlock()
	for _, c := range all {
		if err := b.settleCohort(ctx, b.pool, c); err != nil {
			b.logger.DebugContext(ctx, "telling who has a lock failed", "key", c.key, "error", err)
		}
	}
}
