package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/fairlead-dev/fairlead/internal/services/publish/deviantart/deviantarttest"
)

// verified reports whether a receiver that has the secret takes the delivery.
func verified(t *testing.T, secret string, d delivery) bool {
	t.Helper()
	verifier, err := standardwebhooks.NewWebhook(secret)
	must(t, err)
	return verifier.Verify(d.body, d.header) == nil
}

// TestSecretRotation replaces a secret: both sign while they overlap, the new one alone without, and none is shown twice.
func TestSecretRotation(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.publishing()
	r := newReceiver(t, nil)
	made := e.post("/v1/targets", fmt.Sprintf(`{"name":"t","kind":"webhook","url":%q}`, r.URL)).want(http.StatusCreated)
	path := "/v1/targets/" + made.str("id")
	secrets := []string{made.str("secret")}
	for i, body := range []string{`{"overlap":"1h"}`, `{"overlap":"0s"}`} {
		key := fmt.Sprint("rotate", i)
		first := e.keyed(key, path+"/secret", body).want(http.StatusOK)
		again := e.keyed(key, path+"/secret", body).want(http.StatusOK)
		if string(first.body) != string(again.body) {
			t.Errorf("%s, again %s", first.body, again.body)
		}
		secrets = append(secrets, first.str("secret"))
		if ends := e.get(path).want(http.StatusOK).at("overlap_until"); (ends != nil) != (i == 0) {
			t.Errorf("rotation %d: the overlap ends at %v", i, ends)
		}
		e.becomes(e.publication("t", `,"payload":1`+longAgo), "published")
		got := r.deliveries()
		d := got[len(got)-1]
		for j, secret := range secrets {
			want := j == i+1 || i == 0 && j == 0
			if verified(t, secret, d) != want {
				t.Errorf("after rotation %d, secret %d signs: %v", i, j, !want)
			}
		}
	}
	// An overlap ends by itself.
	last := e.post(path+"/secret", ``).want(http.StatusOK).str("secret")
	conn := e.connect()
	defer func() { _ = conn.Close(context.Background()) }()
	_, err := conn.Exec(t.Context(), `UPDATE targets SET previous_until = clock_timestamp()`)
	must(t, err)
	e.becomes(e.publication("t", `,"payload":1`+longAgo), "published")
	if got := r.deliveries(); !verified(t, last, got[len(got)-1]) || verified(t, secrets[2], got[len(got)-1]) {
		t.Error("the old secret signs after its overlap")
	}
	var stored string
	e.sql(&stored, `SELECT string_agg(convert_from(body, 'UTF8'), ' ') || (SELECT string_agg(t::text, '') FROM targets t) FROM idempotency_keys`)
	for _, secret := range secrets {
		if strings.Contains(stored, strings.TrimPrefix(secret, "whsec_")) {
			t.Error("a secret is stored as it is")
		}
	}
	for _, bad := range []string{`{"overlap":"721h"}`, `{"overlap":"-1s"}`, `{"overlap":1}`, `{"x":1}`} {
		e.post(path+"/secret", bad).problem(http.StatusBadRequest, "bad_request")
	}
	e.post(path+"/credentials", `{"refresh_token":"r"}`).problem(http.StatusConflict, "wrong_kind")
	for _, verb := range []string{"secret", "pause", "resume"} {
		e.post("/v1/targets/0198c9f0-0000-7000-8000-000000000000/"+verb, ``).problem(http.StatusNotFound, "not_found")
		e.by(e.user("alice")).post(path+"/"+verb, ``).problem(http.StatusForbidden, "forbidden")
	}
}

// TestPausedTarget keeps the publications of a paused target back, and nobody else's.
func TestPausedTarget(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.publishing()
	r := newReceiver(t, nil)
	path := "/v1/targets/" + e.post("/v1/targets", fmt.Sprintf(`{"name":"t","kind":"webhook","url":%q}`, r.URL)).want(http.StatusCreated).str("id")
	e.target("other", r.URL)
	e.post(path+"/resume", ``).problem(http.StatusConflict, "bad_transition")
	e.post(path+"/pause", ``).want(http.StatusOK).equal(`{"paused_reason":"request"}`).times("paused_at")
	e.post(path+"/pause", ``).problem(http.StatusConflict, "bad_transition")
	kept := e.publication("t", `,"payload":1`+longAgo)
	e.becomes(e.publication("other", `,"payload":2`+longAgo), "published")
	e.get(kept).want(http.StatusOK).equal(`{"status":"scheduled","attempts":0}`)
	e.post(path+"/resume", ``).want(http.StatusOK).equal(`{"paused_reason":null,"paused_at":null}`)
	e.becomes(kept, "published")
}

