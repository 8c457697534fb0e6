package server

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
)

// TestAccountBids reads an account's standing bids with every credential, while they rise, win and end.
func TestAccountBids(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, id := range []string{"ann", "bob", "cyd"} {
		e.account(id, "EUR", 10_000)
	}
	unique := e.started(`[{"winners":2,"duration":"1h"},{"winners":1,"duration":"1h"}]`, `"cooldown":"0s"`)
	shared := e.started(`[{"winners":1,"duration":"1h"}]`, `"cooldown":"0s","unique_amounts":false`)
	e.bid(shared, "bob", 70).want(http.StatusCreated)
	e.bid(shared, "ann", 70).want(http.StatusCreated)
	for i, account := range []string{"ann", "bob", "cyd"} {
		e.bid(unique, account, int64(10+10*i)).want(http.StatusCreated)
	}
	const path = "/v1/accounts/ann/bids"
	first := e.get(path).want(http.StatusOK)
	first.exactly(first.at("items.0"), "auction", "round", "amount", "rank", "winning", "round_ends_at")
	first.times("items.0.round_ends_at")
	// bids says what an account's list is: the amount, rank and winner's mark of each, and the round where it is not the first.
	bids := func(e *env, account string, want ...string) {
		t.Helper()
		r, got := e.get("/v1/accounts/"+account+"/bids").want(http.StatusOK), []string{}
		for i := range r.items() {
			item := fmt.Sprintf("items.%d.", i)
			line := fmt.Sprintf("%s %d of rank %d", map[string]string{unique: "unique", shared: "shared"}[r.str(item+"auction")], r.num(item+"amount"), r.num(item+"rank"))
			if r.at(item+"winning") == true {
				line += " wins"
			}
			if n := r.num(item + "round"); n > 1 {
				line += fmt.Sprintf(" in round %d", n)
			}
			got = append(got, line)
		}
		if !slices.Equal(got, want) || r.at("next") != nil {
			t.Errorf("%s: %q, want %q", account, got, want)
		}
	}
	bids(e, "ann", "unique 10 of rank 3", "shared 70 of rank 2")
	e.bid(unique, "ann", 25).want(http.StatusCreated) // Two places: in front of bob.
	bids(e, "bob", "unique 20 of rank 3", "shared 70 of rank 1 wins")
	e.pagesOf("/v1/accounts/ann/bids", "rank", 2)
	for _, credential := range []string{e.admin, e.service, e.user("ann")} {
		bids(e.by(credential), "ann", "unique 25 of rank 2 wins", "shared 70 of rank 2")
	}
	e.by(e.user("bob")).get(path).problem(http.StatusForbidden, "forbidden")
	e.by(e.user("bob")).get("/v1/accounts/nobody/bids").problem(http.StatusForbidden, "forbidden")
	e.by(e.user("nobody")).get("/v1/accounts/nobody/bids").problem(http.StatusNotFound, "not_found")
	e.by(e.service).get("/v1/accounts/nobody/bids").problem(http.StatusNotFound, "not_found")
	e.by(e.admin).get("/v1/accounts/seller/bids").want(http.StatusOK).equal(`{"items":[],"next":null}`)
	e.by("").get(path).problem(http.StatusUnauthorized, "unauthorized")
	e.by(e.admin).get(path+"?limit=0").problem(http.StatusBadRequest, "bad_request")
	e.badPages(path)

	// The winners' bids are gone after the close, the loser's is carried over; a cancelled auction has none.
	e.overdue(unique)
	e.closeRound(unique, 1)
	bids(e, "ann", "shared 70 of rank 2")
	bids(e, "bob", "unique 20 of rank 1 wins in round 2", "shared 70 of rank 1 wins")
	e.auctionPost(shared, "cancel").want(http.StatusOK)
	bids(e, "ann")
	e.audited()
}
