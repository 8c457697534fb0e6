package server

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/google/uuid"
)

func bidBody(account string, amount int) string {
	return fmt.Sprintf(`{"account":%q,"amount":%d}`, account, amount)
}

func TestCooldown(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.bidders(2, 1000)
	id := e.started(twoRounds, `"cooldown":"4.2s"`)
	path := "/v1/auctions/" + id + "/bids"
	key, body := newUUID(), bidBody("bidder-000", 20)
	e.bid(id, "bidder-000", 10).want(http.StatusCreated)
	early := e.keyed(key, path, body).problem(http.StatusTooManyRequests, "cooldown")
	early.equal(`{"retryable":true,"outcome":"not_applied"}`)
	// What is left is under 4.2 s, and rounded up.
	wait, err := strconv.ParseInt(early.header.Get("Retry-After"), 10, 64)
	if err != nil || wait < 1 || wait > 5 || early.num("retry_after") != wait {
		t.Errorf("Retry-After %d, %v, %s", wait, err, early.body)
	}
	e.bid(id, "bidder-001", 11).want(http.StatusCreated) // Another account does not wait.
	if n := e.count(`idempotency_keys WHERE status = 429`); n != 0 {
		t.Errorf("%d refusals to wait are stored", n)
	}
	eventually(t, patience, "a bid after the cooldown", func() bool {
		r := e.keyed(key, path, body)
		if r.status == http.StatusCreated && r.header.Get("Idempotent-Replayed") != "" {
			t.Error("the first success is a replay")
		}
		return r.status == http.StatusCreated
	})
	e.keyed(key, path, body).want(http.StatusCreated)
	e.balance("bidder-000", 980, 20)
}

func TestBidReplays(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.bidders(3, 1000)
	id := e.started(twoRounds, `"cooldown":"0s","min_bid":10`)
	path := "/v1/auctions/" + id + "/bids"
	for _, c := range []struct {
		body   string
		status int
	}{
		{bidBody("bidder-000", 100), http.StatusCreated},
		{bidBody("bidder-000", 150), http.StatusCreated},
		{bidBody("bidder-001", 5), http.StatusUnprocessableEntity},
		{bidBody("bidder-001", 150), http.StatusConflict},
		{bidBody("bidder-001", 5000), http.StatusPaymentRequired},
		{bidBody("seller", 200), http.StatusConflict},
	} {
		key := newUUID()
		first := e.keyed(key, path, c.body).want(c.status)
		after := e.snapshot()
		for range 2 {
			e.keyed(key, path, c.body).replayed(first)
		}
		e.keyed(key, path, bidBody("bidder-002", 400)).problem(http.StatusUnprocessableEntity, "idempotency_key_reused")
		e.unchanged(after)
	}
	for _, verb := range []string{"start", "cancel"} { // Both, decided again, would be refused.
		key, other := newUUID(), e.auctioned(twoRounds, ``)
		first := e.keyed(key, "/v1/auctions/"+other+"/"+verb, ``).want(http.StatusOK)
		e.keyed(key, "/v1/auctions/"+other+"/"+verb, `{}`).replayed(first)
	}
	// The path is part of the key: another auction's bids are other requests.
	shared := newUUID()
	for _, lot := range []string{id, e.started(twoRounds, ``)} {
		e.keyed(shared, "/v1/auctions/"+lot+"/bids", bidBody("bidder-001", 111)).want(http.StatusCreated).equal(fmt.Sprintf(`{"auction":%q}`, lot))
	}
	// One key, ten times at once.
	e.once(10, path, bidBody("bidder-002", 300), http.StatusCreated)
	e.balance("bidder-002", 700, 300)
	e.audited()
}