// TestDeviantArt publishes to an account at the double: the authorization ends, the target is paused, and goes on with a new one.
func TestDeviantArt(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.publishing()
	account := deviantarttest.New()
	t.Cleanup(account.Close)
	made := e.post("/v1/targets", fmt.Sprintf(`{"name":"art","kind":"deviantart","url":%q,"config":{"timeout":"5s","client_id":%q,"client_secret":%q,"refresh_token":%q}}`,
		account.URL, deviantarttest.ClientID, deviantarttest.ClientSecret, account.Refresh())).want(http.StatusCreated)
	made.equal(`{"kind":"deviantart","secret":""}`)
	path := "/v1/targets/" + made.str("id")
	const picture = `,"payload":{"title":"a picture","tags":["x"],"file":{"name":"a.png","data":"UE5H"}}`
	done := e.becomes(e.publication("art", picture+longAgo), "published")
	if g := account.Gallery(); len(g) != 1 || g[0].ID != done.str("external_id") || g[0].File != "PNG" {
		t.Fatalf("%+v, %s", g, done.body)
	}
	e.becomes(e.publication("art", `,"payload":{"title":"no file"}`+longAgo), "failed")

	again := account.Withdraw()
	stuck := e.publication("art", picture+longAgo)
	eventually(t, patience, "the target is paused", func() bool { return e.get(path).shows("paused_reason", "auth_expired") })
	waiting := e.get(stuck).want(http.StatusOK).equal(`{"status":"scheduled"}`)
	if !strings.Contains(waiting.str("last_error"), "expired") {
		t.Errorf("%s", waiting.body)
	}
	e.post(path+"/secret", ``).problem(http.StatusConflict, "wrong_kind")
	for _, bad := range []string{``, `{}`, `{"client_id":"1"}`, `{"refresh_token":""}`, `{"refresh_token":"` + strings.Repeat("x", 5000) + `"}`} {
		e.post(path+"/credentials", bad).problem(http.StatusBadRequest, "bad_request")
	}
	e.post(path+"/credentials", fmt.Sprintf(`{"refresh_token":%q}`, again)).want(http.StatusOK).equal(`{"paused_reason":null}`)
	if done := e.becomes(stuck, "published"); done.num("attempts") != 2 {
		t.Errorf("%s", done.body)
	}
	if n := account.Renewals(); n != 2 || len(account.Gallery()) != 2 || len(account.Stash()) != 0 {
		t.Errorf("%d renewals, %v, %v", n, account.Gallery(), account.Stash())
	}
	var stored string
	e.sql(&stored, `SELECT (SELECT string_agg(t::text, '') FROM targets t) || (SELECT string_agg(k::text, '') FROM target_tokens k)`)
	if strings.Contains(stored, account.Refresh()) || strings.Contains(stored, deviantarttest.ClientSecret) {
		t.Error("credentials are stored as they are")
	}
}

// TestBreakerIsShown has a target refuse three publications: nothing more is sent, and the API says why.
func TestBreakerIsShown(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.publishing()
	r := newReceiver(t, func(_ int, w http.ResponseWriter) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	path := "/v1/targets/" + e.post("/v1/targets", fmt.Sprintf(`{"name":"t","kind":"webhook","url":%q}`, r.URL)).want(http.StatusCreated).str("id")
	e.get(path).want(http.StatusOK)
	hold := e.get(path).str("pace.state")
	if hold != "free" {
		t.Error(hold)
	}
	e.post(path+"/pause", ``).want(http.StatusOK)
	for range 3 {
		e.publication("t", `,"payload":1`+longAgo)
	}
	e.post(path+"/resume", ``).want(http.StatusOK)
	eventually(t, patience, "the breaker opens", func() bool { return e.get(path).shows("pace.state", "open") })
	e.publication("t", `,"payload":1`+longAgo)
	if got := e.get(path).want(http.StatusOK); got.num("pace.refusals") != 3 || got.at("pace.open_until") == nil {
		t.Errorf("%s", got.body)
	}
	e.target("other", r.URL+"/other")
	eventually(t, patience, "another target is tried", func() bool {
		e.publication("other", `,"payload":1`+longAgo)
		return len(r.deliveries()) > 3
	})
}

// TestTargetHealth follows what targets say of themselves: nothing yet, a failure and its cause, a delivery, a pause.
func TestTargetHealth(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.publishing()
	r := newReceiver(t, func(n int, w http.ResponseWriter) {
		if n == 1 {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	path := "/v1/targets/" + e.post("/v1/targets", fmt.Sprintf(`{"name":"t","kind":"webhook","url":%q}`, r.URL)).want(http.StatusCreated).str("id")
	e.get(path).want(http.StatusOK).equal(`{"health.state":"idle","health.last_success_at":null}`)
	failed := e.publication("t", `,"payload":1`+longAgo)
	e.becomes(failed, "failed")
	e.get(path).want(http.StatusOK).equal(fmt.Sprintf(
		`{"health.state":"failing","health.last_success_at":null,"health.last_error.cause":"status","health.last_error.status_code":404,
			"health.last_error.message":"the target answered 404","health.last_error.publication":%q}`,
		strings.TrimPrefix(failed, "/v1/publications/")))
	e.becomes(e.publication("t", `,"payload":2`+longAgo), "published")
	e.get(path).want(http.StatusOK).equal(`{"health.state":"delivering","health.last_error.cause":"status"}`).times("health.last_success_at", "health.last_error.at")
	// An older server's commands know nothing of it, and neither do the answers of ours.
	if paused := e.post(path+"/pause", ``).want(http.StatusOK); strings.Contains(string(paused.body), "health") {
		t.Errorf("a command's answer tells of outcomes: %s", paused.body)
	}
	e.get(path).want(http.StatusOK).equal(`{"health.state":"paused","paused_reason":"request"}`)
	if listed := fmt.Sprint(e.get("/v1/targets").want(http.StatusOK).at("items")); !strings.Contains(listed, "state:paused") {
		t.Errorf("the list has %s", listed)
	}

	// Nobody listens there.
	gone := "/v1/targets/" + e.post("/v1/targets", fmt.Sprintf(`{"name":"gone","kind":"webhook","url":%q}`, "http://127.0.0.1:9/")).want(http.StatusCreated).str("id")
	e.becomes(e.publication("gone", `,"payload":3`+longAgo), "failed")
	e.get(gone).want(http.StatusOK).equal(`{"health.state":"failing","health.last_error.cause":"refused","health.last_error.status_code":null}`)
}
