package idempotency

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/wait"
)

// How often a request that waits looks again. One that waits in the executing process is woken.
const (
	firstLook = 20 * time.Millisecond
	lastLook  = 500 * time.Millisecond
)

// Retries of the store.
const (
	firstPause  = 20 * time.Millisecond
	lastPause   = time.Second
	maxResolves = 3 // of one request
)

// Middleware gives the requests that it is put in front of one effect and one answer each. It is safe for concurrent use.
type Middleware struct {
	o       Options
	flights flights
	strays  strays
}

// New returns a middleware. It returns an error that wraps [ErrBadOptions].
func New(o Options) (*Middleware, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Middleware{o: o, flights: flights{ends: map[ID]chan struct{}{}}, strays: strays{all: map[uuid.UUID]stray{}}}, nil
}

// Wrap puts the middleware in front of a handler. It must see the host and path that clients send, and the body unread: put it
// outside of what strips prefixes and parses forms, and inside of authentication. What decodes bodies in front of it must set the
// request's ContentLength to -1 or to the new length.
//
// The handler runs to its end even when its client goes away, because the client will ask again: its request's context
// ends only when the execution has lost its key, with a cause that wraps [ErrLost]. [FromContext] has its [Grant].
//
// What the handler writes is kept first and sent then. It can't stream: its writer is neither an http.Flusher nor an
// http.Hijacker, informational statuses and trailers are not passed on, and answers have a limit. An [http.ResponseController]
// sets the deadlines of the connection itself.
//
// A handler that panics has answered with a 500, which is kept as any other; the panic goes on to what is in front.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
}

// grantKey is the key of a context's grant.
type grantKey struct{}

// FromContext returns the grant that a handler executes under, and false where its request has no key.
func FromContext(ctx context.Context) (Grant, bool) {
	g, ok := ctx.Value(grantKey{}).(Grant)
	return g, ok
}

func (m *Middleware) refuse(w http.ResponseWriter, r *http.Request, p Problem) {
	p.Type = "about:blank"
	if m.o.DocsURL != "" {
		p.Type = m.o.DocsURL + "#" + p.Code
	}
	m.o.Refuse(w, r, p)
}

func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	headers := r.Header.Values(KeyHeader)
	if !slices.Contains(m.o.Methods, r.Method) || m.o.Optional && len(headers) == 0 {
		next.ServeHTTP(w, r)
		return
	}
	key := ""
	if len(headers) == 1 {
		key, _ = ParseKey(headers[0])
	}
	if key == "" {
		m.refuse(w, r, problem(CodeKeyRequired))
		return
	}
	id := m.id(r, key)
	body, content, code := m.read(w, r)
	if code != "" {
		m.refuseUnread(w, r, id, code)
		return
	}
	m.decide(w, r, next, Request{ID: id, Fingerprint: fingerprint(r, content), Execution: uuid.New()}, body)
}

// refuseUnread refuses a request that has a key and can't be compared with what the key may stand for. It has had no effect if
// nothing is known of the key; else, or where the store can't be asked, it may be one that was executed before.
func (m *Middleware) refuseUnread(w http.ResponseWriter, r *http.Request, id ID, code string) {
	p := problem(code)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), m.o.StoreTimeout)
	defer cancel()
	if entry, err := m.o.Store.Look(ctx, id); err != nil || entry.Phase != Absent {
		p.Outcome = unknown
	}
	m.refuse(w, r, p)
}

// read reads the body, and what of the request is its fingerprint.
func (m *Middleware) read(w http.ResponseWriter, r *http.Request) (body, content []byte, code string) {
	unread := r.Body
	if unread == nil { // A server's request has a body; one that a test makes by hand need not.
		unread = http.NoBody
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, unread, int64(m.o.MaxBody)))
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			return nil, nil, CodePayloadTooLarge
		}
		return nil, nil, CodeBadBody
	}
	// Without a known length, only a parsed form shows that there was a body.
	if int64(len(body)) < r.ContentLength || len(body) == 0 && (len(r.PostForm) > 0 || r.MultipartForm != nil) {
		return nil, nil, CodeBodyConsumed
	}
	if content, err = m.o.Fingerprint(r, body); err != nil {
		return nil, nil, CodeBadBody
	}
	return body, content, ""
}

// id binds a key to its scope.
func (m *Middleware) id(r *http.Request, key string) ID {
	method, path := r.Method, r.URL.EscapedPath()
	if m.o.Scope == PerPrincipal {
		method, path = "", ""
	}
	return NewID(m.o.Principal(r), method, host(r)+path, key) // No host has a slash, and all paths begin with one.
}

