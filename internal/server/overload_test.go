package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
)

// TestOverload fills a lane of one place while its batch is held up by a lock on a row. A campaign has one lane.
func TestOverload(t *testing.T) {
	t.Parallel()
	const queue, more = 1, 5
	e := newEnvWith(t, setup{lanes: groupcommit.Options{MaxQueue: queue, MaxBatch: 1}})
	e.account("alice", "EUR", 1000)
	id := e.onSale(`"base_length":4`, "")
	path := "/v1/campaigns/" + id + "/purchases"
	held, open := e.gate("purchases")

	type outcome struct {
		response *http.Response
		err      error
		key      string
	}
	outcomes := make(chan outcome, more+1)
	purchase := func() {
		key := newUUID()
		response, err := e.trySend(send{method: http.MethodPost, path: path, body: `{"account":"alice"}`, key: key})
		outcomes <- outcome{response, err, key}
	}
	go purchase()
	held("the first purchase is under way")
	for range more {
		go purchase()
	}
	// All but those that found a place are refused at once, while the lock is still held.
	var refused []string
	for range more - queue {
		o := <-outcomes
		must(t, o.err)
		r := e.received(http.MethodPost, path, "", o.response).problem(http.StatusServiceUnavailable, "overloaded")
		r.equal(`{"retryable":true,"outcome":"unknown"}`) // Its key was not read.
		if r.header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After %q", r.header.Get("Retry-After"))
		}
		refused = append(refused, o.key)
	}
	open()
	for range queue + 1 {
		o := <-outcomes
		must(t, o.err)
		e.received(http.MethodPost, path, "", o.response).want(http.StatusCreated)
	}
	e.balance("alice", 1000-(queue+1)*100, 0)
	// What was refused was not kept under its key.
	for _, key := range refused {
		r := e.keyed(key, path, `{"account":"alice"}`).want(http.StatusCreated)
		if r.header.Get("Idempotent-Replayed") != "" {
			t.Error("an overload is replayed")
		}
	}
}

// TestClosedServices asks for changes after the services have been closed.
func TestClosedServices(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 100)
	id := e.onSale(`"base_length":2`, "")
	before := e.snapshot()
	must(t, errors.Join(e.ledger.Close(t.Context()), e.lottery.Close(t.Context())))
	for path, body := range map[string]string{
		"/v1/deposits": `{"account":"alice","amount":1}`, "/v1/accounts": `{"id":"bob","currency":"EUR"}`,
		"/v1/campaigns/" + id + "/purchases": `{"account":"alice"}`, "/v1/campaigns/" + id + "/cancel": ``,
		"/v1/campaigns": `{"name":"n","base_length":2,"price":1,"currency":"EUR","beneficiary":"alice","prizes":[{"name":"a","quantity":1}]}`,
	} {
		e.post(path, body).problem(http.StatusServiceUnavailable, "shutting_down").equal(`{"retryable":true,"outcome":"unknown"}`)
	}
	e.get("/v1/accounts/alice").want(http.StatusOK)
	e.unchanged(before)
}

// TestUnknownOutcome closes the ledger on a deposit that waits for a row, so that the server must answer without knowing.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	e := newEnvWith(t, setup{lanes: groupcommit.Options{CloseGrace: time.Millisecond}})
	e.account("alice", "EUR", 0)
	held, open := e.gate("entries")
	answered := make(chan *http.Response, 1)
	failed := make(chan error, 1)
	go func() {
		response, err := e.trySend(send{method: http.MethodPost, path: "/v1/deposits", body: `{"account":"alice","amount":1}`, key: "k"})
		failed <- err
		answered <- response
	}()
	held("the deposit is under way")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.ledger.Close(over); err == nil {
		t.Error("Close had nothing to give up")
	}
	must(t, <-failed)
	r := e.received(http.MethodPost, "/v1/deposits", "", <-answered).want(http.StatusServiceUnavailable).equal(`{"retryable":true}`)
	// Whichever was faster, the grace's end or the cancelled flush: the key was not read.
	r.equal(`{"outcome":"unknown"}`)
	code := r.str("code")
	if code != "outcome_unknown" && code != "unavailable" && code != "shutting_down" {
		t.Errorf("code %q", code)
	}
	open()
	eventually(t, patience, "the flush ends", func() bool {
		return e.count("pg_stat_activity WHERE datname = current_database() AND state <> 'idle' AND pid <> pg_backend_pid()") == 0
	})
	if code != "outcome_unknown" {
		e.balance("alice", 0, 0) // This request was not carried out, and there was none before it.
	}
}

// TestDraining ends Serve while a request is under way: it is answered, nothing new is taken, and the probe turns.
func TestDraining(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 0)
	e.by("").get("/readyz").want(http.StatusOK).equal(`{"status":"ok","version":"test"}`)
	served := make(chan error, 1)
	go func() { served <- e.ended() }()

	held, open := e.gate("entries")
	answered := make(chan *http.Response, 1)
	failed := make(chan error, 1)
	go func() {
		response, err := e.trySend(send{method: http.MethodPost, path: "/v1/deposits", body: `{"account":"alice","amount":1}`, key: "k"})
		failed <- err
		answered <- response
	}()
	held("the deposit is under way")
	e.stop()
	probe := func() (int, string) {
		w := httptest.NewRecorder()
		e.server.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", http.NoBody))
		var v healthView
		must(t, json.Unmarshal(w.Body.Bytes(), &v))
		return w.Code, string(v.Reason)
	}
	eventually(t, patience, "the probe says that the server drains", func() bool {
		status, text := probe()
		return status == http.StatusServiceUnavailable && text == "draining"
	})
	// What comes by a connection that is just being closed must not be carried out unheard.
	late := httptest.NewRecorder()
	body := strings.NewReader(`{"account":"alice","amount":1}`)
	e.server.Handler().ServeHTTP(late, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/deposits", body))
	if late.Code != http.StatusServiceUnavailable || !strings.Contains(late.Body.String(), `"shutting_down"`) {
		t.Errorf("a late command was answered %d %s", late.Code, late.Body)
	}
	eventually(t, patience, "no connection is taken", func() bool {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(e.url, "http://"))
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	select {
	case err := <-served:
		t.Fatalf("Serve left a request behind: %v", err)
	default:
	}
	open()
	must(t, <-failed)
	e.received(http.MethodPost, "/v1/deposits", "", <-answered).want(http.StatusCreated)
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}
