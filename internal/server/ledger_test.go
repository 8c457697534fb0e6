package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// account opens an account with money on it.
func (e *env) account(id, currency string, amount int64) {
	e.t.Helper()
	e.by(e.admin).post("/v1/accounts", fmt.Sprintf(`{"id":%q,"currency":%q}`, id, currency)).want(http.StatusCreated)
	if amount > 0 {
		e.by(e.admin).post("/v1/deposits", fmt.Sprintf(`{"account":%q,"amount":%d}`, id, amount)).want(http.StatusCreated)
	}
}

// balance fails unless the account stands so.
func (e *env) balance(id string, available, held int64) {
	e.t.Helper()
	e.by(e.admin).get("/v1/accounts/" + id).want(http.StatusOK).equal(fmt.Sprintf(`{"id":%q,"available":%d,"held":%d}`, id, available, held))
}

func TestAccounts(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	made := e.post("/v1/accounts", `{"id":"alice","currency":"EUR"}`).want(http.StatusCreated)
	made.exactly(made.decoded, "id", "currency", "available", "held", "version", "created_at")
	made.equal(`{"id":"alice","currency":"EUR","available":0,"held":0}`).times("created_at")
	if made.header.Get("Content-Type") != "application/json" {
		t.Errorf("content type %q", made.header.Get("Content-Type"))
	}
	read := e.get("/v1/accounts/alice").want(http.StatusOK)
	if string(read.body) != string(made.body) {
		t.Errorf("read %s, made %s", read.body, made.body)
	}
	e.post("/v1/accounts", `{"id":"alice","currency":"EUR"}`).problem(http.StatusConflict, "account_exists")
	e.post("/v1/accounts", `{"id":"alice","currency":"USD"}`).problem(http.StatusConflict, "account_exists")
	e.get("/v1/accounts/nobody").problem(http.StatusNotFound, "not_found")
	e.get("/v1/accounts/nobody/entries").problem(http.StatusNotFound, "not_found")

	// Everything that an id and a currency may be.
	for _, id := range []string{"A", "z", "0", "...", ".a", "a.b_c:d@e-f", "-", "@", strings.Repeat("x", 64)} {
		e.post("/v1/accounts", fmt.Sprintf(`{"id":%q,"currency":"EUR"}`, id)).want(http.StatusCreated)
		e.get("/v1/accounts/" + id).want(http.StatusOK).equal(fmt.Sprintf(`{"id":%q}`, id))
	}
	for _, currency := range []string{"EUR", "A00", "ABCDEFGHIJKL", "B2B4"} {
		e.post("/v1/accounts", fmt.Sprintf(`{"id":"c-%s","currency":%q}`, currency, currency)).want(http.StatusCreated)
	}
}

func TestDepositsAndWithdrawals(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 0)
	in := e.post("/v1/deposits", `{"account":"alice","amount":1000,"memo":"hello, Wörld 🎟"}`).want(http.StatusCreated)
	in.exactly(in.decoded, "id", "account", "amount", "currency", "available")
	in.equal(`{"account":"alice","amount":1000,"currency":"EUR","available":1000}`).uuids("id")
	out := e.post("/v1/withdrawals", `{"account":"alice","amount":300}`).want(http.StatusCreated)
	out.exactly(out.decoded, "id", "account", "amount", "currency", "available")
	out.equal(`{"account":"alice","amount":300,"currency":"EUR","available":700}`).uuids("id")
	e.balance("alice", 700, 0)

	e.get("/v1/transfers/" + in.str("id")).want(http.StatusOK).equal(`{"kind":"deposit","to":"alice","amount":1000,"status":"completed","memo":"hello, Wörld 🎟","reason":""}`)
	e.get("/v1/transfers/" + out.str("id")).want(http.StatusOK).equal(`{"kind":"withdrawal","from":"alice","amount":300,"status":"completed"}`)

	before := e.snapshot()
	e.post("/v1/deposits", `{"account":"nobody","amount":1}`).problem(http.StatusNotFound, "not_found")
	e.post("/v1/withdrawals", `{"account":"nobody","amount":1}`).problem(http.StatusNotFound, "not_found")
	e.unchanged(before)
	e.post("/v1/withdrawals", `{"account":"alice","amount":701}`).problem(http.StatusPaymentRequired, "insufficient_funds").equal(`{"retryable":false,"outcome":"not_applied"}`)
	e.post("/v1/withdrawals", `{"account":"alice","amount":700}`).want(http.StatusCreated).equal(`{"available":0}`)

	// The largest amounts, and the longest memo.
	const most = 1<<53 - 1
	e.account("rich", "EUR", 0)
	largest := fmt.Sprintf(`{"account":"rich","amount":%d}`, int64(most))
	for n := range int64(2) {
		e.post("/v1/deposits", largest).want(http.StatusCreated).equal(fmt.Sprintf(`{"available":%d}`, (n+1)*most))
	}
	e.post("/v1/deposits", fmt.Sprintf(`{"account":"alice","amount":%d,"memo":%q}`, 1, strings.Repeat("é", 500))).want(http.StatusCreated)
	e.post("/v1/deposits", `{"account":"alice","amount":1,"memo":null}`).want(http.StatusCreated)
	e.post("/v1/deposits", `{"account":"alice","amount":1,"memo":""}`).want(http.StatusCreated)
}

