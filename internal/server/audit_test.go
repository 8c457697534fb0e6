package server

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// unaudited are the routes that write no row into the audit log even for an administrator, each with its reason. All others
// write one: a new route is audited, or is explained here.
func unaudited() map[string]string {
	const (
		books  = "it is in the books, and services do so all the time"
		tenure = "services do so all the time; /v1/locks shows who holds what"
		queued = "services do so all the time, and it is listed itself"
		asked  = "it reads what is there; recovering a stuck draw by it is audited, see TestConsoleRescues and the sweeper's test"
	)
	return map[string]string{
		"POST /v1/in-doubt/adopt":           "there was nothing to adopt; where there is, see TestInDoubtRoute",
		"POST /v1/accounts":                 books,
		"POST /v1/deposits":                 books,
		"POST /v1/withdrawals":              books,
		"POST /v1/transfers":                books,
		"POST /v1/holds":                    books,
		"POST /v1/commands":                 "each of its commands is audited as it is alone",
		"POST /v1/holds/{id}/capture":       books,
		"POST /v1/campaigns/{id}/purchases": books,
		"POST /v1/auctions/{id}/bids":       books,
		"POST /v1/cross-transfers":          books,
		"POST /v1/cross-legs":               books,
		"POST /v1/locks":                    tenure,
		"POST /v1/locks/{id}/renew":         tenure,
		"POST /v1/publications":             queued,
		"POST /v1/campaigns/{id}/draw":      asked,
	}
}

// TestEveryActionIsAudited uses every route as an administrator and looks for what the log says of it: who, with which
// request.
func TestEveryActionIsAudited(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	c := e.contract()
	requests := map[string][]string{} // that succeeded, by route
	e.observe = func(method, path string, r *reply) {
		if pattern, op := c.operation(method, path); op != nil && method != http.MethodGet && r.status < http.StatusBadRequest {
			requests[method+" "+pattern] = append(requests[method+" "+pattern], r.header.Get("X-Request-Id"))
		}
	}
	e.useEverything()
	conn := e.connect()
	defer func() { _ = conn.Close(context.Background()) }()
	rows, err := conn.Query(t.Context(), `SELECT request_id, action FROM audit_log WHERE principal = $1`, "key:"+e.adminID)
	must(t, err)
	actions := map[string]string{} // by request
	var request, action string
	_, err = pgx.ForEachRow(rows, []any{&request, &action}, func() error { actions[request] = action; return nil })
	must(t, err)
	exempt := unaudited()
	for _, r := range e.server.routes() {
		name := r.method + " " + r.path
		if r.method == http.MethodGet || !strings.HasPrefix(r.path, "/v1") {
			continue
		}
		reason, is := exempt[name]
		delete(exempt, name)
		var found []string
		for _, request := range requests[name] {
			if action := actions[request]; action != "" {
				found = append(found, action)
			}
		}
		switch {
		case len(requests[name]) == 0:
			t.Errorf("%s was not used with success", name)
		case is && len(found) > 0:
			t.Errorf("%s is audited as %v, and need not be: %s", name, found, reason)
		case !is && len(found) == 0:
			t.Errorf("%s writes no row into the audit log", name)
		}
		t.Logf("%s: %v %s", name, found, reason)
	}
	for name := range exempt {
		t.Errorf("there is no route %s", name)
	}
}

// TestOperatorsReleasesAreAudited tells an operator's releases from a service's, and a release from a refusal or a replay.
func TestOperatorsReleasesAreAudited(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 100)
	service := e.by(e.service)
	rows := func(action, object string) int {
		t.Helper()
		return e.count("audit_log WHERE action = $1 AND object = $2 AND principal = $3", action, object, "key:"+e.adminID)
	}
	newHold := func() string {
		return service.post("/v1/holds", `{"account":"alice","amount":10}`).want(201).str("id")
	}
	release := func(by *env, id, key string) *reply { return by.keyed(key, "/v1/holds/"+id+"/release", "") }
	hold := newHold()
	release(service, hold, "s").want(200)
	if n := e.count("audit_log WHERE action = 'hold.release'"); n != 0 {
		t.Errorf("%d rows for a service's release", n)
	}
	release(e, hold, "too-late").problem(409, "hold_closed")
	if n := rows("hold.release", hold); n != 0 {
		t.Errorf("%d rows for a refusal", n)
	}
	hold = newHold()
	// The lane has the account in its memory, and must find out that it is not true any more.
	first := release(e, hold, "a").want(200)
	again := release(e, hold, "a").want(200)
	if string(first.body) != string(again.body) || again.header.Get("Idempotent-Replayed") != "true" || first.str("status") != "released" {
		t.Errorf("%s, then %s", first.body, again.body)
	}
	if n := rows("hold.release", hold); n != 1 {
		t.Errorf("%d rows for an operator's release", n)
	}
	service.post("/v1/withdrawals", `{"account":"alice","amount":100}`).want(201)
	release(e, newUUID(), "b").problem(404, "not_found")

	lockBy := func(by *env, key string) string {
		return by.post("/v1/locks", `{"keys":["`+key+`"],"owner":"o","ttl":"1h"}`).want(201).str("id")
	}
	drop := func(by *env, id, key string) *reply {
		return by.send(send{method: http.MethodDelete, path: "/v1/locks/" + id, key: key})
	}
	lock := lockBy(service, "one")
	drop(service, lock, "s").want(204)
	drop(e, lock, "too-late").problem(410, "lock_lost")
	if n := e.count("audit_log WHERE action = 'lock.release'"); n != 0 {
		t.Errorf("%d rows for a service's release, and one of what was released", n)
	}
	lock = lockBy(service, "two")
	drop(e, lock, "a").want(204)
	drop(e, lock, "a").want(204)
	if n := rows("lock.release", lock); n != 1 {
		t.Errorf("%d rows for an operator's release", n)
	}
}
