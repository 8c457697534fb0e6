package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestTransfersByLegs moves money by several legs at once: a price, its fee, and an exchange through accounts in two currencies.
func TestTransfersByLegs(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("buyer", "EUR", 1000)
	e.account("till", "EUR", 0)
	e.account("fees", "EUR", 0)
	e.account("till-usd", "USD", 500)
	e.account("seller", "USD", 0)
	// The till has nothing of its own: what the first leg brings pays the second.
	body := `{"legs":[{"from":"buyer","to":"till","amount":400},{"from":"till","to":"fees","amount":15},{"from":"till-usd","to":"seller","amount":420}],"memo":"order 7","reference":"order-7"}`
	key := newUUID()
	done := e.keyed(key, "/v1/transfers", body).want(http.StatusCreated)
	done.exactly(done.decoded, "id", "kind", "from", "to", "amount", "currency", "legs", "status", "reason", "memo", "created_at", "completed_at", "reference")
	done.equal(`{"kind":"transfer","from":"buyer","to":"till","amount":400,"currency":"EUR","status":"completed","reason":"","memo":"order 7","reference":"order-7","legs":[
		{"from":"buyer","to":"till","amount":400,"currency":"EUR"},
		{"from":"till","to":"fees","amount":15,"currency":"EUR"},
		{"from":"till-usd","to":"seller","amount":420,"currency":"USD"}]}`)
	done.uuids("id").times("created_at", "completed_at")
	want := func() {
		t.Helper()
		for account, available := range map[string]int64{"buyer": 600, "till": 385, "fees": 15, "till-usd": 80, "seller": 420} {
			e.balance(account, available, 0)
		}
	}
	want()
	if read := e.get("/v1/transfers/" + done.str("id")).want(http.StatusOK); string(read.body) != string(done.body) {
		t.Errorf("read %s, made %s", read.body, done.body)
	}
	for _, account := range []string{"fees", "seller"} {
		if id := e.get("/v1/accounts/" + account + "/entries").want(http.StatusOK).str("items.0.transfer"); id != done.str("id") {
			t.Errorf("the entry of %s is of transfer %s, want %s", account, id, done.str("id"))
		}
	}

	// The same key again, the same reference under another key, and the reference after the key was forgotten.
	e.keyed(key, "/v1/transfers", body).replayed(done)
	e.forgetKeys()
	if again := e.keyed(newUUID(), "/v1/transfers", body).want(http.StatusOK); string(again.body) != string(done.body) {
		t.Errorf("again %s, first %s", again.body, done.body)
	}
	for _, other := range []string{
		strings.Replace(body, `:15}`, `:16}`, 1), strings.Replace(body, `"fees"`, `"buyer"`, 1), strings.Replace(body, `,{"from":"till-usd","to":"seller","amount":420}`, ``, 1),
		`{"from":"buyer","to":"till","amount":400,"memo":"order 7","reference":"order-7"}`,
	} {
		e.post("/v1/transfers", other).problem(http.StatusConflict, "reference_taken").equal(`{"transfer":"` + done.str("id") + `"}`)
	}
	list := e.get("/v1/transfers?reference=order-7").want(http.StatusOK)
	if want := `{"items":[` + string(done.body) + `],"next":null}`; string(list.body) != want {
		t.Errorf("found %s, want %s", list.body, want)
	}
	want()
	e.audited()
}

// TestARefusedLegRefusesAll makes each kind of refusal in a middle leg. Nothing may move, and the leg is named.
func TestARefusedLegRefusesAll(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 500)
	e.account("bob", "EUR", 0)
	e.account("carol", "USD", 100)
	const first = `{"from":"alice","to":"bob","amount":300}`
	const last = `{"from":"nobody","to":"nobody","amount":7}` // It would be refused, too, but is not reached.
	for _, c := range []struct {
		leg    string
		status int
		code   string
	}{
		{`{"from":"bob","to":"alice","amount":301}`, http.StatusPaymentRequired, "insufficient_funds"},
		{`{"from":"alice","to":"bob","amount":201}`, http.StatusPaymentRequired, "insufficient_funds"}, // Alone it could be paid.
		{`{"from":"bob","to":"bob","amount":1}`, http.StatusUnprocessableEntity, "same_account"},
		{`{"from":"bob","to":"carol","amount":1}`, http.StatusUnprocessableEntity, "currency_mismatch"},
		{`{"from":"bob","to":"nobody","amount":1}`, http.StatusNotFound, "not_found"},
		{`{"from":"nobody","to":"bob","amount":1}`, http.StatusNotFound, "not_found"},
	} {
		entries := e.count("entries")
		key, body := newUUID(), `{"legs":[`+first+`,`+c.leg+`,`+last+`],"reference":"free"}`
		refused := e.keyed(key, "/v1/transfers", body).problem(c.status, c.code).equal(`{"leg":1,"outcome":"not_applied"}`)
		if c.status != http.StatusNotFound { // The account may be there the next time.
			e.keyed(key, "/v1/transfers", body).replayed(refused)
		}
		e.balance("alice", 500, 0)
		e.balance("bob", 0, 0)
		if n := e.count("entries"); n != entries {
			t.Errorf("%s: %d entries", c.leg, n-entries)
		}
		if c.code != "insufficient_funds" {
			continue
		}
		failed := e.get("/v1/transfers/" + refused.str("transfer")).want(http.StatusOK)
		failed.equal(fmt.Sprintf(`{"status":"failed","reason":"insufficient_funds","legs":[{"from":"alice","to":"bob","amount":300,"currency":"EUR"},%s,%s]}`,
			strings.Replace(c.leg, `}`, `,"currency":"EUR"}`, 1), last))
	}
	if n := e.count("transfers WHERE status = 'failed'"); n != 2 {
		t.Errorf("%d failed intents, want those without money", n)
	}
	// The reference is still free for one that can be done.
	e.post("/v1/transfers", `{"legs":[`+first+`],"reference":"free"}`).want(http.StatusCreated)
	e.audited()
}

