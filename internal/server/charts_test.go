package server

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/recent"
)

// measure keeps what was measured since the last call, as of the given sample.
func (e *env) measure(sample int) {
	e.t.Helper()
	families, err := e.server.Registry.Gather()
	must(e.t, err)
	e.server.Recent.Sample(families, time.Unix(1_000_000, 0).Add(time.Duration(sample)*recent.Every))
}

// series is the last value of one.
func series(t *testing.T, r *reply, name string) any {
	t.Helper()
	all, _ := r.at("series").([]any)
	for i := range all {
		if r.str(fmt.Sprintf("series.%d.name", i)) == name {
			values, _ := r.at(fmt.Sprintf("series.%d.values", i)).([]any)
			return values[len(values)-1]
		}
	}
	return nil
}

// TestMeasurements refuses commands for two reasons, and reads how often.
func TestMeasurements(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 0)
	e.account("bob", "EUR", 0)
	e.measure(0)
	e.get("/v1/admin/measurements").want(http.StatusOK).equal(`{"at":[]}`)
	for range 20 {
		// Decided in the transaction; its detail has what looks like a code.
		e.post("/v1/transfers", `{"from":"alice","to":"bob","amount":1,"memo":"\"code\":\"mine\""}`).problem(http.StatusPaymentRequired, "insufficient_funds")
	}
	for range 10 {
		e.get("/v1/accounts/nobody").problem(http.StatusNotFound, "not_found")
	}
	again := send{method: http.MethodPost, path: "/v1/transfers", body: `{"from":"alice","to":"bob","amount":2}`, key: "again"}
	for range 3 { // The stored answer, given again, is no other refusal.
		e.send(again).problem(http.StatusPaymentRequired, "insufficient_funds")
	}
	e.measure(1)
	r := e.get("/v1/admin/measurements").want(http.StatusOK)
	for name, want := range map[string]string{"refused insufficient_funds": "2.1", "refused not_found": "1", "failures": "0"} {
		if got := fmt.Sprint(series(t, r, name)); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if series(t, r, "latency p99") == nil || series(t, r, "lock wait p50") != nil || series(t, r, "refused mine") != nil {
		t.Errorf("%s", r.body)
	}
	e.measure(2)
	r = e.get(fmt.Sprintf("/v1/admin/measurements?since=%d", r.num("last"))).want(http.StatusOK)
	if at, _ := r.at("at").([]any); len(at) != 1 || r.num("last") != 2 {
		t.Errorf("the samples since: %s", r.body)
	}
	e.get("/v1/admin/measurements?since=x").problem(http.StatusBadRequest, "bad_request")
	e.get("/v1/admin/measurements?since=-1").problem(http.StatusBadRequest, "bad_request")
}

// TestDeadlocksAreRemembered closes a ring of two.
func TestDeadlocksAreRemembered(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.get("/v1/admin/deadlocks").want(http.StatusOK).equal(`{"deadlocks":[]}`)
	e.lock("anna", "1h", "", "east").want(http.StatusCreated)
	e.lock("boris", "1h", "", "west").want(http.StatusCreated)
	first := e.lockAsync(t.Context(), 0, newUUID(), lockBody("anna", "1h", "5m", "west"))
	e.waitersAre(1)
	if r := <-e.lockAsync(t.Context(), 1, newUUID(), lockBody("boris", "1h", "5m", "east")); r.body.Code != "deadlock" {
		t.Fatalf("%d %s", r.status, r.raw)
	}
	// It is remembered behind the transaction that lets the request know.
	eventually(t, patience, "it is remembered", func() bool {
		found, _ := e.get("/v1/admin/deadlocks").want(http.StatusOK).at("deadlocks").([]any)
		return len(found) == 1
	})
	r := e.get("/v1/admin/deadlocks").want(http.StatusOK).times("deadlocks.0.at")
	r.equal(`{"deadlocks.0.cycle":["boris","anna"],"deadlocks.0.keys":["east","west"]}`)
	locks := e.get("/v1/locks").want(http.StatusOK)
	for i := range 2 {
		e.unlock(locks.str(fmt.Sprintf("holders.%d.id", i))).want(http.StatusNoContent)
	}
	<-first
}

// TestBalancesAndSales follows an account and a sale over time.
func TestBalancesAndSales(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 1000)
	e.account("bob", "EUR", 0)
	for _, amount := range []int{300, 200} {
		e.post("/v1/transfers", fmt.Sprintf(`{"from":"alice","to":"bob","amount":%d}`, amount)).want(http.StatusCreated)
	}
	e.post("/v1/holds", `{"account":"alice","amount":100}`).want(http.StatusCreated) // What is held is the account's still.
	r := e.get("/v1/admin/accounts/alice/balances").want(http.StatusOK).times("from", "to")
	if r.num("opening") != 0 || r.num("balances.0.balance") != 1000 || r.num("balances.1.balance") != 700 || r.num("balances.2.balance") != 500 {
		t.Errorf("%s", r.body)
	}
	// What is older than an hour is in the opening balance.
	conn := e.connect()
	_, err := conn.Exec(t.Context(), `UPDATE entries SET at = at - interval '2 hours' WHERE account = 'alice' AND amount = 1000`)
	must(t, err)
	r = e.get("/v1/admin/accounts/alice/balances").want(http.StatusOK)
	if r.num("opening") != 1000 || r.num("balances.0.balance") != 700 {
		t.Errorf("%s", r.body)
	}
	e.get("/v1/admin/accounts/nobody/balances").problem(http.StatusNotFound, "not_found")
	e.get("/v1/admin/accounts/outside%2FEUR/balances").problem(http.StatusNotFound, "not_found")

	id := e.onSale(`"base_length":3`, "")
	if r := e.get("/v1/admin/campaigns/" + id + "/sales").want(http.StatusOK); r.num("sold") != 0 || r.num("total") != 6 {
		t.Errorf("%s", r.body)
	}
	e.account("carol", "EUR", 100_000)
	for range 4 {
		e.buy(id, "carol").want(http.StatusCreated)
	}
	r = e.get("/v1/admin/campaigns/" + id + "/sales").want(http.StatusOK)
	if sales, _ := r.at("sales").([]any); len(sales) != 4 || r.num("sales.0.sold") != 1 || r.num("sales.3.sold") != 4 {
		t.Errorf("%s", r.body)
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 299, 300, 301, 500_500} {
		got := spread(n, chartSales)
		if len(got) != min(n, chartSales) {
			t.Fatalf("%d of %d", len(got), n)
		}
		for i := 1; i < len(got); i++ {
			if got[i] <= got[i-1] {
				t.Fatalf("of %d: %d behind %d", n, got[i], got[i-1])
			}
		}
		if n > 0 && (got[0] != 1 || n > 1 && got[len(got)-1] != n) {
			t.Errorf("of %d: from %d to %d", n, got[0], got[len(got)-1])
		}
	}
}
