package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// receiver is somebody's endpoint that remembers what it was sent.
type receiver struct {
	*httptest.Server

	mu   sync.Mutex
	got  []delivery
	then func(n int, w http.ResponseWriter) // answers the nth request, from 1; nil: 200
}

type delivery struct {
	header http.Header
	body   []byte
	at     time.Time
}

func newReceiver(t *testing.T, then func(n int, w http.ResponseWriter)) *receiver {
	t.Helper()
	r := &receiver{then: then}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		r.got = append(r.got, delivery{header: q.Header.Clone(), body: body, at: time.Now()})
		n := len(r.got)
		r.mu.Unlock()
		if r.then != nil {
			r.then(n, w)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) deliveries() []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]delivery(nil), r.got...)
}

// target makes a target and returns its secret.
func (e *env) target(name, url string) (secret string) {
	e.t.Helper()
	return e.post("/v1/targets", fmt.Sprintf(`{"name":%q,"kind":"webhook","url":%q,"timeout":"15m"}`, name, url)).want(http.StatusCreated).str("secret")
}

// publication makes a publication, and returns its path.
func (e *env) publication(target, members string) string {
	e.t.Helper()
	return "/v1/publications/" + e.post("/v1/publications", fmt.Sprintf(`{"target":%q%s}`, target, members)).want(http.StatusCreated).str("id")
}

func (e *env) becomes(path, status string) *reply {
	e.t.Helper()
	var last *reply
	eventually(e.t, patience, path+" is "+status, func() bool {
		last = e.get(path)
		return last.shows("status", status)
	})
	return last
}

const longAgo = `,"publish_at":"2020-01-01T00:00:00Z"`

func TestPublication(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.publishing()
	r := newReceiver(t, nil)
	made := e.post("/v1/targets", fmt.Sprintf(`{"name":"blog","kind":"webhook","url":%q}`, r.URL)).want(http.StatusCreated)
	made.exactly(made.decoded, "id", "name", "kind", "url", "timeout", "secret", "created_at").uuids("id").times("created_at")
	secret := made.str("secret")
	if raw, ok := strings.CutPrefix(secret, "whsec_"); !ok || len(raw) != 44 {
		t.Errorf("secret %q", secret)
	}
	for _, read := range []*reply{e.get("/v1/targets/" + made.str("id")), e.get("/v1/targets")} {
		if body := string(read.want(http.StatusOK).body); strings.Contains(body, "whsec_") || strings.Contains(body, "secret") {
			t.Errorf("the secret is shown again: %s", body)
		}
	}
	e.post("/v1/targets", fmt.Sprintf(`{"name":"blog","kind":"webhook","url":%q}`, r.URL)).problem(http.StatusConflict, "target_exists")

	const payload = `{ "b" : 1.0, "a" : [null, "ü\u0000", 9007199254740993] }`
	p := e.post("/v1/publications", `{"target":"blog"`+longAgo+`,"payload":`+payload+`}`).want(http.StatusCreated)
	p.exactly(p.decoded, "id", "target", "status", "publish_at", "jitter", "actual_publish_at", "next_attempt_at", "execution_lock_id", "execution_locked_at",
		"execution_version", "attempts", "last_error", "external_id", "published_at", "created_at")
	p.equal(`{"status":"scheduled","target":"blog","publish_at":"2020-01-01T00:00:00.000000Z","execution_version":0,"attempts":0,
		"execution_lock_id":null,"last_error":null,"published_at":null}`).uuids("id").times("actual_publish_at", "created_at")
	path := "/v1/publications/" + p.str("id")
	done := e.becomes(path, "published")
	done.equal(`{"execution_version":1,"attempts":1,"execution_lock_id":null,"execution_locked_at":null,"last_error":null,"next_attempt_at":null}`).times("published_at")
	got := r.deliveries()
	if len(got) != 1 || string(got[0].body) != payload {
		t.Fatalf("%d deliveries, the first %q", len(got), got[0].body)
	}
	h := got[0].header
	if h.Get("webhook-id") != p.str("id") || h.Get("fairlead-execution-version") != "1" || h.Get("Content-Type") != "application/json" {
		t.Errorf("headers %v", h)
	}
	verifier, err := standardwebhooks.NewWebhook(secret)
	must(t, err)
	must(t, verifier.Verify(got[0].body, h))
	attempts := e.get(path + "/attempts").want(http.StatusOK)
	if body := string(attempts.body); len(attempts.items()) != 1 || !strings.Contains(body, `{"version":1,"lock_id":"`) ||
		!strings.Contains(body, `"result":"published","status_code":200,"error":null,"heartbeat_at":null,"stage":null,"sent_bytes":null,"total_bytes":null}],"next":null}`) {
		t.Errorf("%s", body)
	}
	attempts.exactly(attempts.items()[0], "version", "lock_id", "started_at", "ended_at", "result", "status_code", "error", "heartbeat_at", "stage", "sent_bytes", "total_bytes")
	for _, verb := range []string{"publish", "cancel", "retry"} {
		e.post(path+"/"+verb, ``).problem(http.StatusConflict, "bad_transition")
	}
	e.post(path+"/schedule", `{"publish_at":"2020-01-01T00:00:00Z"}`).problem(http.StatusConflict, "bad_transition")
}

