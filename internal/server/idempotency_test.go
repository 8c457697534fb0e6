package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// replayed fails unless r repeats first byte for byte and says so.
func (r *reply) replayed(first *reply) {
	r.t.Helper()
	if r.status != first.status || string(r.body) != string(first.body) || r.header.Get("Content-Type") != first.header.Get("Content-Type") {
		r.t.Errorf("%s: replayed %d %s, first was %d %s", r.what, r.status, r.body, first.status, first.body)
	}
	if r.header.Get("Idempotent-Replayed") != "true" {
		r.t.Errorf("%s: no Idempotent-Replayed header on %d", r.what, r.status)
	}
	if first.header.Get("Idempotent-Replayed") != "" {
		r.t.Errorf("%s: the first answer says that it is a replay", r.what)
	}
}

func TestKeyHeader(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const path, body = "/v1/accounts", `{"id":"alice","currency":"EUR"}`
	before := e.snapshot()
	header := func(values ...string) *reply {
		t.Helper()
		return e.send(send{method: http.MethodPost, path: path, body: body, header: http.Header{"Idempotency-Key": values}})
	}
	e.send(send{method: http.MethodPost, path: path, body: body}).problem(http.StatusBadRequest, "idempotency_key_required")
	for _, bad := range []string{
		"", `"`, `""`, `"abc`, `abc"d" e`, `"a"b"`, `"abc"; p=1`, `"a\b"`, `"a\"`, "a b", "a\tb", "schlüssel", "κλειδί", "\u00a0", "a\u2028",
		strings.Repeat("k", 256), `"` + strings.Repeat("k", 256) + `"`, strings.Repeat("k", 10_000), "\xff\xfe",
	} {
		header(bad).problem(http.StatusBadRequest, "idempotency_key_required")
	}
	header("one", "two").problem(http.StatusBadRequest, "idempotency_key_required")
	header("one", "one").problem(http.StatusBadRequest, "idempotency_key_required")
	// A key is asked for before the body is looked at, and on every method that changes something.
	e.send(send{method: http.MethodPost, path: path, body: `{`}).problem(http.StatusBadRequest, "idempotency_key_required")
	e.send(send{method: http.MethodDelete, path: "/v1/keys/" + newUUID()}).problem(http.StatusBadRequest, "idempotency_key_required")
	for _, r := range e.server.routes() {
		if r.method == http.MethodGet || r.path == batchPath { // The commands of a batch have keys.
			continue
		}
		target := strings.NewReplacer("{id}", newUUID()).Replace(r.path)
		e.send(send{method: r.method, path: target, body: `{}`}).problem(http.StatusBadRequest, "idempotency_key_required")
	}
	e.unchanged(before)

	for i, good := range []string{"k", "!", "~", `a"b`, `a\b`, "a,b", "a;b=c", "'", strings.Repeat("k", 255), `"` + strings.Repeat("q", 255) + `"`, "   padded\t"} {
		account := fmt.Sprintf(`{"id":"good-%d","currency":"EUR"}`, i)
		e.keyed(good, path, account).want(http.StatusCreated)
	}
}

func TestQuotedAndBareKeysAreOne(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 0)
	const path, body = "/v1/deposits", `{"account":"alice","amount":5}`
	for _, same := range [][]string{{`abc`, `"abc"`, ` abc `, "\t\"abc\" "}, {`a\b`, `"a\\b"`}, {`x"y`, `"x\"y"`}} {
		first := e.keyed(same[0], path, body).want(http.StatusCreated)
		for _, key := range same[1:] {
			e.keyed(key, path, body).replayed(first)
		}
	}
	e.balance("alice", 15, 0)
	e.keyed("ABC", path, body).want(http.StatusCreated) // Case tells keys apart.
	e.balance("alice", 20, 0)
}

