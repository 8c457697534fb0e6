package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
	"github.com/fairlead-dev/fairlead/internal/services/publish/deliver"
)

// useSubscriptions calls the routes of subscriptions, each with success.
func (e *env) useSubscriptions(target string) {
	e.t.Helper()
	topic := "auction:" + e.auctioned(`[{"winners":1,"duration":"1h"}]`, "")
	path := "/v1/subscriptions/" + e.subscribe("used", target, fmt.Sprintf(`"topics":[%q],"types":["bid.placed"]`, topic)).str("id")
	conn := e.connect()
	defer func() { _ = conn.Close(context.Background()) }()
	_, err := conn.Exec(e.t.Context(), `UPDATE subscription_topics SET attempts = 1, last_error = 'the target answered 500', last_cause = 'status', status_code = 500, retry_at = now()`)
	must(e.t, err)
	for _, at := range []string{"/v1/subscriptions", path, path + "/topics"} {
		e.get(at).want(http.StatusOK)
	}
	for verb, body := range map[string]string{"/pause": ``, "/replay": fmt.Sprintf(`{"topic":%q,"after":0}`, topic)} {
		e.post(path+verb, body).want(http.StatusOK)
	}
	e.post(path+"/resume", ``).want(http.StatusOK)
	e.post(path+"/pause", ``).want(http.StatusOK) // It stays, for those who read everything that is there.
	ended := "/v1/subscriptions/" + e.subscribe("ended", target, fmt.Sprintf(`"topics":[%q]`, topic)).str("id")
	e.send(send{method: http.MethodDelete, path: ended, key: newUUID()}).want(http.StatusOK)
}

// subscribe makes a subscription.
func (e *env) subscribe(name, target, rest string) *reply {
	e.t.Helper()
	return e.post("/v1/subscriptions", fmt.Sprintf(`{"name":%q,"target":%q,%s}`, name, target, rest)).want(http.StatusCreated)
}

// comes waits until a receiver has so many deliveries.
func (r *receiver) comes(t *testing.T, n int) []delivery {
	t.Helper()
	var got []delivery
	eventually(t, patience, fmt.Sprintf("delivery %d", n), func() bool {
		got = r.deliveries()
		return len(got) >= n
	})
	return got
}

