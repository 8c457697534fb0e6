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
	// decideFor is how long a request whose context has ended waits for what becomes of it. The database decides and
	// commits in one step, so that to go earlier would be to leave behind what may come about a moment later.
	decideFor = time.Second
)

// Outcomes of the functions in functions.sql.
const (
	outcomeGranted   = "granted"
	outcomeReleased  = "released"
	outcomeExpired   = "expired"
	outcomeUndecided = "undecided"
)

// joining is a request of this process that is made together with others for its key: one that comes while another is on
// its way waits until that is back, and goes with all that have come by then. So the line of a key that many want grows by
// one transaction a round trip, and those of one process stand in it one behind the other, which makes them a [cohort].
type joining struct {
	w    *waiter
	turn chan []*joining // gets those to be asked for, by this one, itself among them; none: another has asked for it
	lead bool            // it is to ask; the backend's mutex guards that
	out  asked
	end  decision
}

// decision is how asking has ended.
type decision int

const (
	decided   decision = iota
	undecided          // nothing was done
	unknown            // it may be done, or be done yet
)

// simple reports whether a request can be decided by a function of the database.
func (w *waiter) simple() bool {
	return len(w.request.keys) == 1 && w.request.fingerprint == nil && w.hooks.Known == nil && w.hooks.Granted == nil
}

// askTogether makes a simple request. If that was not decided, a transaction is to decide it.
func (b *Backend) askTogether(ctx context.Context, w *waiter) (asked, decision) {
	if ctx.Err() != nil {
		return asked{}, undecided
	}
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
		var end decision
		if batch, end = b.awaitTurn(ctx, key, j); end != decided {
			return asked{}, end
		}
	}
	if batch == nil {
		return j.out, j.end
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
	return j.out, j.end
}

// awaitTurn waits until another request has asked for this one, or lets it ask: then it returns with whom.
func (b *Backend) awaitTurn(ctx context.Context, key string, j *joining) ([]*joining, decision) {
	select {
	case batch := <-j.turn:
		return batch, decided
	case <-ctx.Done():
	}
	if b.stayBehind(key, j) {
		return nil, undecided
	}
	select {
	case batch := <-j.turn:
		return batch, decided
	case <-time.After(decideFor):
	}
	b.mu.Lock()
	lead := j.lead
	b.mu.Unlock()
	if lead {
		return <-j.turn, decided // Others count on it.
	}
	return nil, unknown
}

// nextTurn lets those ask who have come meanwhile.
func (b *Backend) nextTurn(key string) {
	b.mu.Lock()
	next := b.others(key, maxTogether)
	if len(next) == 0 {
		delete(b.asking, key)
	} else {
		next[0].lead = true
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

// askAll asks for all of the batch. The end of the first one's context does not end it at once: see decideFor.
func (b *Backend) askAll(ctx context.Context, key string, batch []*joining) {
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), runTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(decideFor, cancel) })
	defer stop()
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
	err := b.pool.QueryRow(asking, b.st.Ask, key, ids, owners, ttls, holds, patient, b.process, aliveFor.Microseconds()).
		Scan(&outcome, &token, &expires, &tickets)
	for i, j := range batch {
		switch {
		case err != nil:
			j.end = unknown
		case outcome == outcomeUndecided:
			j.end = undecided
		default:
			j.out = asked{ticket: tickets[i]}
		}
	}
	if err == nil && outcome == outcomeGranted {
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
