package idempotency

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// Parts of a lease.
const (
	extensionsPerLease = 3
	marginPercent      = 10 // of a lease, in which the handler's context has ended and its lease has not
)

// errUnextended is the cause of a handler's end whose lease could not be extended.
var errUnextended = fmt.Errorf("%w: its lease could not be extended in time", ErrLost)

// execution is one run of a handler.
type execution struct {
	grant Grant
	since time.Time // when the store was asked to begin
	body  []byte
}

// execute runs the handler, keeps its answer and sends what was kept.
func (m *Middleware) execute(w http.ResponseWriter, r *http.Request, next http.Handler, e execution) {
	defer m.flights.begin(e.grant.ID)()
	// The request's values stay, its end doesn't count: the client will ask again.
	base := context.WithoutCancel(r.Context())
	ctx, still := m.keep(context.WithValue(base, grantKey{}, e.grant), e)
	defer still()

	c := newCapture(w, m.o.MaxResponse)
	returned := false
	defer func() {
		if !returned { // It panicked, or ended its goroutine. Either goes on from here.
			m.crashed(r, e.grant)
		}
	}()
	next.ServeHTTP(c, withBody(r, ctx, e.body))
	returned = true

	answer, ok := c.response(m.o.MaxHeader)
	if !ok {
		p := problem(CodeResponseTooLarge)
		if c.status >= http.StatusBadRequest { // What the handler says of its effect was in the answer.
			p.Outcome, p.Detail = unknown, "The request was refused or failed, and the answer exceeds what may be kept under a key."
		}
		answer = keptProblem(p)
	}
	if m.o.Decided(r, c.status) {
		m.complete(w, r, e.grant, answer)
		return
	}
	m.release(w, r, e.grant, answer)
}

// keptProblem is a problem that becomes the answer of a key.
func keptProblem(p Problem) Response {
	p.Type = "about:blank"
	return p.response()
}

// keepAnswer keeps a decided answer, and returns the one that was kept.
func (m *Middleware) keepAnswer(r *http.Request, g Grant, answer Response) (kept Response, err error) {
	err = m.persist(context.WithoutCancel(r.Context()), m.o.Lease, func(ctx context.Context) (err error) {
		kept, err = m.o.Store.Complete(ctx, g, answer)
		return err
	})
	return kept, err
}

// complete keeps a decided answer, and sends the one that was kept.
func (m *Middleware) complete(w http.ResponseWriter, r *http.Request, g Grant, answer Response) {
	kept, err := m.keepAnswer(r, g, answer)
	switch {
	case err == nil:
		send(w, kept, false)
	case errors.Is(err, ErrLost):
		m.other(w, r, g, nil)
	default:
		m.refuseUnknown(w, r)
	}
}

// refuseUnknown answers a request that was executed and whose outcome can't be looked up.
func (m *Middleware) refuseUnknown(w http.ResponseWriter, r *http.Request) {
	p := problem(CodeOutcomeUnknown)
	p.Status = http.StatusServiceUnavailable
	p.Detail = "The request was executed, but its answer could not be kept. Send the same request again to learn what came of it."
	m.refuse(w, r, p)
}

// forget forgets an execution that has decided nothing.
func (m *Middleware) forget(r *http.Request, g Grant) error {
	err := m.persist(context.WithoutCancel(r.Context()), m.o.Lease, func(ctx context.Context) error { return m.o.Store.Release(ctx, g) })
	if err != nil && !errors.Is(err, ErrLost) {
		m.abandon(g.ID, g.Execution) //nolint:contextcheck // It outlives the request.
	}
	return err
}

// release forgets an execution that has decided nothing, and sends what it said.
func (m *Middleware) release(w http.ResponseWriter, r *http.Request, g Grant, answer Response) {
	if errors.Is(m.forget(r, g), ErrLost) { // The handler has completed its key itself, or has lost it.
		m.other(w, r, g, &answer)
		return
	}
	send(w, answer, false)
}

// other answers a request whose execution is not under its key any more: with what is there instead.
func (m *Middleware) other(w http.ResponseWriter, r *http.Request, g Grant, undecided *Response) {
	var entry Entry
	err := m.persist(context.WithoutCancel(r.Context()), m.o.StoreTimeout, func(ctx context.Context) (err error) {
		entry, err = m.o.Store.Look(ctx, g.ID)
		return err
	})
	switch {
	case err == nil && entry.Phase == Answered:
		send(w, entry.Response, entry.Grant.Execution != g.Execution)
	case undecided != nil:
		send(w, *undecided, false)
	case err != nil:
		m.refuseUnknown(w, r)
	default:
		m.refuse(w, r, problem(CodeInFlight))
	}
}

// crashed answers for a handler that did not return: with a 500 like any other, unless the handler has kept an answer itself.
func (m *Middleware) crashed(r *http.Request, g Grant) {
	// Where it fails, the key goes as after the death of the process. The client gets no answer here.
	if m.o.Decided(r, http.StatusInternalServerError) {
		_, _ = m.keepAnswer(r, g, keptProblem(problem(CodeHandlerCrashed)))
		return
	}
	_ = m.forget(r, g)
}

// keep extends a lease until the returned function is called. The returned context ends when the lease was lost, and before it can
// have run out.
func (m *Middleware) keep(ctx context.Context, e execution) (context.Context, func()) {
	ctx, end := wait.Keep(ctx, wait.Keeping{
		Since: e.since, Life: m.o.Lease - m.o.Lease*marginPercent/100, First: m.o.Lease / extensionsPerLease, Every: m.o.Lease / extensionsPerLease,
		Retry: min(firstPause, m.o.Lease/(extensionsPerLease*extensionsPerLease)),
		Renew: func(ctx context.Context) error { return m.o.Store.Extend(ctx, e.grant, m.o.Lease) },
		Lost:  ErrLost, TooLate: errUnextended,
	})
	return ctx, func() { end(nil) }
}

// flights are the executions of this process, so that requests that wait for them need not look again and again.
type flights struct {
	mu   sync.Mutex
	ends map[ID]chan struct{}
}

// of returns what is closed when an execution ends, nil where there is none.
func (f *flights) of(id ID) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ends[id]
}

// begin notes an execution, and returns what ends it.
func (f *flights) begin(id ID) (end func()) {
	ended := make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ends[id] = ended
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		close(ended)
		if f.ends[id] == ended { // It is another's when that has taken the key over.
			delete(f.ends, id)
		}
	}
}