// TestSubscription has the events of an auction arrive signed and in order, the later ones too, replays them, and ends.
func TestSubscription(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	r := newReceiver(t, nil)
	secret := e.target("hook", r.URL)
	lot := e.started(`[{"winners":1,"duration":"1h"}]`, `"cooldown":"0s"`)
	topic := "auction:" + lot
	who := e.bidders(2, 100)
	e.bid(lot, who[0], 5).want(http.StatusCreated)
	made := e.subscribe("all", "hook", fmt.Sprintf(`"topics":[%q],"from":"start"`, topic))
	made.exactly(made.decoded, "id", "name", "target", "topics", "types", "envelope", "refusals", "paused_at", "paused_reason", "created_at").uuids("id").times("created_at")
	made.equal(`{"name":"all","target":"hook","types":[],"envelope":"plain","refusals":0,"paused_at":null,"paused_reason":null}`)
	path := "/v1/subscriptions/" + made.str("id")
	e.get(path + "/topics").want(http.StatusOK).equal(fmt.Sprintf(`{"items":[{"topic":%q,"state":"behind","seq":0,"head":3,"lag":3,"attempts":0,"retry_at":null,"last_error":null,"delivered_at":null}],"next":null}`, topic))
	e.publishing()
	r.comes(t, 3) // The auction's start, its round's, and the bid.
	e.bid(lot, who[1], 7).want(http.StatusCreated)
	e.deliverer.Grown(topic, 4)
	got := r.comes(t, 4)
	for i, d := range got {
		id := deliver.EventID(uuid.MustParse(made.str("id")), topic, int64(i+1)).String()
		if want := fmt.Sprintf(`{"topic":%q,"seq":%d,`, topic, i+1); !strings.HasPrefix(string(d.body), want) || d.header.Get("webhook-id") != id || !verified(t, secret, d) {
			t.Errorf("delivery %d, with id %s: %s", i, d.header.Get("webhook-id"), d.body)
		}
	}
	eventually(t, patience, "the last place", func() bool { return e.get(path+"/topics").shows("items.0.state", "current") })

	e.post(path+"/pause", ``).want(http.StatusOK).equal(`{"paused_reason":"request"}`).times("paused_at")
	e.post(path+"/pause", ``).problem(http.StatusConflict, "bad_transition")
	e.post(path+"/replay", fmt.Sprintf(`{"topic":%q,"after":2}`, topic)).want(http.StatusOK)
	if got := e.get(path + "/topics").want(http.StatusOK); got.str("items.0.state") != "behind" || got.num("items.0.seq") != 2 || got.num("items.0.lag") != 2 {
		t.Errorf("%s", got.body)
	}
	e.post(path+"/resume", ``).want(http.StatusOK).equal(`{"paused_reason":null,"paused_at":null}`)
	e.post(path+"/resume", ``).problem(http.StatusConflict, "bad_transition")
	again := r.comes(t, 6)
	for i, d := range again[4:] {
		if string(d.body) != string(got[i+2].body) || d.header.Get("webhook-id") != got[i+2].header.Get("webhook-id") {
			t.Errorf("replayed %s, before %s", d.body, got[i+2].body)
		}
	}
	e.post(path+"/replay", fmt.Sprintf(`{"topic":%q,"after":5}`, topic)).problem(http.StatusUnprocessableEntity, "replay_out_of_range")
	e.post(path+"/replay", `{"topic":"auction:0198c9f0-0000-7000-8000-000000000000","after":0}`).problem(http.StatusNotFound, "not_found")

	end := send{method: http.MethodDelete, path: path, key: "end"}
	first, second := e.send(end).want(http.StatusOK), e.send(end).want(http.StatusOK)
	if string(first.body) != string(second.body) {
		t.Errorf("%s, again %s", first.body, second.body)
	}
	e.send(send{method: http.MethodDelete, path: path, key: "other"}).problem(http.StatusNotFound, "not_found")
	for _, gone := range []string{path, path + "/topics"} {
		e.get(gone).problem(http.StatusNotFound, "not_found")
	}
	e.get("/v1/subscriptions").want(http.StatusOK).equal(`{"items":[]}`)
	e.subscribe("all", "hook", `"topics":["auction:*"]`) // The name is free.
	e.audited()
}

// TestRefusedSubscription has a target refuse the events of many topics for good, which pauses the subscription.
func TestRefusedSubscription(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	r := newReceiver(t, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusGone) })
	e.target("hook", r.URL)
	for range 10 {
		e.started(`[{"winners":1,"duration":"1h"}]`, "")
	}
	path := "/v1/subscriptions/" + e.subscribe("refused", "hook", `"topics":["auction:*"],"from":"start","envelope":"cloudevents"`).str("id")
	e.publishing()
	eventually(t, patience, "paused", func() bool { return e.get(path).decoded["paused_reason"] != nil })
	e.get(path).want(http.StatusOK).equal(`{"paused_reason":"refused"}`).times("paused_at")
	topics := e.get(path + "/topics").want(http.StatusOK)
	if topics.str("items.0.state") != "retrying" || topics.str("items.0.last_error.cause") != "status" || topics.str("items.0.last_error.message") != "the target answered 410" {
		t.Errorf("%s", topics.body)
	}
	if got := r.deliveries()[0].header.Get("content-type"); got != "application/cloudevents+json; charset=utf-8" {
		t.Errorf("sent as %q", got)
	}
	e.post(path+"/resume", ``).want(http.StatusOK).equal(`{"paused_reason":null,"refusals":0}`)
}

