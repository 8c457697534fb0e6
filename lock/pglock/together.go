package pglock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
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
	outcomeHeld      = "held"
	outcomeReleased  = "released"
	outcomeExpired   = "expired"
	outcomeUndecided = "undecided"
)

// undefinedFunction is the SQLSTATE of a call of a function that the database does not have: its engine has no PL/pgSQL, or its tables
// are of an older version. Transactions of plain statements decide then.
const undefinedFunction = "42883"

// turn is that of the requests of this process for one key, of which one at a time asks: for itself, and for all that have come
// while another was on its way. So the line of a key that many want grows by one transaction a round trip, and those of one
// process stand in it one behind the other, which makes them a [cohort].
type turn struct {
	taken chan struct{} // has a value while somebody asks
	// The backend's mutex guards these.
	queue []*joining // who is to be asked for
	users int
}

// joining is a request that is made, or given up, together with others.
type joining struct {
	w       *waiter
	again   bool          // it may stand in line already
	leaving bool          // it gives up
	take    bool          // it keeps the lock then, if it has just been granted
	over    chan struct{} // closed when it was asked for; then the rest is known
	out     asked
	left    left
	start   time.Time // of the transaction that it left by
	err     error     // why it was refused
	end     decision
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

// askTogether makes a request for one key. If that was not decided, a transaction of its own is to decide it.
func (b *Backend) askTogether(ctx context.Context, w *waiter) (asked, decision, error) {
	if ctx.Err() != nil {
		return asked{}, undecided, nil
	}
	b.busy.Add(1)
	defer b.busy.Add(-1)
	j := &joining{w: w}
	if end := b.inTurn(ctx, j); end != decided {
		return asked{}, end, nil
	}
	return j.out, decided, j.err
}

// inTurn asks for a request for one key, or waits until another of its kind does.
func (b *Backend) inTurn(ctx context.Context, j *joining) decision {
	key := j.w.request.keys[0]
	j.over = make(chan struct{})
	b.mu.Lock()
	t := b.enterTurn(key)
	t.queue = append(t.queue, j)
	run := b.runs[key]
	alone := run == nil && t.users == 1 // so that nobody of this process is known to want the key
	if t.users > 1 || j.leaving || !j.w.simple() || !j.w.patient() {
		run = nil
	}
	b.mu.Unlock()
	defer b.leaveTurn(key, t)
	ended := ctx.Done()
	var late <-chan time.Time
	for {
		select {
		case <-j.over:
			return j.end
		case t.taken <- struct{}{}:
			select {
			case <-j.over: // Another has just asked for this one. Whoever is in the queue now asks for the rest.
			default:
				if run != nil {
					run.wait(ctx)
				}
				if batch := b.askedFor(t); len(batch) > 0 { // Else another has asked for all.
					b.askAll(ctx, key, batch, alone)
				}
			}
			<-t.taken
		case <-ended:
			if b.stayBehind(t, j) {
				return undecided
			}
			if ended = nil; j.leaving || j.w.simple() { // Else hooks may be called until it was asked for.
				late = time.After(decideFor)
			}
		case <-late:
			return unknown
		}
	}
}

// askedFor are those for whom the next one asks, oldest first.
func (b *Backend) askedFor(t *turn) []*joining {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(maxTogether, len(t.queue))
	batch := t.queue[:n:n]
	t.queue = t.queue[n:]
	return batch
}

// stayBehind takes a request back that is not on its way yet.
func (b *Backend) stayBehind(t *turn, j *joining) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(t.queue, j)
	if i >= 0 {
		t.queue = slices.Delete(slices.Clone(t.queue), i, i+1)
	}
	return i >= 0
}

// turnAlone waits for the turn of the requests for a key, for one that is made or given up by itself. done ends it.
func (b *Backend) turnAlone(ctx context.Context, key string) (done func(), err error) {
	b.mu.Lock()
	t := b.enterTurn(key)
	b.mu.Unlock()
	select {
	case t.taken <- struct{}{}:
		return func() {
			<-t.taken
			b.leaveTurn(key, t)
		}, nil
	case <-ctx.Done():
		b.leaveTurn(key, t)
		return nil, context.Cause(ctx)
	}
}