// TestLegsAtTheirLimits sends as many legs as there may be, one more, and what is no transfer.
func TestLegsAtTheirLimits(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 1)
	e.account("bob", "EUR", 0)
	legs := func(n int) string {
		all := make([]string, n)
		for i := range all { // One unit goes to and fro.
			all[i] = []string{`{"from":"alice","to":"bob","amount":1}`, `{"from":"bob","to":"alice","amount":1}`}[i%2]
		}
		return `{"legs":[` + strings.Join(all, ",") + `]}`
	}
	e.post("/v1/transfers", legs(100)).want(http.StatusCreated).equal(`{"legs":` + strings.ReplaceAll(strings.TrimSuffix(legs(100), "}")[len(`{"legs":`):], `1}`, `1,"currency":"EUR"}`) + `}`)
	e.balance("alice", 1, 0)
	e.post("/v1/transfers", legs(1)).want(http.StatusCreated).equal(`{"from":"alice","to":"bob","amount":1,"legs":[{"from":"alice","to":"bob","amount":1,"currency":"EUR"}]}`)
	before := e.snapshot()
	for _, bad := range []string{
		legs(101), legs(0), `{"legs":null}`, `{"legs":{}}`, `{"legs":[null]}`, `{"legs":[{}]}`,
		`{"legs":[{"from":"bob","to":"alice"}]}`, `{"legs":[{"from":"bob","to":"alice","amount":0}]}`, `{"legs":[{"from":"bob","to":"alice","amount":-1}]}`,
		`{"legs":[{"from":"bob","to":"alice","amount":9007199254740992}]}`, `{"legs":[{"from":"bob","to":"alice","amount":1.5}]}`,
		`{"legs":[{"from":"","to":"alice","amount":1}]}`, `{"legs":[{"from":"bob","to":"alice","amount":1,"currency":"EUR"}]}`,
		`{"legs":[{"from":"bob","to":"alice","amount":1}],"from":"bob"}`, `{"legs":[{"from":"bob","to":"alice","amount":1}],"amount":1}`,
		`{"legs":[{"from":"bob","to":"alice","amount":1}],"from":"bob","to":"alice","amount":1}`,
		`{"legs":[{"from":"bob","to":"alice","amount":1}],"amount":0}`, `{"legs":[{"from":"bob","to":"alice","amount":1}],"from":""}`,
		`{"legs":[{"from":"bob","to":"alice","amount":1}],"to":""}`,
	} {
		if r := e.post("/v1/transfers", bad); r.status != http.StatusBadRequest && r.status != http.StatusUnprocessableEntity {
			t.Errorf("%.80s: %d %s", bad, r.status, r.body)
		}
	}
	delete(before, "idempotency_keys")
	now := e.snapshot()
	for table, rows := range before {
		if now[table] != rows {
			t.Errorf("%s changed", table)
		}
	}
	e.audited()
}

// TestUsersPayTheirOwnLegs lets a user move money by legs that its own account alone pays for. Every party may read the transfer.
func TestUsersPayTheirOwnLegs(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, id := range []string{"alice", "bob", "carol", "dave"} {
		e.account(id, "EUR", 100)
	}
	alice := e.by(e.user("alice"))
	alice.post("/v1/transfers", `{"legs":[{"from":"alice","to":"bob","amount":1},{"from":"bob","to":"carol","amount":1}]}`).problem(http.StatusForbidden, "forbidden")
	alice.post("/v1/transfers", `{"legs":[]}`).problem(http.StatusBadRequest, "bad_request")
	e.balance("bob", 100, 0)
	id := alice.post("/v1/transfers", `{"legs":[{"from":"alice","to":"bob","amount":1},{"from":"alice","to":"carol","amount":2}]}`).want(http.StatusCreated).str("id")
	for _, party := range []string{"alice", "bob", "carol"} {
		e.by(e.user(party)).get("/v1/transfers/" + id).want(http.StatusOK)
	}
	e.by(e.user("dave")).get("/v1/transfers/"+id).problem(http.StatusNotFound, "not_found")
}
