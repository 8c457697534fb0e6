package server

import (
	"net/http"
	"testing"
	"time"
)

func TestHolds(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 1000)
	e.account("shop", "EUR", 0)
	made := e.post("/v1/holds", `{"account":"alice","amount":400}`).want(http.StatusCreated)
	made.exactly(made.decoded, "id", "account", "amount", "captured", "status", "expires_at", "created_at")
	made.equal(`{"account":"alice","amount":400,"captured":0,"status":"open","expires_at":null}`).uuids("id").times("created_at")
	e.balance("alice", 600, 400)
	hold := "/v1/holds/" + made.str("id")
	if read := e.get(hold).want(http.StatusOK); string(read.body) != string(made.body) {
		t.Errorf("read %s, made %s", read.body, made.body)
	}

	// A part captured releases the rest.
	e.post(hold+"/capture", `{"to":"shop","amount":401}`).problem(http.StatusUnprocessableEntity, "capture_too_large")
	e.post(hold+"/capture", `{"to":"shop","amount":150}`).want(http.StatusOK).equal(`{"amount":400,"captured":150,"status":"captured"}`)
	e.balance("alice", 850, 0)
	e.balance("shop", 150, 0)
	e.get(hold).want(http.StatusOK).equal(`{"captured":150,"status":"captured"}`)
	e.post(hold+"/capture", `{"to":"shop"}`).problem(http.StatusConflict, "hold_closed")
	e.post(hold+"/release", ``).problem(http.StatusConflict, "hold_closed")

	// The whole, with and without naming it; null is absence.
	for _, body := range []string{`{"to":"shop"}`, `{"to":"shop","amount":100}`, `{"to":"shop","amount":null}`} {
		h := "/v1/holds/" + e.post("/v1/holds", `{"account":"alice","amount":100}`).want(http.StatusCreated).str("id")
		e.post(h+"/capture", body).want(http.StatusOK).equal(`{"captured":100,"status":"captured"}`)
	}
	e.balance("alice", 550, 0)
	e.balance("shop", 450, 0)

	// Released.
	h := "/v1/holds/" + e.post("/v1/holds", `{"account":"alice","amount":550,"expires_in":null}`).want(http.StatusCreated).str("id")
	e.post("/v1/transfers", `{"from":"alice","to":"shop","amount":1}`).problem(http.StatusPaymentRequired, "insufficient_funds")
	e.post("/v1/withdrawals", `{"account":"alice","amount":1}`).problem(http.StatusPaymentRequired, "insufficient_funds")
	e.post(h+"/release", `{}`).want(http.StatusOK).equal(`{"captured":0,"status":"released"}`)
	e.balance("alice", 550, 0)
	e.post(h+"/release", ``).problem(http.StatusConflict, "hold_closed")
	e.post(h+"/capture", `{"to":"shop"}`).problem(http.StatusConflict, "hold_closed")
}

func TestHoldRefusals(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 100)
	e.account("dollar", "USD", 0)
	e.post("/v1/holds", `{"account":"alice","amount":101}`).problem(http.StatusPaymentRequired, "insufficient_funds")
	e.post("/v1/holds", `{"account":"nobody","amount":1}`).problem(http.StatusNotFound, "not_found")
	absent := "/v1/holds/" + newUUID()
	e.get(absent).problem(http.StatusNotFound, "not_found")
	e.post(absent+"/capture", `{"to":"alice"}`).problem(http.StatusNotFound, "not_found")
	e.post(absent+"/release", ``).problem(http.StatusNotFound, "not_found")

	h := "/v1/holds/" + e.post("/v1/holds", `{"account":"alice","amount":60}`).want(http.StatusCreated).str("id")
	e.post(h+"/capture", `{"to":"nobody"}`).problem(http.StatusNotFound, "not_found")
	e.post(h+"/capture", `{"to":"dollar"}`).problem(http.StatusUnprocessableEntity, "currency_mismatch")
	e.post(h+"/capture", `{"to":"alice"}`).problem(http.StatusUnprocessableEntity, "same_account")
	e.get(h).want(http.StatusOK).equal(`{"status":"open","captured":0}`)
	e.balance("alice", 40, 60)
}

func TestHoldsExpire(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 100)
	e.account("shop", "EUR", 0)
	short := e.post("/v1/holds", `{"account":"alice","amount":30,"expires_in":"20ms"}`).want(http.StatusCreated).times("expires_at")
	lazy := e.post("/v1/holds", `{"account":"alice","amount":20,"expires_in":"20ms"}`).want(http.StatusCreated)
	long := e.post("/v1/holds", `{"account":"alice","amount":10,"expires_in":"1h30m"}`).want(http.StatusCreated).times("expires_at")
	made, err := time.Parse(time.RFC3339, long.str("created_at"))
	must(t, err)
	ends, err := time.Parse(time.RFC3339, long.str("expires_at"))
	must(t, err)
	if ends.Sub(made) != 90*time.Minute {
		t.Errorf("expires %s after it was made", ends.Sub(made))
	}
	due := func() int { return e.count("holds WHERE status = 'open' AND expires_at < clock_timestamp()") }
	eventually(t, patience, "both holds are due", func() bool { return due() == 2 })

	// Past its time a hold is closed, swept or not.
	e.post("/v1/holds/"+lazy.str("id")+"/capture", `{"to":"shop"}`).problem(http.StatusConflict, "hold_closed")
	e.get("/v1/holds/" + lazy.str("id")).want(http.StatusOK).equal(`{"status":"expired","captured":0}`)
	e.balance("alice", 60, 40)
	closed, err := e.ledger.Sweep(t.Context())
	if err != nil || closed != 1 {
		t.Fatalf("swept %d, %v; want the one that is due", closed, err)
	}
	e.get("/v1/holds/" + short.str("id")).want(http.StatusOK).equal(`{"status":"expired"}`)
	e.get("/v1/holds/" + long.str("id")).want(http.StatusOK).equal(`{"status":"open"}`)
	e.balance("alice", 90, 10)
	e.post("/v1/holds/"+short.str("id")+"/release", ``).problem(http.StatusConflict, "hold_closed")
}