func TestBalanceOverflow(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("rich", "EUR", 0)
	e.account("other", "EUR", 100)
	// 1,024 deposits of the largest amount come near the largest balance.
	const most = 1<<53 - 1
	for range 1024 {
		e.post("/v1/deposits", fmt.Sprintf(`{"account":"rich","amount":%d}`, int64(most))).want(http.StatusCreated)
	}
	left := int64(1<<63-1) - 1024*most
	e.balance("rich", 1024*most, 0)
	e.post("/v1/deposits", fmt.Sprintf(`{"account":"rich","amount":%d}`, left+1)).problem(http.StatusUnprocessableEntity, "balance_overflow")
	e.post("/v1/deposits", fmt.Sprintf(`{"account":"rich","amount":%d}`, left)).want(http.StatusCreated).equal(`{"available":9223372036854775807}`)
	e.post("/v1/transfers", `{"from":"other","to":"rich","amount":1}`).problem(http.StatusUnprocessableEntity, "balance_overflow")
	e.balance("other", 100, 0)
}

func TestTransfers(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 500)
	e.account("bob", "EUR", 0)
	e.account("carol", "USD", 0)
	done := e.post("/v1/transfers", `{"from":"alice","to":"bob","amount":200,"memo":"rent"}`).want(http.StatusCreated)
	done.exactly(done.decoded, "id", "kind", "from", "to", "amount", "currency", "status", "reason", "memo", "created_at", "completed_at")
	done.equal(`{"kind":"transfer","from":"alice","to":"bob","amount":200,"currency":"EUR","status":"completed","reason":"","memo":"rent"}`)
	done.uuids("id").times("created_at", "completed_at")
	read := e.get("/v1/transfers/" + done.str("id")).want(http.StatusOK)
	if string(read.body) != string(done.body) {
		t.Errorf("read %s, made %s", read.body, done.body)
	}
	e.balance("alice", 300, 0)
	e.balance("bob", 200, 0)

	refused := e.post("/v1/transfers", `{"from":"alice","to":"bob","amount":301,"memo":"too much"}`).problem(http.StatusPaymentRequired, "insufficient_funds")
	refused.uuids("transfer")
	e.get("/v1/transfers/" + refused.str("transfer")).want(http.StatusOK).equal(
		`{"kind":"transfer","from":"alice","to":"bob","amount":301,"currency":"EUR","status":"failed","reason":"insufficient_funds","memo":"too much"}`)
	e.post("/v1/transfers", `{"from":"alice","to":"bob","amount":300}`).want(http.StatusCreated)
	e.balance("alice", 0, 0)

	e.post("/v1/transfers", `{"from":"alice","to":"alice","amount":1}`).problem(http.StatusUnprocessableEntity, "same_account")
	e.post("/v1/transfers", `{"from":"bob","to":"carol","amount":1}`).problem(http.StatusUnprocessableEntity, "currency_mismatch")
	e.post("/v1/transfers", `{"from":"nobody","to":"bob","amount":1}`).problem(http.StatusNotFound, "not_found")
	e.post("/v1/transfers", `{"from":"bob","to":"nobody","amount":1}`).problem(http.StatusNotFound, "not_found")
	e.get("/v1/transfers/"+newUUID()).problem(http.StatusNotFound, "not_found")
	if n := e.count("transfers WHERE status = 'failed'"); n != 1 {
		t.Errorf("%d failed intents, want the one without money", n)
	}
}