func TestReplays(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 100)
	e.account("bob", "EUR", 0)
	id := e.campaign(`"base_length":2`, "")
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{"/v1/accounts", `{"id":"carol","currency":"EUR"}`, http.StatusCreated},
		{"/v1/accounts", `{"id":"alice","currency":"EUR"}`, http.StatusConflict},
		{"/v1/deposits", `{"account":"bob","amount":3}`, http.StatusCreated},
		{"/v1/withdrawals", `{"account":"alice","amount":1000}`, http.StatusPaymentRequired},
		{"/v1/withdrawals", `{"account":"bob","amount":1}`, http.StatusCreated},
		{"/v1/transfers", `{"from":"alice","to":"bob","amount":10}`, http.StatusCreated},
		{"/v1/transfers", `{"from":"alice","to":"bob","amount":1000}`, http.StatusPaymentRequired},
		{"/v1/transfers", `{"from":"alice","to":"alice","amount":1}`, http.StatusUnprocessableEntity},
		{"/v1/holds", `{"account":"alice","amount":10,"expires_in":"1h"}`, http.StatusCreated},
		{"/v1/campaigns", `{"name":"n","base_length":2,"price":1,"currency":"EUR","beneficiary":"house","prizes":[{"name":"a","quantity":1}]}`, http.StatusCreated},
		{"/v1/campaigns", `{"name":"n","base_length":2,"price":1,"currency":"EUR","beneficiary":"house","prizes":[{"name":"a","quantity":9}]}`, http.StatusUnprocessableEntity},
		{"/v1/campaigns/" + id + "/purchases", `{"account":"alice"}`, http.StatusConflict}, // not active
		{"/v1/campaigns/" + id + "/draw", ``, http.StatusConflict},
		{"/v1/campaigns/" + id + "/publish", ``, http.StatusOK},
		{"/v1/campaigns/" + id + "/cancel", ``, http.StatusOK},
		{"/v1/keys", `{"role":"service","name":"n","hash":"` + strings.Repeat("ab", 32) + `"}`, http.StatusCreated},
	} {
		key := newUUID()
		first := e.keyed(key, c.path, c.body).want(c.status)
		after := e.snapshot()
		for range 2 {
			e.keyed(key, c.path, c.body).replayed(first)
		}
		e.unchanged(after)
		var status int
		var body []byte
		e.sql(&status, `SELECT status FROM idempotency_keys ORDER BY created_at DESC LIMIT 1`)
		e.sql(&body, `SELECT body FROM idempotency_keys ORDER BY created_at DESC LIMIT 1`)
		if status != c.status || string(body) != string(first.body) {
			t.Errorf("%s: stored %d %s, answered %s", c.path, status, body, first.body)
		}
	}
	// A refusal is kept though its reason is gone.
	key := newUUID()
	refused := e.keyed(key, "/v1/withdrawals", `{"account":"bob","amount":500}`).problem(http.StatusPaymentRequired, "insufficient_funds")
	e.post("/v1/deposits", `{"account":"bob","amount":500}`).want(http.StatusCreated)
	e.keyed(key, "/v1/withdrawals", `{"account":"bob","amount":500}`).replayed(refused)
}

func TestWhatIsNotStored(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("house", "EUR", 0)
	const deposit = `{"account":"alice","amount":5}`
	key := newUUID()
	before := e.snapshot()
	e.keyed(key, "/v1/deposits", `{"account":"alice","amount":0}`).problem(http.StatusBadRequest, "bad_request")
	e.by("").keyed(key, "/v1/deposits", deposit).problem(http.StatusUnauthorized, "unauthorized")
	e.by(e.user("alice")).keyed(key, "/v1/deposits", deposit).problem(http.StatusForbidden, "forbidden")
	for range 2 {
		if r := e.keyed(key, "/v1/deposits", deposit).problem(http.StatusNotFound, "not_found"); r.header.Get("Idempotent-Replayed") != "" {
			t.Error("a 404 is replayed")
		}
	}
	e.unchanged(before)
	e.account("alice", "EUR", 1000)
	first := e.keyed(key, "/v1/deposits", deposit).want(http.StatusCreated)
	e.keyed(key, "/v1/deposits", deposit).replayed(first)
	e.balance("alice", 1005, 0)

	// A purchase by somebody who has no account yet, and a campaign whose beneficiary has none.
	id := e.onSale(`"base_length":2`, "")
	key = newUUID()
	path := "/v1/campaigns/" + id + "/purchases"
	e.keyed(key, path, `{"account":"late"}`).problem(http.StatusNotFound, "not_found")
	e.account("late", "EUR", 100)
	e.keyed(key, path, `{"account":"late"}`).want(http.StatusCreated)
	key = newUUID()
	const campaign = `{"name":"n","base_length":1,"price":1,"currency":"EUR","beneficiary":"new","prizes":[{"name":"a","quantity":1}]}`
	e.keyed(key, "/v1/campaigns", campaign).problem(http.StatusNotFound, "not_found")
	e.account("new", "EUR", 0)
	e.keyed(key, "/v1/campaigns", campaign).want(http.StatusCreated)
}