// TestBidByOtherMeans places a bid as a protocol other than HTTP does, under the same keys.
func TestBidByOtherMeans(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.bidders(2, 1000)
	id := e.started(twoRounds, `"cooldown":"1h"`)
	path := "/v1/auctions/" + id + "/bids"
	admin, err := e.server.Auth.Authenticate(t.Context(), "Bearer "+e.admin)
	must(t, err)
	user, err := e.server.Auth.Authenticate(t.Context(), "Bearer "+e.user("bidder-000"))
	must(t, err)
	a, err := e.server.placeBid(t.Context(), admin, "r", id, bidRequest{Account: "bidder-000", Amount: 10}, `"k1"`)
	must(t, err)
	if a.Status != http.StatusCreated || a.Replayed {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	again := e.keyed("k1", path, bidBody("bidder-000", 10)).want(http.StatusCreated)
	if string(again.body) != string(a.Body) || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the other way round the key is another: %s", again.body)
	}
	e.keyed("k1", path, bidBody("bidder-000", 11)).problem(http.StatusUnprocessableEntity, "idempotency_key_reused")
	first := e.keyed("k2", path, bidBody("bidder-001", 12)).want(http.StatusCreated)
	a, err = e.server.placeBid(t.Context(), admin, "r", id, bidRequest{Account: "bidder-001", Amount: 12}, "k2")
	must(t, err)
	if !a.Replayed || string(a.Body) != string(first.body) {
		t.Errorf("replayed %v: %s", a.Replayed, a.Body)
	}
	a, err = e.server.placeBid(t.Context(), user, "r", id, bidRequest{Account: "bidder-000", Amount: 30}, "k2")
	must(t, err)
	if a.Status != http.StatusTooManyRequests || a.Replayed {
		t.Errorf("another principal's key is not its own: %d %s", a.Status, a.Body)
	}
	a, err = e.server.placeBid(t.Context(), admin, "r", uuid.NewString(), bidRequest{Account: "bidder-000", Amount: 30}, "k3")
	must(t, err)
	if a.Status != http.StatusNotFound {
		t.Errorf("an absent auction: %d %s", a.Status, a.Body)
	}
	before := e.snapshot()
	for _, c := range []struct {
		account string
		amount  int64
		key     string
		code    string
	}{
		{"bidder-001", 30, "k", "forbidden"},
		{"bidder-000", 0, "k", "bad_request"},
		{"bidder-000", 1 << 53, "k", "bad_request"},
		{"", 30, "k", "bad_request"},
		{"bidder-000", 30, "", "idempotency_key_required"},
		{"bidder-000", 30, "a b", "idempotency_key_required"},
	} {
		_, err := e.server.placeBid(t.Context(), user, "r", id, bidRequest{Account: c.account, Amount: c.amount}, c.key)
		if p := problemOf(err, "r"); err == nil || p.Code != c.code {
			t.Errorf("%+v: %v", c, err)
		}
	}
	e.unchanged(before)
}

func TestUsersBid(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.bidders(2, 1000)
	id := e.started(twoRounds, ``)
	user := e.by(e.user("bidder-000"))
	before := e.snapshot()
	user.bid(id, "bidder-001", 10).problem(http.StatusForbidden, "forbidden")
	user.bid(newUUID(), "nobody", 10).problem(http.StatusForbidden, "forbidden")
	user.post("/v1/auctions/"+id+"/start", ``).problem(http.StatusForbidden, "forbidden")
	user.post("/v1/auctions/"+id+"/cancel", ``).problem(http.StatusForbidden, "forbidden")
	user.post("/v1/auctions", `{`).problem(http.StatusForbidden, "forbidden")
	e.unchanged(before)
	user.bid(id, "bidder-000", 10).want(http.StatusCreated)
	for _, path := range []string{"", "/" + id, "/" + id + "/leaderboard", "/" + id + "/winners", "/" + id + "/bids", "/" + id + "/min-winning-bid"} {
		user.get("/v1/auctions" + path).want(http.StatusOK)
	}
	e.by(e.user("newcomer")).bid(id, "newcomer", 10).problem(http.StatusNotFound, "not_found")
}