func TestEntriesSumToTheBalance(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 500)
	e.account("bob", "EUR", 0)
	e.post("/v1/transfers", `{"from":"alice","to":"bob","amount":120,"memo":"a memo"}`).want(http.StatusCreated)
	e.post("/v1/withdrawals", `{"account":"alice","amount":30}`).want(http.StatusCreated)
	hold := e.post("/v1/holds", `{"account":"alice","amount":100}`).want(http.StatusCreated)
	e.post("/v1/holds", `{"account":"alice","amount":50}`).want(http.StatusCreated)
	e.post("/v1/holds/"+hold.str("id")+"/capture", `{"to":"bob","amount":70}`).want(http.StatusOK)
	for _, account := range []string{"alice", "bob"} {
		entries := e.get("/v1/accounts/" + account + "/entries").want(http.StatusOK)
		sum := int64(0)
		for i, item := range entries.items() {
			entries.exactly(item, "id", "transfer", "amount", "at", "memo")
			place := fmt.Sprintf("items.%d.", i)
			entries.uuids(place+"id", place+"transfer").times(place + "at")
			sum += entries.num(place + "amount")
		}
		a := e.get("/v1/accounts/" + account).want(http.StatusOK)
		if total := a.num("available") + a.num("held"); sum != total {
			t.Errorf("%s: entries sum to %d, available and held to %d", account, sum, total)
		}
		if entries.at("next") != nil {
			t.Errorf("next is %v on the last page", entries.at("next"))
		}
	}
	e.balance("alice", 230, 50)
	e.balance("bob", 190, 0)
	first := e.get("/v1/accounts/alice/entries?limit=2").want(http.StatusOK)
	if first.num("items.0.amount") != 500 || first.num("items.1.amount") != -120 || first.str("items.1.memo") != "a memo" {
		t.Errorf("entries are not oldest first with their memo: %s", first.body)
	}

	in := e.get("/v1/integrity").want(http.StatusOK)
	in.exactly(in.decoded, "valid", "difference", "checked_at", "currencies", "first_bad_account", "bad_transfers", "closed_at", "recounted_at")
	in.equal(`{"valid":true,"difference":0,"first_bad_account":null,"bad_transfers":0,
		"currencies":[{"currency":"EUR","deposits":500,"withdrawals":30,"available":420,"held":50,"difference":0}]}`).times("checked_at", "closed_at", "recounted_at")
}

// TestIntegrityNamesTheFirstBadAccount changes rows behind the server's back.
func TestIntegrityNamesTheFirstBadAccount(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, id := range []string{"alice", "bob", "carol"} {
		e.account(id, "EUR", 100)
	}
	conn := e.connect()
	defer func() { _ = conn.Close(t.Context()) }()
	tamper := func(sql string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), sql)
		must(t, err)
	}
	tamper(`UPDATE accounts SET available = available + 7 WHERE id IN ('bob', 'carol')`)
	e.get("/v1/integrity").want(http.StatusOK).equal(`{"valid":false,"difference":14,"first_bad_account":"bob",
		"currencies":[{"currency":"EUR","deposits":300,"withdrawals":0,"available":314,"held":0,"difference":-14}]}`)
	tamper(`UPDATE accounts SET available = available - 7 WHERE id IN ('bob', 'carol')`)
	tamper(`UPDATE accounts SET available = available - 5, held = held + 5 WHERE id = 'carol'`)
	e.get("/v1/integrity").want(http.StatusOK).equal(`{"valid":false,"difference":0,"first_bad_account":"carol"}`)
	tamper(`UPDATE accounts SET available = available + 5, held = held - 5 WHERE id = 'carol'`)
	e.get("/v1/integrity").want(http.StatusOK).equal(`{"valid":true}`)
}