func TestPublicationLife(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	r := newReceiver(t, nil)
	e.target("t", r.URL)
	draft := e.publication("t", `,"payload":null`)
	e.get(draft).want(http.StatusOK).equal(`{"status":"draft","publish_at":null,"actual_publish_at":null,"jitter":"0s","payload":null}`)
	far := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	scheduled := e.post(draft+"/schedule", fmt.Sprintf(`{"publish_at":%q,"jitter":"5m"}`, far.Format(time.RFC3339Nano))).want(http.StatusOK)
	scheduled.equal(fmt.Sprintf(`{"status":"scheduled","publish_at":%q,"jitter":"5m0s"}`, far.Format(timestampLayout)))
	actual, err := time.Parse(time.RFC3339, scheduled.str("actual_publish_at"))
	must(t, err)
	if d := actual.Sub(far); d < 0 || d > 5*time.Minute {
		t.Errorf("jitter of %v", d)
	}
	// Another time, as finely as it can be said, and never before it.
	again := e.post(draft+"/schedule", `{"publish_at":"2100-02-03T04:05:06.1234561+01:00","jitter":"0s"}`).want(http.StatusOK)
	again.equal(`{"publish_at":"2100-02-03T03:05:06.123457Z","actual_publish_at":"2100-02-03T03:05:06.123457Z"}`)
	e.post(draft+"/retry", ``).problem(http.StatusConflict, "bad_transition")

	cancelled := e.publication("t", `,"payload":{}`+longAgo)
	e.post(cancelled+"/cancel", ``).want(http.StatusOK).equal(`{"status":"cancelled"}`)
	e.post(cancelled+"/cancel", ``).problem(http.StatusConflict, "bad_transition")
	e.publishing()
	if late := len(r.deliveries()); late != 0 {
		t.Errorf("%d deliveries", late)
	}
	now := e.post(draft+"/publish", ``).want(http.StatusOK)
	if now.str("status") != "scheduled" || now.str("actual_publish_at") != now.str("publish_at") {
		t.Errorf("%s", now.body)
	}
	e.becomes(draft, "published")
	if got := r.deliveries(); len(got) != 1 || string(got[0].body) != "null" {
		t.Errorf("%d deliveries", len(got))
	}
	// The list, narrowed; a cursor of one list is none of another.
	if n := len(e.get("/v1/publications?status=cancelled").want(http.StatusOK).items()); n != 1 {
		t.Errorf("%d cancelled", n)
	}
	page := e.get("/v1/publications?limit=1").want(http.StatusOK)
	if e.get("/v1/publications?limit=1&after="+page.str("next")).want(http.StatusOK).at("next") != nil {
		t.Error("there is a third page")
	}
	for _, query := range []string{"status=lost", "status=", "status=draft&status=draft", "status=draft&after=" + page.str("next")} {
		e.get("/v1/publications?"+query).problem(http.StatusBadRequest, "bad_request")
	}
	const absent = "/v1/publications/0198c9f0-0000-7000-8000-000000000000"
	for _, missing := range []*reply{
		e.get(absent), e.get(absent + "/attempts"), e.post(absent+"/cancel", ``), e.get("/v1/publications/x"), e.post("/v1/publications/x/retry", ``),
		e.get("/v1/targets/0198c9f0-0000-7000-8000-000000000000"), e.post("/v1/publications", `{"target":"nobody","payload":1}`),
	} {
		missing.problem(http.StatusNotFound, "not_found")
	}
}