// enterTurn is called with the mutex, and leaveTurn without.
func (b *Backend) enterTurn(key string) *turn {
	t := b.asking[key]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		b.asking[key] = t
	}
	t.users++
	return t
}

func (b *Backend) leaveTurn(key string, t *turn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(b.asking, key)
	}
}

// askAll asks for all of the batch. The end of the first one's context does not end it at once: see decideFor.
func (b *Backend) askAll(ctx context.Context, key string, batch []*joining, alone bool) {
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), runTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(decideFor, cancel) })
	defer stop()
	var leaving, simple, others []*joining
	for _, j := range batch {
		switch {
		case j.leaving:
			leaving = append(leaving, j)
		case j.w.simple():
			simple = append(simple, j)
		default:
			others = append(others, j)
		}
	}
	if len(leaving) > 0 {
		b.inTransaction(ctx, asking, leaving, b.leaveIn)
	}
	if len(others) > 0 {
		b.inTransaction(ctx, asking, others, b.decideIn)
	}
	if len(simple) > 0 {
		b.askByFunction(asking, key, simple, alone && len(others) == 0)
	}
}

// inTransaction decides requests with hooks, or has requests leave.
func (b *Backend) inTransaction(ctx, limited context.Context, batch []*joining, do func(context.Context, Run, []*joining) error) {
	run := batch[0].w.hooks.Run
	if run == nil {
		run, ctx = b.run, limited
	} else {
		ctx = context.WithoutCancel(ctx)
	}
	err := do(ctx, run, batch)
	for _, j := range batch {
		switch {
		case err == nil:
		case len(batch) > 1 && isOfOne(err):
			j.end = undecided
		default:
			j.out, j.err, j.end = asked{}, err, decided
		}
		close(j.over)
	}
}

// isOfOne reports whether PostgreSQL has refused a value, which is one request's: the others have not to do with it.
func isOfOne(err error) bool {
	code := pgkit.Code(err)
	return strings.HasPrefix(code, "22") || strings.HasPrefix(code, "23")
}

// decideIn decides requests in one transaction, and tells those that it has granted locks to.
func (b *Backend) decideIn(ctx context.Context, run Run, batch []*joining) error {
	err := Transact(ctx, run, "lock acquire", func(ctx context.Context, tx pgx.Tx) error {
		start := time.Now()
		err := b.decideAll(ctx, tx, batch)
		for _, j := range batch {
			j.again = true // In another run: this one may have been committed.
			if j.out.grant != nil {
				j.out.grant.Start = start
			}
			if err == nil && j.out.grant != nil {
				err = j.w.leaveTombstone(ctx, tx)
			}
		}
		return err
	})
	if errors.Is(err, ErrAnswered) {
		return nil
	}
	if err == nil {
		for _, j := range batch {
			b.wake(j.out.woken)
		}
	}
	return err
}

// leaveIn takes requests out of the line in one transaction.
func (b *Backend) leaveIn(ctx context.Context, run Run, batch []*joining) error {
	var s settled
	err := Transact(ctx, run, "lock leave", func(ctx context.Context, tx pgx.Tx) (err error) {
		start := time.Now()
		for _, j := range batch {
			j.start = start
		}
		s, err = b.leaveAll(ctx, tx, batch)
		return err
	})
	if err == nil { // Those that leave may not have waited for it.
		b.follow(context.WithoutCancel(ctx), s)
	}
	return err
}

