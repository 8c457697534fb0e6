package pglock

import (
	"context"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/lock"
)

const (
	// maxTogether bounds the requests of one transaction.
	maxTogether = 256
	// leadFor is how long a request whose context has ended still goes on asking for others.
	leadFor = time.Second
)

// Outcomes of the functions in functions.sql.
const (
	outcomeGranted   = "granted"
	outcomeHeld      = "held"
	outcomeReleased  = "released"
	outcomeExpired   = "expired"
	outcomeLost      = "lost"
	outcomeUndecided = "undecided"
)

// joining is a request of this process that is made together with others for its key: one that comes while another is on
// its way waits until that is back, and goes with all that have come by then. So the line of a key that many want grows by
// one transaction a round trip, and those of one process stand in it one behind the other, which makes them a [cohort].
type joining struct {
	w    *waiter
	turn chan []*joining // gets those to be asked for, by this one, itself among them; none: another has asked for it
	out  asked
	ok   bool
}

// simple reports whether a request can be decided by a function of the database.
func (w *waiter) simple() bool {
	return len(w.request.keys) == 1 && w.request.fingerprint == nil && w.hooks.Known == nil && w.hooks.Granted == nil
}

// askTogether makes a simple request. It reports whether that was decided; if not, and after any failure, a transaction is
// to decide it.
func (b *Backend) askTogether(ctx context.Context, w *waiter) (asked, bool) {
	key := w.request.keys[0]
	j := &joining{w: w, turn: make(chan []*joining, 1)}
	batch := []*joining{j}
	b.mu.Lock()
	others, busy := b.asking[key]
	if busy {
		b.asking[key] = append(others, j)
	} else {
		b.asking[key] = nil
	}
	run := b.runs[key]
	b.mu.Unlock()
	if busy {
		select {
		case batch = <-j.turn:
		case <-ctx.Done():
			if b.stayBehind(key, j) {
				return asked{}, false
			}
			batch = <-j.turn // It is on its way, for a time that is bounded.
		}
	}
	if batch == nil {
		return j.out, j.ok
	}
	if run != nil && !busy && w.patient() {
		run.wait(ctx)
		b.mu.Lock()
		batch = append(batch, b.others(key, maxTogether-1)...)
		b.mu.Unlock()
	}
	b.askAll(ctx, key, batch)
	b.nextTurn(key)
	for _, other := range batch {
		if other != j {
			other.turn <- nil
		}
	}
	return j.out, j.ok
}

// nextTurn lets those ask who have come meanwhile.
func (b *Backend) nextTurn(key string) {
	b.mu.Lock()
	next := b.others(key, maxTogether)
	if len(next) == 0 {
		delete(b.asking, key)
	}
	b.mu.Unlock()
	if len(next) > 0 {
		next[0].turn <- next
	}
}

// others takes up to n of those who wait to ask. The caller has the mutex.
func (b *Backend) others(key string, n int) []*joining {
	all := b.asking[key]
	n = min(n, len(all))
	b.asking[key] = all[n:]
	return all[:n:n]
}

// stayBehind takes a request back that is not on its way yet.
func (b *Backend) stayBehind(key string, j *joining) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.asking[key], j)
	if i < 0 {
		return false
	}
	b.asking[key] = slices.Delete(slices.Clone(b.asking[key]), i, i+1)
	return true
}

// askAll asks for all of the batch. The end of the first one's context ends it, but not at once where others are affected.
func (b *Backend) askAll(ctx context.Context, key string, batch []*joining) {
	first := ctx
	if len(batch) > 1 {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	if len(batch) > 1 {
		stop := context.AfterFunc(first, func() { time.AfterFunc(leadFor, cancel) })
		defer stop()
	}
	var (
		ids, owners = make([]string, len(batch)), make([]string, len(batch))
		ttls, holds = make([]int64, len(batch)), make([]int64, len(batch))
		patient     = make([]bool, len(batch))

		outcome string
		token   *int64
		expires *time.Time
		tickets []int64
	)
	for i, j := range batch {
		r := j.w.request
		ids[i], owners[i], ttls[i], holds[i], patient[i] = r.id.String(), r.owner, r.ttl, r.hold, j.w.patient()
	}
	start := time.Now()
	err := b.pool.QueryRow(ctx, b.st.ask, key, ids, owners, ttls, holds, patient, b.process, aliveFor.Microseconds()).
		Scan(&outcome, &token, &expires, &tickets)
	if err != nil || outcome == outcomeUndecided || len(tickets) != len(batch) {
		return
	}
	for i, j := range batch {
		j.out, j.ok = asked{ticket: tickets[i]}, true
	}
	if outcome == outcomeGranted {
		batch[0].out.grant = batch[0].w.grant(*token, *expires, start)
	}
}

// patient reports whether the request is to get in line.
func (w *waiter) patient() bool { return w.wait != 0 && (w.wait < 0 || time.Now().Before(w.deadline)) }

// grant is the grant of a request for one key.
func (w *waiter) grant(token int64, expires, start time.Time) *lock.Grant {
	r := w.request
	return &lock.Grant{
		ID: r.id.String(), Owner: r.owner, Tokens: map[string]int64{r.keys[0]: token}, TTL: time.Duration(r.ttl) * time.Microsecond,
		ExpiresAt: expires.UTC(), Start: start,
	}
}
