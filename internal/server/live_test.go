package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead-dev/fairlead/internal/auth"
	"github.com/fairlead-dev/fairlead/internal/live"
)

const oneRound = `[{"winners":1,"duration":"1h"}]`

func TestLiveHandshake(t *testing.T) {
	t.Parallel()
	l := newLiveEnv(t, newEnv(t), live.Options{}, nil)
	anonymous, user := *l, *l
	anonymous.env, user.env = l.by(""), l.by(l.user("ann"))
	own := l.url // http://127.0.0.1:PORT
	for name, c := range map[string]struct {
		l         *liveEnv
		header    http.Header
		protocols []string
		status    int
		chosen    string
	}{
		"key":                       {l, nil, nil, 101, ""},
		"user":                      {&user, nil, nil, 101, ""},
		"key in the subprotocol":    {&anonymous, nil, []string{"fairlead", "bearer." + l.admin}, 101, "fairlead"},
		"own origin":                {l, http.Header{"Origin": {own}}, nil, 101, ""},
		"allowed origin":            {l, http.Header{"Origin": {"https://app.example"}}, nil, 101, ""},
		"no credential":             {&anonymous, nil, nil, 401, ""},
		"bad key":                   {&anonymous, nil, []string{"fairlead", "bearer.nonsense"}, 401, ""},
		"bearer without fairlead":   {&anonymous, nil, []string{"bearer." + l.admin}, 401, ""},
		"no credential, bad origin": {&anonymous, http.Header{"Origin": {"https://evil.example"}}, nil, 401, ""},
		"foreign origin":            {l, http.Header{"Origin": {"https://evil.example"}}, nil, 403, ""},
		"foreign subdomain":         {l, http.Header{"Origin": {"https://x.app.example"}}, nil, 403, ""},
		"no scheme":                 {l, http.Header{"Origin": {"null"}}, nil, 403, ""},
		"two origins":               {l, http.Header{"Origin": {own, own}}, nil, 403, ""},
	} {
		ws, r, err := c.l.dial(c.header, c.protocols...)
		if r == nil || r.StatusCode != c.status {
			t.Errorf("%s: %v, %v", name, r, err)
			continue
		}
		if ws != nil {
			if ws.Subprotocol() != c.chosen {
				t.Errorf("%s: subprotocol %q", name, ws.Subprotocol())
			}
			_ = ws.CloseNow()
		}
	}
	for name, header := range map[string]http.Header{
		"no upgrade": {},
		"version":    {"Connection": {"keep-alive, Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"8"}},
		"key":        {"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"short"}},
	} {
		r := l.stream(t, livePath, header)
		want := map[string]int{"no upgrade": 426, "version": 426, "key": 400}[name]
		if r.StatusCode != want || r.Header.Get("Content-Type") != contentTypeProblem {
			t.Errorf("%s: %s, %s", name, r.Status, r.Header)
		}
		_ = r.Body.Close()
	}
}

func TestLiveAuction(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	l := newLiveEnv(t, e, live.Options{}, nil)
	e.account("ann", "EUR", 1000)
	e.account("bob", "EUR", 1000)
	id := e.started(oneRound, `"cooldown":"0s"`)
	topic := "auction:" + id
	c := l.connect()
	if head := c.subscribe(topic, `,"since":0`); head != 2 {
		t.Errorf("head %d", head)
	}
	if rounds, ok := c.event(1, "auction.started").Data["rounds"].([]any); !ok || len(rounds) != 1 {
		t.Error("no rounds")
	}
	c.event(2, "round.started")
	e.bid(id, "ann", 100).want(http.StatusCreated)
	if d := c.event(3, "bid.placed").Data; d["account"] != "ann" || d["amount"] != 100.0 || d["previous_amount"] != 0.0 || d["round"] != 1.0 || d["rank"] != 1.0 || fmt.Sprint(d["outbid"]) != "[]" || len(d) != 6 {
		t.Errorf("bid.placed: %v", d)
	}
	late := l.connect()
	if head := late.subscribe(topic, `,"since":null`); head != 3 {
		t.Errorf("head %d", head)
	}
	l.hub.Broadcast(topic, live.Event{Type: "countdown", At: time.Now(), Data: []byte(`{"round":1,"remaining_ms":5000}`)})
	for _, c := range []*wsClient{c, late} {
		if h := c.hear(); h.Type != "countdown" || h.Seq != nil || h.Data["remaining_ms"] != 5000.0 {
			t.Errorf("countdown: %+v", h)
		}
	}
	e.closeRound(id, 1)
	for _, c := range []*wsClient{c, late} {
		if w, ok := c.event(4, "round.completed").Data["winners"].([]any); !ok || len(w) != 1 {
			t.Error("no winners")
		}
		c.event(5, "auction.completed")
	}
	// A second subscription starts anew; none is none.
	if head := late.subscribe(topic, `,"since":3`); head != 5 {
		t.Errorf("head %d", head)
	}
	late.event(4, "round.completed")
	late.event(5, "auction.completed")
	late.say(`{"op":"unsubscribe","topic":%q}`, topic)
	if h := late.hear(); h.Op != "unsubscribed" || h.Topic != topic {
		t.Errorf("%+v", h)
	}
}

func TestLiveCampaign(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	l := newLiveEnv(t, e, live.Options{}, nil)
	e.account("ann", "EUR", 1000)
	id := e.onSale(`"base_length":2`, "")
	first := e.buy(id, "ann").want(http.StatusCreated)
	user := *l
	user.env = l.by(l.user("zoe"))
	c := user.connect()
	if head := c.subscribe("campaign:"+id, `,"since":0`); head != 1 {
		t.Errorf("head %d", head)
	}
	d := c.event(1, "purchase.made").Data
	position, ok := d["position"].(map[string]any)
	bought, _ := first.decoded["position"].(map[string]any)
	if !ok || d["account"] != "ann" || len(d) != 2 || position["id"] != bought["id"] || len(position) != 3 {
		t.Errorf("purchase.made: %v", d)
	}
	e.buy(id, "ann").want(http.StatusCreated)
	e.buy(id, "ann").want(http.StatusCreated)
	c.event(2, "purchase.made")
	c.event(3, "purchase.made")
	draw := c.event(4, "draw.completed").Data
	shown := e.get("/v1/campaigns/" + id + "/draw").want(http.StatusOK)
	if draw["campaign"] != id || draw["completed_at"] != shown.str("completed_at") || len(draw) != len(shown.decoded) {
		t.Errorf("draw.completed: %v, shown %s", draw, shown.body)
	}
	if head := c.subscribe("campaign:"+id, `,"since":3`); head != 4 {
		t.Errorf("head %d", head)
	}
	c.event(4, "draw.completed")
}

func TestLiveRefusals(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	l := newLiveEnv(t, e, live.Options{MaxTopics: 2}, nil)
	id := e.started(oneRound, "")
	var one int
	e.sql(&one, `WITH x AS (UPDATE auctions SET first_seq = 2 WHERE id = $1 RETURNING 1) SELECT count(*) FROM x`, id)
	c := l.connect()
	for text, code := range map[string]string{
		`{`:                            "bad_request",
		`[]`:                           "bad_request",
		`{"op":"dance"}`:               "bad_request",
		`{"op":"subscribe","top":1}`:   "bad_request",
		`{"op":"subscribe","topic":1}`: "bad_request",
		`{"op":"subscribe","topic":"auction:` + id + `","since":-1}`:  "bad_request",
		`{"op":"subscribe","topic":"auction:` + id + `","since":1.5}`: "bad_request",
		`{"op":"subscribe","topic":"auction:` + id + `","since":0}`:   "events_expired",
		`{"op":"subscribe","topic":"auction:` + id + `","since":99}`:  "unknown_seq",
		`{"op":"subscribe","topic":"auction:` + newUUID() + `"}`:      "not_found",
		`{"op":"subscribe","topic":"campaign:` + id + `"}`:            "not_found",
		`{"op":"subscribe","topic":"auction:{` + id + `}"}`:           "not_found",
		`{"op":"subscribe","topic":"accounts"}`:                       "not_found",
		`{"op":"unsubscribe","topic":"auction:` + id + `"}`:           "not_found",
	} {
		c.say("%s", text)
		h := c.hear()
		if h.Op != "error" || h.Problem == nil || h.Problem.Code != code || h.Problem.RequestID == "" {
			t.Errorf("%s: %+v, %+v", text, h, h.Problem)
		}
		if text == "[]" && h.Problem != nil && h.Problem.Detail != "a JSON object is needed" {
			t.Errorf("%s: %s", text, h.Problem.Detail)
		}
		if code == "events_expired" && (h.FirstSeq == nil || *h.FirstSeq != 2 || h.Topic != "auction:"+id) {
			t.Errorf("%+v", h)
		}
		if code == "unknown_seq" && (h.LastSeq == nil || *h.LastSeq != 2) {
			t.Errorf("%+v", h)
		}
	}
	must(t, c.ws.Write(t.Context(), websocket.MessageBinary, []byte("x")))
	if h := c.hear(); h.Op != "error" {
		t.Errorf("%+v", h)
	}
	c.subscribe("auction:"+id, "")
	c.subscribe("auction:"+e.auctioned(oneRound, ""), "")
	c.say(`{"op":"subscribe","topic":"auction:%s"}`, e.auctioned(oneRound, ""))
	if h := c.hear(); h.Problem == nil || h.Problem.Code != "too_many_subscriptions" {
		t.Errorf("%+v", h)
	}
	must(t, c.ws.Write(t.Context(), websocket.MessageText, make([]byte, 64<<10+1)))
	if code, _ := c.ended(); code != websocket.StatusMessageTooBig {
		t.Errorf("a message too large: %d", code)
	}
}

func TestLiveBids(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	l := newLiveEnv(t, e, live.Options{}, nil)
	id := e.started(oneRound, `"cooldown":"0s"`)
	e.account("ann", "EUR", 1_000_000)
	ann := *l
	ann.env = l.by(l.user("ann"))
	c := ann.connect()
	c.say(`{"op":"bid","id":"a","auction":%q,"account":"ann","amount":100,"key":"k1"}`, id)
	h := c.hear()
	if h.Op != "bid" || h.ID != "a" || h.Status != 201 || h.Replayed || h.Data["amount"] != 100.0 || h.Data["seq"] != 3.0 || h.Problem != nil {
		t.Errorf("%+v %+v", h, h.Problem)
	}
	c.say(`{"op":"bid","id":"b","auction":%q,"account":"ann","amount":100,"key":"k1"}`, id)
	if again := c.hear(); again.ID != "b" || again.Status != 201 || !again.Replayed || fmt.Sprint(again.Data) != fmt.Sprint(h.Data) {
		t.Errorf("again: %+v %+v", again, again.Problem)
	}
	// The same request over HTTP has this answer, and the same key with another body is refused here as there.
	if r := ann.env.keyed("k1", "/v1/auctions/"+id+"/bids", `{"account":"ann","amount":100}`).want(http.StatusCreated); r.header.Get("Idempotent-Replayed") != "true" {
		t.Error("it was not replayed")
	}
	for text, want := range map[string]struct {
		status int
		code   string
	}{
		fmt.Sprintf(`{"op":"bid","id":7,"auction":%q,"account":"ann","amount":101,"key":"k1"}`, id):      {422, "idempotency_key_reused"},
		fmt.Sprintf(`{"op":"bid","id":7,"auction":%q,"account":"ann","amount":100,"key":"k2"}`, id):      {422, "bid_too_low"},
		fmt.Sprintf(`{"op":"bid","id":7,"auction":%q,"account":"bob","amount":200,"key":"k3"}`, id):      {403, "forbidden"},
		fmt.Sprintf(`{"op":"bid","id":7,"auction":%q,"account":"ann","amount":200}`, id):                 {400, "idempotency_key_required"},
		fmt.Sprintf(`{"op":"bid","id":7,"auction":%q,"account":"ann","amount":0,"key":"k4"}`, id):        {400, "bad_request"},
		fmt.Sprintf(`{"op":"bid","id":7,"auction":%q,"account":"ann","amount":1,"key":"k4","x":1}`, id):  {400, "bad_request"},
		fmt.Sprintf(`{"op":"bid","id":7,"auction":%q,"account":"ann","amount":1,"key":"k4"}`, newUUID()): {404, "not_found"},
		`{"op":"bid","id":7,"auction":"x","account":"ann","amount":1,"key":"k4"}`:                        {404, "not_found"},
	} {
		c.say("%s", text)
		if h := c.hear(); h.Op != "bid" || h.ID != 7.0 || h.Status != want.status || h.Problem == nil || h.Problem.Code != want.code || h.Data != nil {
			t.Errorf("%s: %+v %+v", text, h, h.Problem)
		}
	}
	// Many at once: each is answered under its id, and all but those that came too late for their amount are accepted.
	const bids = 100
	for i := range bids {
		c.say(`{"op":"bid","id":%d,"auction":%q,"account":"ann","amount":%d,"key":"many-%d"}`, i, id, 1000+i, i)
	}
	seen := map[any]bool{}
	for range bids {
		h := c.hear()
		seen[h.ID] = true
		if h.Status != 201 && (h.Problem == nil || h.Problem.Code != "bid_too_low") {
			t.Errorf("%+v %+v", h, h.Problem)
		}
	}
	if len(seen) != bids {
		t.Errorf("%d of %d answered", len(seen), bids)
	}
}

// TestLiveBatches sends the same batch over a socket and over HTTP.
func TestLiveBatches(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	l := newLiveEnv(t, e, live.Options{}, nil)
	e.account("ann", "EUR", 100)
	e.account("ben", "EUR", 0)
	ann := *l
	ann.env = l.by(l.user("ann"))
	c := ann.connect()
	batch := batchOf(listed("/v1/transfers", `{"from":"ann","to":"ben","amount":40}`), listed("/v1/transfers", `{"from":"ann","to":"ben","amount":70}`),
		listed("/v1/transfers", `{"from":"ben","to":"ann","amount":1}`), listed("/v1/deposits", `{"account":"ann","amount":1}`))
	c.say(`{"op":"commands","id":"b",%s`, batch[1:])
	h := c.hear()
	if h.Op != "commands" || h.ID != "b" || h.Status != http.StatusOK || h.Problem != nil {
		t.Fatalf("%+v %+v", h, h.Problem)
	}
	results, _ := h.Data["results"].([]any)
	var statuses []any
	for _, r := range results {
		statuses = append(statuses, r.(map[string]any)["status"]) //nolint:errcheck,forcetypeassert // Else the test panics.
	}
	if fmt.Sprint(statuses) != "[201 402 403 403]" {
		t.Errorf("results %v", results)
	}
	again := ann.env.send(send{method: http.MethodPost, path: batchPath, body: batch}).results(4)
	if !again[0].Replayed || !again[1].Replayed {
		t.Errorf("over HTTP: %+v", again)
	}
	e.balance("ben", 40, 0)
	for _, text := range []string{`{"op":"commands","id":"b"}`, `{"op":"commands","id":"b","commands":[]}`, `{"op":"commands","id":"b","commands":{"x":1}}`} {
		c.say("%s", text)
		if h := c.hear(); h.Op != "commands" || h.ID != "b" || h.Problem == nil || h.Problem.Code != "bad_request" {
			t.Errorf("%s: %+v %+v", text, h, h.Problem)
		}
	}
}

func TestLiveRateLimit(t *testing.T) {
	t.Parallel()
	e := newEnvWith(t, setup{limiter: &auth.LimiterOptions{Quota: 3, Window: time.Hour}})
	l := newLiveEnv(t, e, live.Options{}, nil)
	id := e.started(oneRound, "")
	ann := *l
	ann.env = l.by(l.user("ann"))
	c := ann.connect() // 1
	c.subscribe("auction:"+id, "")
	c.say(`{"op":"bid","auction":%q,"account":"ann","amount":5,"key":"k"}`, id)
	if h := c.hear(); h.Problem == nil || h.Problem.Code != "not_found" { // There is no such account.
		t.Errorf("%+v %+v", h, h.Problem)
	}
	for text, outcome := range map[string]string{
		`{"op":"bid","auction":%q,"account":"ann","amount":5,"key":"k"}`: outcomeUnknown, // The key was not read.
		`{"op":"subscribe","topic":"auction:%s"}`:                        notApplied,
	} {
		c.say(text, id)
		if h := c.hear(); h.Problem == nil || h.Problem.Code != "rate_limited" || h.Problem.Outcome != outcome {
			t.Errorf("%+v %+v", h, h.Problem)
		}
	}
}

func TestARevokedKeyEndsItsSockets(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	l := newLiveEnv(t, e, live.Options{}, nil)
	keyID, secret := e.makeKey(auth.RoleService, "short-lived")
	other := *l
	other.env = l.by(secret)
	c := other.connect()
	e.revoke(keyID).want(http.StatusOK)
	if code, _ := c.ended(); code != websocket.StatusPolicyViolation {
		t.Errorf("closed with %d", code)
	}
}

func TestShutdownEndsSocketsAndStreamsWithAnswers(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	l := newLiveEnv(t, e, live.Options{}, nil)
	id := e.started(oneRound, `"cooldown":"0s"`)
	e.account("ann", "EUR", 1_000_000)
	c, deaf := l.connect(), l.connect()
	deaf.subscribe("auction:"+id, "")
	events := l.stream(t, "/v1/events?topic=auction:"+id, nil)
	if _, err := events.Body.Read(make([]byte, 1<<16)); err != nil {
		t.Error(err) // It says where it begins.
	}
	// The bid has to wait until after the end has begun.
	held, open := e.gate("auction_bids")
	c.say(`{"op":"bid","id":1,"auction":%q,"account":"ann","amount":100,"key":"k"}`, id)
	held("the bid is under way")
	ctx, cancel := context.WithTimeout(t.Context(), patience) // Although one of them never answers.
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- l.edge.Close(ctx) }()
	eventually(t, patience, "no more streams are taken", func() bool {
		r := l.stream(t, "/v1/events?topic=auction:"+id, nil)
		_ = r.Body.Close()
		return r.StatusCode == http.StatusServiceUnavailable
	})
	open()
	must(t, <-closed)
	if code, last := c.ended(); code != websocket.StatusGoingAway || last.Status != 201 {
		t.Errorf("closed with %d, after %+v", code, last)
	}
	if _, err := io.Copy(io.Discard, events.Body); err != nil {
		t.Error(err) // An end that was cut.
	}
	_ = events.Body.Close()
}