// askByFunction decides simple requests: one that seems to be alone together with others that are, for other keys.
func (b *Backend) askByFunction(asking context.Context, key string, batch []*joining, alone bool) {
	if alone && len(batch) == 1 {
		if out, end := b.share(asking, errand{key: key, asks: batch[0].w}); end != undecided {
			batch[0].out.grant, batch[0].end = out.grant, end
			close(batch[0].over)
			return
		}
	}
	start := time.Now()
	d, err := answer{outcome: outcomeUndecided}, error(nil)
	if !b.plain.Load() {
		d, err = b.callAsk(asking, key, batch)
	}
	if pgkit.Code(err) == undefinedFunction {
		if !b.plain.Swap(true) {
			b.logger.WarnContext(asking, "requests for locks are several statements: the engine has no PL/pgSQL, or the tables are of an older version, so install the schema again", "error", err)
		}
		d, err = answer{outcome: outcomeUndecided}, nil
	}
	for i, j := range batch {
		switch {
		case err != nil:
			j.end = unknown
		case d.outcome == outcomeUndecided:
			j.end = undecided
		default:
			j.out = asked{ticket: d.tickets[i]}
		}
	}
	if err == nil && d.outcome == outcomeGranted {
		batch[0].out.grant = batch[0].w.request.grant(*d.token, *d.expires, start)
	}
	for _, j := range batch {
		close(j.over)
	}
}

// answer is what the database says of requests for one key.
type answer struct {
	outcome string
	token   *int64 // of the first, if it was granted
	expires *time.Time
	tickets []int64 // of those that are in line; else 0
}

// callAsk asks for all of the batch, by the function for one request if it is one.
func (b *Backend) callAsk(ctx context.Context, key string, batch []*joining) (a answer, err error) {
	older := false
	if len(batch) == 1 && !b.older.Load() {
		if a, err = b.callAskOne(ctx, key, batch[0].w); pgkit.Code(err) != undefinedFunction {
			return a, err
		}
		older = !b.older.Swap(true)
	}
	ids, owners := make([]string, len(batch)), make([]string, len(batch))
	ttls, holds := make([]int64, len(batch)), make([]int64, len(batch))
	patient := make([]bool, len(batch))
	for i, j := range batch {
		r := j.w.request
		ids[i], owners[i], ttls[i], holds[i], patient[i] = r.id.String(), r.owner, r.ttl, r.hold, j.w.patient()
	}
	err = b.pool.QueryRow(ctx, b.st.Ask, key, ids, owners, ttls, holds, patient, b.process, aliveFor.Microseconds()).
		Scan(&a.outcome, &a.token, &a.expires, &a.tickets)
	b.noteOlder(ctx, older && err == nil) // Else it has none of the functions, which the caller says.
	return a, err
}

// noteOlder says that the functions for one request alone are missing, where that was just found out.
func (b *Backend) noteOlder(ctx context.Context, found bool) {
	if found {
		b.logger.WarnContext(ctx, "a lock that one asks for alone costs more than it need: the tables are of an older version, so install the schema again")
	}
}

func (b *Backend) callAskOne(ctx context.Context, key string, w *waiter) (answer, error) {
	r := &w.request
	var of []*int64 // token, end of the lease, ticket
	err := b.pool.QueryRow(ctx, b.st.AskOne, key, r.id.String(), r.owner, r.ttl, r.hold, w.patient(), b.process, aliveFor.Microseconds()).Scan(&of)
	switch {
	case err != nil:
		return answer{}, err
	case of == nil:
		return answer{outcome: outcomeUndecided}, nil
	case of[0] == nil:
		return answer{outcome: outcomeHeld, tickets: []int64{*of[2]}}, nil
	}
	expires := time.UnixMicro(*of[1])
	return answer{outcome: outcomeGranted, token: of[0], expires: &expires, tickets: []int64{0}}, nil
}

// patient reports whether the request is to get in line.
func (w *waiter) patient() bool { return w.wait != 0 && (w.wait < 0 || time.Now().Before(w.deadline)) }

// grant is the grant of a request for one key.
func (r *request) grant(token int64, expires, start time.Time) *lock.Grant {
	return &lock.Grant{
		ID: r.id.String(), Owner: r.owner, Tokens: map[string]int64{r.keys[0]: token}, TTL: time.Duration(r.ttl) * time.Microsecond,
		ExpiresAt: expires.UTC(), Start: start,
	}
}