func TestKeyReusedForAnotherRequest(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 1000)
	e.account("bob", "EUR", 1000)
	key := newUUID()
	const path = "/v1/deposits"
	first := e.keyed(key, path, `{"account":"alice","amount":5}`).want(http.StatusCreated)
	for _, other := range []string{
		`{"account":"alice","amount":6}`, `{"account":"bob","amount":5}`, `{"account":"nobody","amount":5}`, `{"account":"alice","amount":5,"memo":"x"}`,
	} {
		e.keyed(key, path, other).problem(http.StatusUnprocessableEntity, "idempotency_key_reused")
	}
	e.keyed(key, path, `{"account":"alice","amount":"x"}`).problem(http.StatusBadRequest, "bad_request")
	e.keyed(key, path, `{"account":"alice","amount":5}`).replayed(first)
	e.balance("alice", 1005, 0)

	// Another path, method or principal makes another key.
	e.keyed(key, "/v1/withdrawals", `{"account":"alice","amount":5}`).want(http.StatusCreated)
	e.by(e.service).keyed(key, path, `{"account":"alice","amount":7}`).want(http.StatusCreated)
	e.balance("alice", 1007, 0)
	one, two := e.onSale(`"base_length":2`, ""), e.onSale(`"base_length":2`, "")
	for _, id := range []string{one, two} {
		e.by(e.user("alice")).keyed("k", "/v1/campaigns/"+id+"/purchases", `{"account":"alice"}`).want(http.StatusCreated)
		e.by(e.user("bob")).keyed("k", "/v1/campaigns/"+id+"/purchases", `{"account":"bob"}`).want(http.StatusCreated)
	}
	e.keyed("k", "/v1/campaigns/"+one+"/publish", ``).problem(http.StatusConflict, "bad_transition")
	e.keyed("k", "/v1/campaigns/"+one+"/cancel", ``).want(http.StatusOK)
}

func TestSpellingsOfOneRequest(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 1)
	e.account("house", "EUR", 0)
	e.account("bidder", "EUR", 1)
	lot := e.started(twoRounds, "")
	for path, spellings := range map[string][]string{
		"/v1/deposits": {
			`{"account":"alice","amount":5}`, `{"amount":5,"account":"alice"}`, " \r\n{ \"account\" :\t\"alice\" , \"amount\":5 }\n ",
			`{"account":"alice","amount":5,"memo":null}`, `{"account":"alice","amount":5,"memo":""}`, `{"\u0061ccount":"\u0061lice","amount":5}`,
		},
		"/v1/auctions": {
			`{"title":"t","currency":"EUR","seller":"house","rounds":[{"winners":1,"duration":"1h"}]}`,
			`{"rounds":[{"duration":"1h","winners":1}],"seller":"house","currency":"EUR","title":"t","min_bid":null,"min_increment":null,"anti_snipe":null,"cooldown":null,"unique_amounts":null}`,
		},
		"/v1/auctions/" + lot + "/bids": {bidBody("bidder", 1), `{"amount":1,"account":"bidder"}`, " {\n\"amount\":1 ,\t\"account\":\"bidder\"}"},
		"/v1/holds":                     {`{"account":"alice","amount":1}`, `{"expires_in":null,"amount":1,"account":"alice"}`},
		"/v1/campaigns": {
			`{"name":"n","base_length":2,"price":1,"currency":"EUR","beneficiary":"house","prizes":[{"name":"a","quantity":1}]}`,
			`{"prizes":[{"quantity":1,"layer":null,"name":"a"}],"layers":null,"purchase_limit":null,"draw":null,"beneficiary":"house","currency":"EUR","price":1,"base_length":2,"name":"n"}`,
		},
	} {
		key := newUUID()
		first := e.keyed(key, path, spellings[0]).want(http.StatusCreated)
		for _, other := range spellings[1:] {
			e.keyed(key, path, other).replayed(first)
		}
	}
	e.balance("alice", 5, 1)
	for _, verb := range []string{"publish", "cancel"} {
		id := e.campaign(`"base_length":2`, "")
		for i, bodies := range [][]string{{``, `{}`, ` `, "{ }\n"}, {`{}`, ``}} {
			if i > 0 {
				id = e.campaign(`"base_length":2`, "")
			}
			key := newUUID()
			first := e.keyed(key, "/v1/campaigns/"+id+"/"+verb, bodies[0]).want(http.StatusOK)
			for _, body := range bodies[1:] {
				e.keyed(key, "/v1/campaigns/"+id+"/"+verb, body).replayed(first)
			}
		}
	}
}

// TestConcurrentDuplicates sends one request 50 times at once.
func TestConcurrentDuplicates(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 1000)
	e.account("bob", "EUR", 0)
	id := e.onSale(`"base_length":5`, "")
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{"/v1/transfers", `{"from":"alice","to":"bob","amount":10}`, http.StatusCreated},
		{"/v1/transfers", `{"from":"bob","to":"alice","amount":5000}`, http.StatusPaymentRequired},
		{"/v1/campaigns/" + id + "/purchases", `{"account":"alice"}`, http.StatusCreated},
		{"/v1/keys", `{"role":"service","name":"n","hash":"` + strings.Repeat("cd", 32) + `"}`, http.StatusCreated},
	} {
		e.once(50, c.path, c.body, c.status)
	}
	e.balance("alice", 890, 0)
	e.balance("bob", 10, 0)
	e.get("/v1/campaigns/" + id).want(http.StatusOK).equal(`{"sold_positions":1}`)
	if n := e.count("transfers WHERE status = 'failed'"); n != 1 {
		t.Errorf("%d failed intents of one request", n)
	}
	if n := e.count("api_keys WHERE name = 'n'"); n != 1 {
		t.Errorf("%d keys of one request", n)
	}
}
