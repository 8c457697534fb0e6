package server

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
)

// TestAccountPurchases reads an account's purchases in all campaigns with every credential.
func TestAccountPurchases(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, id := range []string{"ann", "bob", "cyd"} {
		e.account(id, "EUR", 10_000)
	}
	triangle, layers := e.onSale(`"base_length":5`, ""), e.onSale(`"layers":[{"positions":9,"price":250}]`, "")
	const path = "/v1/accounts/ann/purchases"
	var anns []string // newest first
	for i := range 9 {
		sale := []string{triangle, layers}[i%2]
		bought := e.buy(sale, "ann").want(http.StatusCreated)
		e.buy(sale, "bob").want(http.StatusCreated)
		anns = slices.Insert(anns, 0, bought.str("id"))
		// The list has what the purchase was answered with.
		newest := e.get(path + "?limit=1").want(http.StatusOK)
		if got, want := fmt.Sprint(newest.at("items.0")), fmt.Sprint(bought.decoded); got != want {
			t.Errorf("the list begins with %s, not %s", got, want)
		}
	}
	for _, limit := range []int{1, 2, 4, 9, 200} {
		if got := e.walk(path, "id", limit); !slices.Equal(got, anns) {
			t.Errorf("by %d: %v, want %v", limit, got, anns)
		}
	}
	e.campaignPost(triangle, "cancel", ``).want(http.StatusOK)
	for _, credential := range []string{e.admin, e.service, e.user("ann")} {
		if got := e.by(credential).walk(path, "id", 200); !slices.Equal(got, anns) {
			t.Errorf("after a cancellation: %v, want %v", got, anns)
		}
	}
	e.by(e.user("bob")).get(path).problem(http.StatusForbidden, "forbidden")
	e.by(e.user("bob")).get("/v1/accounts/nobody/purchases").problem(http.StatusForbidden, "forbidden")
	e.by(e.user("nobody")).get("/v1/accounts/nobody/purchases").problem(http.StatusNotFound, "not_found")
	e.by(e.service).get("/v1/accounts/nobody/purchases").problem(http.StatusNotFound, "not_found")
	e.by(e.user("cyd")).get("/v1/accounts/cyd/purchases").want(http.StatusOK).equal(`{"items":[],"next":null}`)
	e.by("").get(path).problem(http.StatusUnauthorized, "unauthorized")
	own := e.by(e.user("ann"))
	next := own.get(path + "?limit=1").want(http.StatusOK).str("next")
	for _, query := range []string{"limit=0", "limit=201", "after=x", "after=" + cursor(path, 1), "after=" + next + "0"} {
		own.get(path+"?"+query).problem(http.StatusBadRequest, "bad_request")
	}
	e.get("/v1/accounts/bob/purchases?after="+next).problem(http.StatusBadRequest, "bad_request")
	e.audited()
}
