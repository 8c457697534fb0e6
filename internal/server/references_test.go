package server

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

func newLedger(db *postgres.DB) *ledger.Service {
	return ledger.NewService(postgres.NewLedger(db), groupcommit.Options{})
}

// forgetKeys lets every idempotency key expire.
func (e *env) forgetKeys() {
	e.t.Helper()
	conn := e.connect()
	defer func() { _ = conn.Close(e.t.Context()) }()
	_, err := conn.Exec(e.t.Context(), `DELETE FROM idempotency_keys`)
	must(e.t, err)
}

func TestReferences(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 500)
	e.account("bob", "EUR", 500)
	kinds := []struct{ kind, path, body string }{
		{"transfer", "/v1/transfers", `{"from":"alice","to":"bob","amount":10,"memo":"m","reference":%q}`},
		{"deposit", "/v1/deposits", `{"account":"alice","amount":10,"memo":"m","reference":%q}`},
		{"withdrawal", "/v1/withdrawals", `{"account":"alice","amount":10,"memo":"m","reference":%q}`},
	}
	for _, k := range kinds {
		reference := "order 7/ü " + k.kind
		body := fmt.Sprintf(k.body, reference)
		key := newUUID()
		first := e.keyed(key, k.path, body).want(http.StatusCreated).equal(fmt.Sprintf(`{"reference":%q}`, reference))
		e.post("/v1/deposits", `{"account":"alice","amount":1}`).want(http.StatusCreated) // The balance is another one now.
		before := e.count("entries")
		for range 2 {
			e.keyed(key, k.path, body).replayed(first)
			again := newUUID()
			repeat := e.keyed(again, k.path, body).want(http.StatusOK)
			if string(repeat.body) != string(first.body) || repeat.header.Get("Idempotent-Replayed") != "" {
				t.Errorf("%s: repeated %s %v, first %s", k.kind, repeat.body, repeat.header, first.body)
			}
			e.keyed(again, k.path, body).replayed(repeat)
			e.forgetKeys() // Now even the first request's own key is a new one.
			late := e.keyed(key, k.path, body).want(http.StatusOK)
			if string(late.body) != string(first.body) {
				t.Errorf("%s: late %s, first %s", k.kind, late.body, first.body)
			}
			e.forgetKeys()
			first = e.keyed(key, k.path, body).want(http.StatusOK)
		}
		for _, other := range []string{
			strings.Replace(body, `:10,`, `:11,`, 1), strings.Replace(body, `"memo":"m",`, ``, 1), strings.Replace(body, `"m"`, `"M"`, 1),
			strings.Replace(body, `"alice"`, `"bob"`, 1), strings.Replace(body, `"bob"`, `"alice"`, 1), strings.Replace(body, `"alice"`, `"nobody"`, 1),
		} {
			if other != body {
				e.post(k.path, other).problem(http.StatusConflict, "reference_taken").equal(`{"retryable":false,"outcome":"not_applied","transfer":"` + first.str("id") + `"}`)
			}
		}
		for _, other := range kinds {
			if other != k {
				e.post(other.path, fmt.Sprintf(other.body, reference)).problem(http.StatusConflict, "reference_taken").equal(`{"transfer":"` + first.str("id") + `"}`)
			}
		}
		if after := e.count("entries"); after != before {
			t.Errorf("%s: repeats made %d entries", k.kind, after-before)
		}
		read := e.get("/v1/transfers/"+first.str("id")).want(http.StatusOK).times("created_at", "completed_at")
		read.equal(fmt.Sprintf(`{"kind":%q,"amount":10,"memo":"m","status":"completed","reason":"","reference":%q}`, k.kind, reference))
		list := e.get("/v1/transfers?reference=" + strings.ReplaceAll(reference, " ", "%20")).want(http.StatusOK)
		if want := `{"items":[` + string(read.body) + `],"next":null}`; string(list.body) != want {
			t.Errorf("list %s, want %s", list.body, want)
		}
	}
	e.balance("alice", 493, 0)
	e.audited()
}

func TestRefusalsLeaveTheirReferenceFree(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 10)
	e.account("bob", "EUR", 0)
	e.account("carol", "USD", 0)
	const pay = `{"from":"alice","to":"bob","amount":20,"reference":"r"}`
	refused := e.post("/v1/transfers", pay).problem(http.StatusPaymentRequired, "insufficient_funds")
	e.post("/v1/transfers", pay).problem(http.StatusPaymentRequired, "insufficient_funds")
	e.post("/v1/withdrawals", `{"account":"alice","amount":20,"reference":"r"}`).problem(http.StatusPaymentRequired, "insufficient_funds")
	e.post("/v1/transfers", `{"from":"alice","to":"alice","amount":1,"reference":"r"}`).problem(http.StatusUnprocessableEntity, "same_account")
	e.post("/v1/transfers", `{"from":"alice","to":"carol","amount":1,"reference":"r"}`).problem(http.StatusUnprocessableEntity, "currency_mismatch")
	e.post("/v1/deposits", `{"account":"nobody","amount":1,"reference":"r"}`).problem(http.StatusNotFound, "not_found")
	e.get("/v1/transfers/" + refused.str("transfer")).want(http.StatusOK).equal(`{"kind":"transfer","status":"failed","reason":"insufficient_funds","completed_at":null,"reference":"r"}`)
	e.get("/v1/transfers?reference=r").want(http.StatusOK).equal(`{"items":[],"next":null}`)

	e.post("/v1/deposits", `{"account":"alice","amount":10}`).want(http.StatusCreated)
	done := e.post("/v1/transfers", pay).want(http.StatusCreated)
	e.post("/v1/transfers", pay).want(http.StatusOK) // Though there is no money left.
	if id := e.get("/v1/transfers?reference=r").want(http.StatusOK).str("items.0.id"); id != done.str("id") {
		t.Errorf("found %s, want %s", id, done.str("id"))
	}
	e.balance("bob", 20, 0)
	e.audited()
}

