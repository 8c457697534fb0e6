package server

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
)

// TestListsOfAnAccount narrows bids, purchases and transfers between ledgers to one account, by pages of each size.
func TestListsOfAnAccount(t *testing.T) {
	t.Parallel()
	e, other := twoLedgers(t)
	for _, name := range []string{"alice", "bob", "carol"} {
		e.account(name, "EUR", 100_000)
	}
	other.account("alice", "EUR", 100_000) // Another one.
	same := func(path, member string, want ...string) {
		t.Helper()
		for _, limit := range []int{1, 2, 200} {
			if got := e.pages(path+"&", member, limit); !slices.Equal(got, want) {
				t.Errorf("%s by %d: %v, want %v", path, limit, got, want)
			}
		}
	}

	auction := e.started(twoRounds, `"cooldown":"0s"`)
	for i, who := range []string{"alice", "bob", "alice", "bob", "bob"} {
		e.bid(auction, who, int64(100+i)).want(http.StatusCreated)
	}
	bids := "/v1/admin/auctions/" + auction + "/bids?account="
	amounts := func(r *reply) (all []int64) {
		for i := range r.items() {
			all = append(all, r.num(fmt.Sprintf("items.%d.amount", i)))
		}
		return all
	}
	for who, want := range map[string][]int64{"alice": {102, 100}, "bob": {104, 103, 101}, "carol": nil, "nobody": nil, "": {104, 103, 102, 101, 100}} {
		if got := amounts(e.get(bids + who).want(http.StatusOK)); !slices.Equal(got, want) {
			t.Errorf("bids of %q: %v, want %v", who, got, want)
		}
	}
	first := e.get(bids + "bob&limit=2").want(http.StatusOK)
	if got := amounts(e.get(bids + "bob&after=" + first.str("next"))); !slices.Equal(got, []int64{101}) {
		t.Errorf("the second page of bids: %v", got)
	}
	e.get(bids+"alice&after="+first.str("next")).problem(http.StatusBadRequest, "bad_request") // It is a place in bob's.

	var sold []string // newest first
	campaign := e.onSale(`"base_length":3`, "")
	for _, who := range []string{"alice", "bob", "alice", "alice"} {
		sold = slices.Insert(sold, 0, e.buy(campaign, who).want(http.StatusCreated).str("id"))
	}
	e.buy(e.onSale(`"base_length":2`, ""), "alice").want(http.StatusCreated) // It is another campaign's.
	purchases := "/v1/admin/campaigns/" + campaign + "/purchases?account="
	same(purchases+"alice", "id", sold[0], sold[1], sold[3])
	same(purchases+"bob", "id", sold[2])
	same(purchases+"carol", "id")
	same(purchases, "id", sold...)

	move := func(from, fromAccount, to, toAccount string, amount, status int) string {
		t.Helper()
		r := e.post("/v1/cross-transfers", crossBody(from, fromAccount, to, toAccount, amount, "saga")).want(status)
		if status == http.StatusPaymentRequired {
			return r.str("transfer")
		}
		return r.str("id")
	}
	out := move("local", "alice", "eu", "alice", 5, http.StatusCreated)
	within := move("local", "bob", "local", "alice", 5, http.StatusCreated)
	in := move("eu", "alice", "local", "bob", 5, http.StatusCreated)
	refused := move("local", "alice", "eu", "alice", 900_000, http.StatusPaymentRequired)
	sagas := "/v1/admin/sagas?account="
	same(sagas+"alice", "id", refused, within, out)
	same(sagas+"bob", "id", in, within)
	same(sagas+"eu/alice", "id", refused, in, out)
	same(sagas+"local/bob", "id", in, within)
	same(sagas+"carol", "id")
	same(sagas+"eu/bob", "id")
	same(sagas, "id", refused, in, within, out)
	for _, bad := range []string{"alice&status=failed", "alice&name=cross-transfer", "alice&stuck=true", "a/b/c", "%20", "/", "alice&account=bob", "%00"} {
		e.get(sagas+bad).problem(http.StatusBadRequest, "bad_request")
	}
}
