package server

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"
)

// TestAutomation goes through an automation's life: it fires, takes a draft, and shows what it did.
func TestAutomation(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.publishing()
	r := newReceiver(t, nil)
	e.target("t", r.URL)
	first, second := e.publication("t", `,"payload":1`), e.publication("t", `,"payload":2`)
	made := e.post("/v1/automations", `{"name":"a","target":"t","weekdays":["mon","sun"],"times":["18:30","09:00:05"],"time_zone":"Europe/Berlin","daily_quota":1,"jitter":"0s"}`).
		want(http.StatusCreated)
	made.exactly(made.decoded, "id", "name", "target", "status", "weekdays", "times", "time_zone", "every", "starts_at", "pick", "daily_quota", "jitter", "next_at", "created_at").
		equal(`{"status":"active","weekdays":["sun","mon"],"times":["09:00:05","18:30:00"],"time_zone":"Europe/Berlin","every":null,"pick":"first","daily_quota":1}`).
		times("next_at", "created_at", "starts_at")
	next, err := time.Parse(time.RFC3339, made.str("next_at"))
	must(t, err)
	if next.Before(time.Now()) || next.After(time.Now().Add(8*24*time.Hour)) {
		t.Errorf("fires next at %v", next)
	}
	path := "/v1/automations/" + made.str("id")
	conn := e.connect()
	defer func() { _ = conn.Close(context.Background()) }()
	fire := func() {
		t.Helper()
		n := len(e.get(path + "/firings").want(http.StatusOK).items())
		// As if its last time had been weeks ago, and what it has fired for long before that.
		_, err := conn.Exec(t.Context(), `WITH f AS (UPDATE automation_firings SET scheduled_for = scheduled_for - interval '1 year')
			UPDATE automations SET next_at = next_at - interval '28 days'`)
		must(t, err)
		eventually(t, patience, "it fires", func() bool { return len(e.get(path+"/firings").want(http.StatusOK).items()) > n })
	}
	fire()
	e.becomes(first, "published")
	fire() // The quota of the day is used up.
	firings := e.get(path + "/firings").want(http.StatusOK)
	list := firings.items()
	firings.exactly(list[0], "scheduled_for", "fired_at", "outcome", "publication", "skipped")
	if a, b := object(list[0]), object(list[1]); a["outcome"] != "scheduled" || "/v1/publications/"+fmt.Sprint(a["publication"]) != first || b["outcome"] != "quota_reached" || b["publication"] != nil {
		t.Errorf("%s", firings.body)
	}
	e.get(second).want(http.StatusOK).equal(`{"status":"draft"}`)
	e.post(path+"/resume", ``).problem(http.StatusConflict, "bad_transition")
	e.post(path+"/pause", ``).want(http.StatusOK).equal(`{"status":"paused","next_at":null}`)
	e.post(path+"/pause", ``).problem(http.StatusConflict, "bad_transition")
	e.post(path+"/resume", ``).want(http.StatusOK).equal(`{"status":"active"}`).times("next_at")
	e.post(path+"/cancel", ``).want(http.StatusOK).equal(`{"status":"cancelled","next_at":null}`)
	for _, verb := range []string{"pause", "resume", "cancel"} {
		e.post(path+"/"+verb, ``).problem(http.StatusConflict, "bad_transition")
	}
	if len(r.deliveries()) != 1 {
		t.Errorf("%d deliveries", len(r.deliveries()))
	}
}

func TestAutomationLimits(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.target("t", "http://example.com")
	for _, rest := range []string{
		``, `,"times":[]`, `,"times":["9:00"]`, `,"times":["24:00"]`, `,"times":["09:00","09:00"]`, `,"times":["09:00:00.5"]`, `,"times":["09:00"],"every":"1h"`,
		`,"times":["09:00"],"weekdays":[]`, `,"times":["09:00"],"weekdays":["mon","mon"]`, `,"times":["09:00"],"weekdays":["Monday"]`,
		`,"times":["09:00"],"time_zone":"Mars/Base"`, `,"times":["09:00"],"time_zone":""`, `,"times":["09:00"],"time_zone":"Local"`, `,"times":["09:00"],"starts_at":"2030-01-01T00:00:00Z"`,
		`,"every":"59s"`, `,"every":"8785h"`, `,"every":"1h0.5s"`, `,"every":60`, `,"every":"1h","weekdays":["mon"]`, `,"every":"1h","starts_at":"soon"`,
		`,"every":"1h","pick":"best"`, `,"every":"1h","daily_quota":0`, `,"every":"1h","daily_quota":1001`, `,"every":"1h","jitter":"6m"`, `,"every":"1h","x":1`,
	} {
		e.post("/v1/automations", `{"name":"n","target":"t"`+rest+`}`).problem(http.StatusBadRequest, "bad_request")
	}
	e.post("/v1/automations", `{"name":"n","target":"nobody","every":"1h"}`).problem(http.StatusNotFound, "not_found")
	made := e.keyed("k", "/v1/automations", `{"name":"n","target":"t","every":"1h","starts_at":"2999-01-01T00:00:00Z","pick":"random"}`).want(http.StatusCreated)
	made.equal(`{"every":"1h0m0s","next_at":"2999-01-01T00:00:00.000000Z","weekdays":[],"times":[],"time_zone":"UTC","daily_quota":null,"pick":"random"}`)
	again := e.keyed("k", "/v1/automations", `{"name":"n","target":"t","every":"1h","starts_at":"2999-01-01T00:00:00Z","pick":"random"}`).want(http.StatusCreated)
	if string(made.body) != string(again.body) {
		t.Errorf("%s, again %s", made.body, again.body)
	}
	e.post("/v1/automations", `{"name":"n","target":"t","every":"1h"}`).problem(http.StatusConflict, "automation_exists")
	const absent = "/v1/automations/0198c9f0-0000-7000-8000-000000000000"
	for _, missing := range []*reply{e.get(absent), e.get(absent + "/firings"), e.post(absent+"/pause", ``), e.get("/v1/automations/x")} {
		missing.problem(http.StatusNotFound, "not_found")
	}
	e.by(e.user("alice")).get("/v1/automations").problem(http.StatusForbidden, "forbidden")
}