func TestReferencesAreText(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 100)
	for _, bad := range []string{`""`, `"` + strings.Repeat("x", 201) + `"`, `"a\u0000"`, `"a\n"`, `"\u0085"`, `7`, `["r"]`} {
		for _, path := range []string{"/v1/deposits", "/v1/withdrawals"} {
			e.post(path, `{"account":"alice","amount":1,"reference":`+bad+`}`).problem(http.StatusBadRequest, "bad_request")
		}
		e.post("/v1/transfers", `{"from":"alice","to":"bob","amount":1,"reference":`+bad+`}`).problem(http.StatusBadRequest, "bad_request")
	}
	for range 2 { // null is its absence: this is done twice.
		e.post("/v1/deposits", `{"account":"alice","amount":1,"reference":null}`).want(http.StatusCreated)
	}
	// Each of these is another reference.
	for _, good := range []string{"r", "R", " r", "r ", "ü", "u\u0308", strings.Repeat("𝄞", 200), "'; --"} {
		e.post("/v1/deposits", fmt.Sprintf(`{"account":"alice","amount":1,"reference":%q}`, good)).want(http.StatusCreated)
	}
	e.balance("alice", 110, 0)
	for _, query := range []string{"", "?reference=", "?reference=a&reference=b", "?reference=%0A", "?reference=" + strings.Repeat("x", 201), "?reference=r&limit=0", "?reference=r&after=x"} {
		e.get("/v1/transfers"+query).problem(http.StatusBadRequest, "bad_request")
	}
}

func TestUsersFindTheirOwnReferences(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, id := range []string{"alice", "bob", "carol"} {
		e.account(id, "EUR", 100)
	}
	e.by(e.user("alice")).post("/v1/transfers", `{"from":"alice","to":"bob","amount":1,"reference":"rent"}`).want(http.StatusCreated)
	for account, found := range map[string]int{"alice": 1, "bob": 1, "carol": 0} {
		if n := len(e.by(e.user(account)).get("/v1/transfers?reference=rent").want(http.StatusOK).items()); n != found {
			t.Errorf("%s finds %d transfers, want %d", account, n, found)
		}
	}
}

// TestOneReferenceOnTwoServers sends requests with one reference to two servers at once. One is carried out; the same one again gets its
// answer, and another one is refused.
func TestOneReferenceOnTwoServers(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, id := range []string{"alice", "bob", "carol", "dave"} {
		e.account(id, "EUR", 1000)
	}
	servers := []*env{e, e.beside()}
	const rounds, each = 20, 8
	for n := range rounds {
		bodies := []string{
			fmt.Sprintf(`{"from":"alice","to":"bob","amount":1,"reference":"r%d"}`, n), fmt.Sprintf(`{"from":"carol","to":"dave","amount":1,"reference":"r%d"}`, n),
		}
		var all sync.WaitGroup
		var answers [each]*http.Response
		for i := range each {
			all.Go(func() {
				var err error
				if answers[i], err = servers[i%2].trySend(send{method: http.MethodPost, path: "/v1/transfers", body: bodies[i/2%2], key: newUUID()}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if t.Failed() {
			return
		}
		var replies [each]*reply
		first := -1
		for i := range each {
			if replies[i] = e.received(http.MethodPost, "/v1/transfers", bodies[i/2%2], answers[i]); replies[i].status == http.StatusCreated {
				if first >= 0 {
					t.Errorf("two were carried out: %s and %s", replies[first].body, replies[i].body)
				}
				first = i
			}
		}
		if first < 0 {
			t.Fatal("none was carried out")
		}
		for i, r := range replies {
			if i == first {
				continue
			}
			if bodies[i/2%2] != bodies[first/2%2] {
				r.problem(http.StatusConflict, "reference_taken").equal(`{"transfer":"` + replies[first].str("id") + `"}`)
			} else if r.want(http.StatusOK); string(r.body) != string(replies[first].body) {
				t.Errorf("repeated %s, first %s", r.body, replies[first].body)
			}
		}
	}
	if n := e.count("transfers WHERE kind = 'transfer'"); n != rounds {
		t.Errorf("%d transfers of %d references", n, rounds)
	}
}