// TestPublicationKeys holds the contract of keys on publishing's routes: one effect, one answer, and the secret in neither the
// table of keys nor that of targets.
func TestPublicationKeys(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	body := `{"name":"t","kind":"webhook","url":"https://example.com/hook"}`
	first := e.keyed("k1", "/v1/targets", body).want(http.StatusCreated)
	again := e.keyed("k1", "/v1/targets", ` {"url":"https://example.com/hook","kind":"webhook","name":"t","config":null}`).want(http.StatusCreated)
	if string(first.body) != string(again.body) || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%s, again %s", first.body, again.body)
	}
	e.keyed("k1", "/v1/targets", strings.Replace(body, `"t"`, `"u"`, 1)).problem(http.StatusUnprocessableEntity, "idempotency_key_reused")
	var stored string
	e.sql(&stored, `SELECT string_agg(convert_from(body, 'UTF8'), ' ') || (SELECT string_agg(t::text, '') FROM targets t) FROM idempotency_keys`)
	secret := strings.TrimPrefix(first.str("secret"), "whsec_")
	if strings.Contains(stored, secret) || strings.Contains(stored, "whsec") || !strings.Contains(stored, first.str("id")) {
		t.Errorf("stored: %s", stored)
	}
	made := e.keyed("k2", "/v1/publications", `{"target":"t","payload":{"a":1,"b":[2]}}`).want(http.StatusCreated)
	replay := e.keyed("k2", "/v1/publications", `{"payload":{"b":[2] ,"a":1},"target":"t"}`).want(http.StatusCreated)
	if string(made.body) != string(replay.body) {
		t.Errorf("%s, again %s", made.body, replay.body)
	}
	e.keyed("k2", "/v1/publications", `{"target":"t","payload":{"a":1,"b":[3]}}`).problem(http.StatusUnprocessableEntity, "idempotency_key_reused")
	if n := e.count("publications"); n != 1 {
		t.Errorf("%d publications", n)
	}
	path := "/v1/publications/" + made.str("id")
	for range 2 {
		e.keyed("k3", path+"/cancel", ``).want(http.StatusOK).equal(`{"status":"cancelled"}`)
		e.keyed("k4", path+"/retry", ``).problem(http.StatusConflict, "bad_transition")
	}
}