// host is the request's host without its port: the replicas of one service may listen on several.
func host(r *http.Request) string {
	name := strings.ToLower(r.Host)
	if i := strings.LastIndexByte(name, ':'); i >= 0 && !strings.HasSuffix(name, "]") { // An IPv6 address is in brackets.
		name = name[:i]
	}
	return strings.TrimSuffix(name, ".")
}

// fingerprint binds method, path and content together.
func fingerprint(r *http.Request, content []byte) Fingerprint {
	path := r.URL.EscapedPath()
	route := strconv.Itoa(len(path)) + " " + r.Method + " " + path + "\n"
	return NewFingerprint(append([]byte(route), content...))
}

// decide executes the request, or answers it from what is known of its key.
func (m *Middleware) decide(w http.ResponseWriter, r *http.Request, next http.Handler, req Request, body []byte) {
	for range maxResolves {
		since := time.Now()
		entry, err := m.begin(r.Context(), req, &since)
		switch {
		case errors.Is(err, ErrKeyReused):
			m.refuse(w, r, problem(CodeKeyReused))
			return
		case err != nil:
			m.abandon(req.ID, req.Execution) //nolint:contextcheck // It may have begun, and outlives the request.
			m.refuse(w, r, problem(CodeUnavailable))
			return
		case m.strays.has(entry):
			g := entry.Grant
			err := m.persist(context.WithoutCancel(r.Context()), m.o.StoreTimeout, func(ctx context.Context) error { return m.o.Store.Release(ctx, g) })
			if err == nil || errors.Is(err, ErrLost) {
				m.strays.forget(g.Execution)
				continue
			}
		}
		m.startRecall() //nolint:contextcheck // It outlives the request.
		switch entry.Phase {
		case Started:
			m.execute(w, r, next, execution{grant: entry.Grant, since: since, body: body})
			return
		case Answered:
			send(w, entry.Response, entry.Grant.Execution != req.Execution)
			return
		case Unknown:
			if m.resolve(r, entry.Grant, body) {
				continue
			}
			m.refuse(w, r, problem(CodeOutcomeUnknown))
			return
		case InFlight, Absent:
		}
		break
	}
	m.refuse(w, r, problem(CodeInFlight))
}

// begin asks the store to begin, and waits for another's answer for as long as the options say. It notes in since when it
// asked last, from when a lease is trusted. A client that goes away ends the waiting but no call: one that was cut off could
// have begun what nobody executes.
func (m *Middleware) begin(ctx context.Context, req Request, since *time.Time) (Entry, error) {
	terms := Terms{Lease: m.o.Lease, Retention: m.o.Retention, OnCrash: m.o.OnCrash}
	deadline := since.Add(m.o.Wait)
	for look := firstLook; ; look = min(2*look, lastLook) {
		done := m.flights.of(req.ID) // Taken before the store is asked, so that no end in between is missed.
		var entry Entry
		err := m.persist(context.WithoutCancel(ctx), m.o.StoreTimeout, func(ctx context.Context) (err error) {
			*since = time.Now()
			entry, err = m.o.Store.Begin(ctx, req, terms)
			return err
		})
		left := time.Until(deadline)
		if err != nil || entry.Phase != InFlight || left <= 0 || m.strays.has(entry) {
			return entry, err
		}
		timer := time.NewTimer(min(look, left))
		select {
		case <-done:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return entry, nil //nolint:nilerr // That the client has gone is no failure.
		}
	}
}

// persist calls the store until it answers, and begins no call after its patience; what the store decides is an answer.
func (m *Middleware) persist(ctx context.Context, patience time.Duration, call func(context.Context) error) error {
	deadline := time.Now().Add(patience)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		bounded, cancel := context.WithTimeout(ctx, m.o.StoreTimeout)
		err := call(bounded)
		cancel()
		if err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrKeyReused) || time.Until(deadline) < pause || !wait.For(ctx, pause) {
			return err
		}
	}
}

// resolve asks what became of a parked key's execution, and reports whether that is settled.
func (m *Middleware) resolve(r *http.Request, g Grant, body []byte) bool {
	if m.o.Resolve == nil {
		return false
	}
	answer, err := m.o.Resolve(r.Context(), withBody(r, r.Context(), body), g)
	if err != nil {
		return false
	}
	err = m.persist(r.Context(), m.o.StoreTimeout, func(ctx context.Context) error {
		if answer == nil {
			return m.o.Store.Release(ctx, g)
		}
		_, err := m.o.Store.Complete(ctx, g, *answer)
		return err
	})
	return err == nil || errors.Is(err, ErrLost) // Then somebody else has resolved it.
}

// withBody is the request with its body to be read anew.
func withBody(r *http.Request, ctx context.Context, body []byte) *http.Request { //nolint:revive // The request's own context is the exception.
	out := r.WithContext(ctx)
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	out.TransferEncoding = nil
	return out
}