func TestSubscriptionsAreChecked(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.target("hook", "http://127.0.0.1:9/")
	e.post("/v1/targets", `{"name":"art","kind":"deviantart","config":{"client_id":"1","client_secret":"s","refresh_token":"r"}}`).want(http.StatusCreated)
	e.subscribe("taken", "hook", `"topics":["auction:*","campaign:*","multidraw:*"],"types":["bid.placed"]`)
	const some = `"name":"n","target":"hook","topics":`
	for body, code := range map[string]string{
		`{"name":"taken","target":"hook","topics":["auction:*"]}`: "subscription_exists", `{"name":"n","target":"art","topics":["auction:*"]}`: "webhook_required",
		`{"name":"n","target":"no","topics":["auction:*"]}`: "not_found", `{` + some + `["auction:0198c9f0-0000-7000-8000-000000000000"]}`: "not_found",
		`{` + some + `[]}`: "bad_request", `{"name":"n","target":"hook"}`: "bad_request", `{` + some + `["auction:1"]}`: "bad_request",
		`{` + some + `["account:*"]}`: "bad_request", `{` + some + `["auction:*","auction:*"]}`: "bad_request",
		`{` + some + `["auction:0198C9F0-0000-7000-8000-000000000000"]}`: "bad_request", `{` + some + `["auction:*"],"types":[]}`: "bad_request",
		`{` + some + `["auction:*"],"types":["bid.placed","bid.placed"]}`: "bad_request", `{` + some + `["auction:*"],"envelope":"xml"}`: "bad_request",
		`{` + some + `["auction:*"],"from":"7"}`: "bad_request", `{"name":"","target":"hook","topics":["auction:*"]}`: "bad_request",
	} {
		if got := e.post("/v1/subscriptions", body); got.str("code") != code {
			t.Errorf("%s: %s", body, got.body)
		}
	}
	for _, kind := range []string{"bid.place", "Bid.placed", "bid.*", "", "countdown", "bid.outbid"} {
		refused := e.post("/v1/subscriptions", fmt.Sprintf(`{%s["auction:*"],"types":["bid.placed",%q]}`, some, kind)).problem(http.StatusBadRequest, "bad_request")
		if detail := refused.str("detail"); !strings.Contains(detail, "round.extended") {
			t.Errorf("the type %q is refused without a word about those that there are: %s", kind, detail)
		}
	}
	e.subscribe("each", "hook", fmt.Sprintf(`"topics":["auction:*","campaign:*","multidraw:*"],"types":["%s"]`, strings.Join(publish.EventTypes(), `","`)))
	path := "/v1/subscriptions/" + e.get("/v1/subscriptions").str("items.0.id")
	for _, bad := range []string{`{}`, `{"topic":"auction:*","after":0}`, `{"topic":"auction:0198c9f0-0000-7000-8000-000000000000","after":-1}`} {
		e.post(path+"/replay", bad).problem(http.StatusBadRequest, "bad_request")
	}
}

// TestALockedPlaceStopsItsOwnSubscriptionAlone has another session keep the place of one of two subscriptions locked.
func TestALockedPlaceStopsItsOwnSubscriptionAlone(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	held, free := newReceiver(t, nil), newReceiver(t, nil)
	e.target("held", held.URL)
	e.target("free", free.URL)
	lot := e.started(`[{"winners":1,"duration":"1h"}]`, `"cooldown":"0s"`)
	topic := "auction:" + lot
	id := e.subscribe("held", "held", fmt.Sprintf(`"topics":[%q],"from":"start"`, topic)).str("id")
	e.subscribe("free", "free", fmt.Sprintf(`"topics":[%q],"from":"start"`, topic))
	stranger := e.connect()
	t.Cleanup(func() { _ = stranger.Close(context.Background()) })
	tx, err := stranger.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM subscription_topics WHERE subscription = $1 FOR UPDATE`, id)
	must(t, err)

	e.publishing()
	held.comes(t, 1) // It arrives, and can't be recorded.
	free.comes(t, 2)
	who := e.bidders(4, 100)
	for i := range who {
		e.bid(lot, who[i], int64(5+i)).want(http.StatusCreated)
		e.deliverer.Grown(topic, int64(3+i))
		free.comes(t, 3+i)
	}
	if got := held.deliveries(); len(got) != 1 {
		t.Errorf("%d deliveries whose first could not be recorded", len(got))
	}
	must(t, tx.Rollback(t.Context()))
	var seqs []string
	for _, d := range held.comes(t, 6) {
		if id := d.header.Get("webhook-id"); !slices.Contains(seqs, id) {
			seqs = append(seqs, id)
		}
	}
	if len(seqs) < 5 { // The first one comes again if the wait for the lock was given up.
		t.Errorf("deliveries %v", seqs)
	}
	e.audited()
}