func TestPublicationLimits(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.target("t", "http://example.com")
	long := strings.Repeat("é", 200)
	e.target(long, "http://example.com")
	e.publication(long, `,"payload":0`)
	bad := func(path, body string) {
		e.t.Helper()
		e.post(path, body).problem(http.StatusBadRequest, "bad_request")
	}
	for _, url := range []string{
		``, `example.com`, `ftp://example.com`, `http://`, `http:///x`, `https://u:p@example.com`, `http://example.com/#f`, `http://example.com:99999`,
		`http://exa mple.com`, `mailto:a@example.com`, `http://example.com/` + strings.Repeat("x", 2000),
	} {
		bad("/v1/targets", fmt.Sprintf(`{"name":"n","kind":"webhook","url":%q}`, url))
	}
	for _, name := range []string{`""`, `"` + long + `x"`, `"a\nb"`, `null`, `5`} {
		bad("/v1/targets", `{"name":`+name+`,"kind":"webhook","url":"http://example.com"}`)
	}
	for _, rest := range []string{
		`"kind":"deviantart"`, `"kind":"mail","url":"http://example.com"`, `"kind":"webhook"`, `"kind":"webhook","url":null`, `"url":"http://example.com"`,
		`"kind":"webhook","url":"http://example.com","config":{"timeout":"901s"}`, `"kind":"webhook","url":"http://example.com","timeout":"5s","config":{"timeout":"5s"}`, `"kind":"webhook","url":"http://example.com","config":{"timeout":"1"}`,
		`"kind":"webhook","url":"http://example.com","config":{"x":1}`, `"kind":"webhook","url":"http://example.com","config":{"refresh_token":"x"}`,
		`"kind":"deviantart","config":{"client_id":"1","client_secret":"s"}`, `"kind":"deviantart","config":{"client_id":"","client_secret":"s","refresh_token":"r"}`,
		`"kind":"deviantart","url":"ftp://a","config":{"client_id":"1","client_secret":"s","refresh_token":"r"}`, `"kind":"webhook","url":"http://example.com","config":[]`,
	} {
		bad("/v1/targets", `{"name":"n",`+rest+`}`)
	}
	e.post("/v1/targets", `{"name":"n","kind":"webhook","url":"http://example.com","config":{"timeout":"1m"}}`).want(http.StatusCreated).equal(`{"timeout":"1m0s"}`)
	e.post("/v1/targets", `{"name":"n15","kind":"webhook","url":"http://example.com","timeout":"15m"}`).want(http.StatusCreated).equal(`{"timeout":"15m0s"}`)
	for _, kind := range []string{`"webhook"`, `"deviantart","config":{"client_id":"1","client_secret":"s","refresh_token":"r"}`} {
		e.post("/v1/targets", fmt.Sprintf(`{"name":%q,"url":"http://example.com","kind":%s}`, "default of "+kind[:5], kind)).want(http.StatusCreated).equal(`{"timeout":"30s"}`)
	}
	for _, members := range []string{
		``, `,"payload":1,"jitter":"301s"`, `,"payload":1,"jitter":"-1s"`, `,"payload":1,"jitter":30`, `,"payload":1,"jitter":"30"`, `,"payload":1,"jitter":"1ns"`,
		`,"payload":1,"publish_at":"tomorrow"`, `,"payload":1,"publish_at":""`, `,"payload":1,"publish_at":5`, `,"payload":1,"publish_at":"2030-01-01"`,
		`,"payload":1,"publish_at":"9999-01-01T00:00:00Z"`, `,"payload":1,"x":1`, `,"payload":{"a":1,"a":2}`, `,"payload":`,
	} {
		bad("/v1/publications", `{"target":"t"`+members+`}`)
	}
	bad("/v1/publications", `{"payload":1}`)
	draft := e.publication("t", `,"jitter":"300s","publish_at":null,"payload":"x"`)
	for _, body := range []string{``, `{}`, `{"publish_at":null}`, `{"publish_at":"x"}`, `{"publish_at":"2030-01-01T00:00:00Z","jitter":"5m1s"}`} {
		bad(draft+"/schedule", body)
	}
	bad(draft+"/cancel", `{"a":1}`)
	// The largest payload that fits comes back whole, and one byte more does not fit.
	fill := func(n int) string {
		return `{"target":"t","payload":"` + strings.Repeat("x", n-len(`{"target":"t","payload":""}`)) + `"}`
	}
	big := e.post("/v1/publications", fill(1<<20)).want(http.StatusCreated)
	var read struct{ Payload string }
	must(t, json.Unmarshal(e.get("/v1/publications/"+big.str("id")).want(http.StatusOK).body, &read))
	if len(read.Payload) < 1<<20-100 {
		t.Errorf("%d bytes came back", len(read.Payload))
	}
	e.post("/v1/publications", fill(1<<20+1)).problem(http.StatusRequestEntityTooLarge, "payload_too_large")
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	e.post("/v1/publications", `{"target":"t","payload":`+deep+`}`).want(http.StatusCreated)
	// Users have no business here, and nobody without a credential.
	user := e.by(e.user("alice"))
	for _, answer := range []*reply{user.get("/v1/publications"), user.get("/v1/targets"), user.get(draft), user.post("/v1/targets", `{}`), user.post(draft+"/cancel", ``)} {
		answer.problem(http.StatusForbidden, "forbidden")
	}
	e.by("").get("/v1/publications").problem(http.StatusUnauthorized, "unauthorized")
}

