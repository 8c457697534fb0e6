//go:build unix

package explore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
)

var errCut = errors.New("the connection was cut")

// call is a request of a client's on its way to a server, or its answer on its way back.
type call struct {
	client, server string
	what           string
	request        *http.Request
	who            *goroutines
	asker          uint64 // the client's goroutine
	since, back    int    // the steps that request and answer were first seen at

	begun  bool
	lost   bool // nobody waits for the answer
	mode   Mode
	answer *http.Response // nil: there is none yet
	given  chan result    // has room for one
}

type result struct {
	answer *http.Response
	err    error
}

// fail tells the client that the connection broke. mark is the schedule's for that.
func (c *call) fail(mark uint64) {
	if !c.lost {
		c.lost = true
		c.who.mark(c.asker, mark)
		c.given <- result{err: errCut}
	}
}

// ids are what differs between requests that mean the same.
var ids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// transport is a client's way to the servers.
type transport struct {
	gate   *gate
	client string
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		_ = r.Body.Close()
	}
	request := r.Clone(context.WithoutCancel(r.Context()))
	request.Body, request.RequestURI, request.RemoteAddr = io.NopCloser(bytes.NewReader(body)), r.URL.RequestURI(), "192.0.2.1:1"
	c := &call{
		client: t.client, server: r.URL.Host, request: request, who: t.gate.who, asker: t.gate.who.here(), given: make(chan result, 1),
		what: r.Method + " " + ids.ReplaceAllString(r.URL.Path, "…") + " " + r.Header.Get("Idempotency-Key"),
	}
	t.gate.mu.Lock()
	t.gate.calls = append(t.gate.calls, c)
	t.gate.mu.Unlock()
	t.gate.signal()
	select {
	case got := <-c.given:
		return got.answer, got.err
	case <-r.Context().Done():
		t.gate.mu.Lock()
		c.lost = true
		t.gate.mu.Unlock()
		return nil, r.Context().Err()
	}
}

// callOptions are the options of requests and answers. The gate's mutex is held.
func (g *gate) callOptions() (all []Option) {
	g.calls = slices.DeleteFunc(g.calls, func(c *call) bool { return c.lost && (!c.begun || c.answer != nil) && c.mode != Late })
	slices.SortStableFunc(g.calls, func(a, b *call) int { return cmp.Or(g.who.compare(a.asker, b.asker), cmp.Compare(a.asker, b.asker)) })
	for _, c := range g.calls {
		switch {
		case !c.begun:
			if c.since == 0 {
				c.since = g.step
			}
			faults := []Mode{Hold, Lose, Late, Drop}
			if c.lost {
				faults = nil
			}
			all = append(all, Option{
				Label: c.client + " > " + c.server + " " + c.what, Thread: c.client, Since: c.since, Faults: faults,
				process: c.server, run: func(m Mode) error { g.pass(c, m); return nil },
			})
		case c.answer != nil && !c.lost:
			if c.back == 0 {
				c.back = g.step
			}
			all = append(all, Option{
				Label: c.client + " < " + c.server + " " + c.what, Thread: c.client, Since: c.back, Faults: []Mode{Lose},
				process: c.server, run: func(m Mode) error { g.give(c, m); return nil },
			})
		}
	}
	return all
}

// pass lets a request through.
func (g *gate) pass(c *call, m Mode) {
	g.mu.Lock()
	defer g.mu.Unlock()
	handler := g.serve(c.server)
	if handler == nil || m == Drop {
		c.mode = Drop
		c.fail(g.who.next())
		return
	}
	if m == Late {
		c.fail(g.who.next())
		c.mode = Late
		return
	}
	c.begun, c.mode = true, m
	mark := g.who.next()
	go func() {
		g.who.mark(g.who.here(), mark)
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, c.request)
		g.mu.Lock()
		defer g.mu.Unlock()
		c.answer = recorder.Result()
		switch {
		case c.lost:
		case m == Lose:
			c.fail(mark)
		case m == Go:
			c.lost = true
			g.who.mark(c.asker, mark)
			c.given <- result{answer: c.answer}
		}
		g.signal()
	}()
}

// give lets an answer through.
func (g *gate) give(c *call, m Mode) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m == Lose {
		c.fail(g.who.next())
		return
	}
	c.lost = true
	c.who.mark(c.asker, c.who.next())
	c.given <- result{answer: c.answer}
}