// TestReceivers goes through what receivers do.
func TestReceivers(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.publishing()
	status := func(codes ...int) func(int, http.ResponseWriter) {
		return func(n int, w http.ResponseWriter) { w.WriteHeader(codes[min(n, len(codes))-1]) }
	}
	for _, c := range []struct {
		name     string
		then     func(int, http.ResponseWriter)
		status   string
		attempts int
	}{
		{"204", status(204), "published", 1},
		{"400", status(400), "failed", 1},
		{"404", status(404), "failed", 1},
		{"410", status(410), "failed", 1},
		{"redirect", func(_ int, w http.ResponseWriter) { w.Header().Set("Location", "/elsewhere"); w.WriteHeader(302) }, "failed", 1},
		{"flaky", status(500, 503, 429, 200), "published", 4},
		{"broken", status(500), "failed", 7},
		{"throttled", status(429), "failed", 7},
		{"large", func(_ int, w http.ResponseWriter) { _, _ = w.Write(make([]byte, 10<<20)) }, "published", 1},
		{"cut", func(n int, w http.ResponseWriter) {
			if n == 1 {
				panic(http.ErrAbortHandler)
			}
		}, "published", 2},
		{"drip", func(_ int, w http.ResponseWriter) {
			for range 50 {
				_, _ = w.Write([]byte("x"))
				_ = http.NewResponseController(w).Flush()
				time.Sleep(20 * time.Millisecond)
			}
		}, "published", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sub := *e
			sub.t = t
			e := &sub
			r := newReceiver(t, c.then)
			e.target(c.name, r.URL)
			path := e.publication(c.name, `,"payload":{"n":1}`+longAgo)
			done := e.becomes(path, c.status)
			if done.num("attempts") != int64(c.attempts) || done.num("execution_version") != int64(c.attempts) {
				t.Errorf("%s", done.body)
			}
			got := r.deliveries()
			if len(got) != c.attempts {
				t.Errorf("%d deliveries", len(got))
			}
			for i, d := range got {
				if d.header.Get("webhook-id") != done.str("id") || d.header.Get("fairlead-execution-version") != fmt.Sprint(i+1) {
					t.Errorf("delivery %d: %v", i, d.header)
				}
			}
			list := e.get(path + "/attempts").want(http.StatusOK).items()
			if len(list) != c.attempts {
				t.Errorf("%d attempts are listed", len(list))
			}
			if c.status == "failed" {
				if done.at("last_error") == nil || done.at("published_at") != nil {
					t.Errorf("%s", done.body)
				}
				// A retry gives as many attempts again.
				e.post(path+"/retry", ``).want(http.StatusOK).equal(`{"status":"scheduled"}`)
				if again := e.becomes(path, "failed"); again.num("attempts") != int64(2*c.attempts) {
					t.Errorf("after a retry: %s", again.body)
				}
			}
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.publishing()
	r := newReceiver(t, func(n int, w http.ResponseWriter) {
		if n == 1 {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	e.target("t", r.URL)
	e.becomes(e.publication("t", `,"payload":1`+longAgo), "published")
	got := r.deliveries()
	if wait := got[1].at.Sub(got[0].at); wait < 2*time.Second {
		t.Errorf("attempted again after %v", wait)
	}
}

// TestASlowTargetGetsMoreAtOnce has one that answers, but takes its time.
func TestASlowTargetGetsMoreAtOnce(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.publishing()
	var mu sync.Mutex
	now, most, takes := 0, 0, 250*time.Millisecond
	r := newReceiver(t, func(int, http.ResponseWriter) {
		mu.Lock()
		now++
		most = max(most, now)
		pause := takes
		mu.Unlock()
		time.Sleep(pause)
		mu.Lock()
		now--
		mu.Unlock()
	})
	e.target("t", r.URL)
	path := "/v1/targets/" + e.get("/v1/targets").str("items.0.id")
	// A server on a slow machine sends fewer in the time that the target takes, which takes longer then.
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		takes *= 2
		return most >= 16 || takes > 2*time.Second
	}
	for all := 150; ; all += 150 {
		// All are there when the first is sent, however long it takes to make them.
		e.post(path+"/pause", ``).want(http.StatusOK)
		for range 150 {
			e.publication("t", `,"payload":1`+longAgo)
		}
		e.post(path+"/resume", ``).want(http.StatusOK)
		eventually(t, patience, "all are delivered", func() bool { return len(r.deliveries()) == all })
		if enough() {
			break
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if most < 16 || most > 32 {
		t.Errorf("%d at once", most)
	}
}

// TestABadTargetDelaysNobody has a target that stalls with many publications, and another one.
func TestABadTargetDelaysNobody(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.publishing()
	hold := make(chan struct{})
	bad := newReceiver(t, func(int, http.ResponseWriter) { <-hold })
	defer close(hold)
	good := newReceiver(t, nil)
	e.post("/v1/targets", fmt.Sprintf(`{"name":"bad","kind":"webhook","url":%q,"config":{"timeout":"1m"}}`, bad.URL)).want(http.StatusCreated)
	e.target("good", good.URL)
	var stuck string
	for range 60 {
		stuck = e.publication("bad", `,"payload":1`+longAgo)
	}
	eventually(t, patience, "the bad target is busy", func() bool { return len(bad.deliveries()) >= 4 })
	for range 5 {
		e.becomes(e.publication("good", `,"payload":1`+longAgo), "published")
	}
	if n := len(bad.deliveries()); n != 4 { // Had the good one waited for a bad one's end, there would be more.
		t.Errorf("%d at once to a target that has never answered", n)
	}
	e.post(stuck+"/cancel", ``).want(http.StatusOK).equal(`{"status":"cancelled"}`)
	for _, p := range e.get("/v1/publications?status=publishing&limit=1").want(http.StatusOK).items() {
		id := fmt.Sprint(object(p)["id"])
		e.post("/v1/publications/"+id+"/cancel", ``).problem(http.StatusConflict, "bad_transition")
	}
}
