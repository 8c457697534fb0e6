package server

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"testing"
)

// walk reads a list page by page and returns the given member of every item.
func (e *env) walk(path, member string, limit int) []string {
	e.t.Helper()
	var all []string
	after := ""
	for {
		r := e.get(fmt.Sprintf("%s?limit=%d%s", path, limit, after)).want(http.StatusOK)
		r.exactly(r.decoded, "items", "next")
		if len(r.items()) > limit {
			e.t.Fatalf("%s: %d items on a page of %d", path, len(r.items()), limit)
		}
		for i := range r.items() {
			all = append(all, r.str(fmt.Sprintf("items.%d.%s", i, member)))
		}
		if r.at("next") == nil {
			return all
		}
		if len(r.items()) != limit {
			e.t.Fatalf("%s: a page of %d has %d items and a next", path, limit, len(r.items()))
		}
		after = "&after=" + url.QueryEscape(r.str("next"))
	}
}

func TestListsPage(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 0)
	for range 7 {
		e.post("/v1/deposits", `{"account":"alice","amount":100}`).want(http.StatusCreated)
	}
	id := e.campaign(`"base_length":3`, "")
	e.campaignPost(id, "publish", ``).want(http.StatusOK)
	for range 5 {
		e.buy(id, "alice").want(http.StatusCreated)
	}
	for range 2 {
		e.campaign(`"base_length":1`, "")
	}
	for range 4 {
		e.auctioned(twoRounds, "")
	}
	for path, want := range map[string]struct {
		member string
		items  int
	}{
		"/v1/accounts/alice/entries":         {"id", 12},
		"/v1/auctions":                       {"id", 4},
		"/v1/campaigns":                      {"id", 3},
		"/v1/campaigns/" + id + "/positions": {"id", 6},
		"/v1/campaigns/" + id + "/purchases": {"id", 5},
	} {
		whole := e.walk(path, want.member, 200)
		if len(whole) != want.items {
			t.Errorf("%s: %d items, want %d", path, len(whole), want.items)
		}
		seen := map[string]bool{}
		for _, id := range whole {
			seen[id] = true
		}
		if len(seen) != len(whole) {
			t.Errorf("%s: an item comes twice: %v", path, whole)
		}
		for _, limit := range []int{1, 2, 3, want.items, want.items + 1} {
			if got := e.walk(path, want.member, limit); fmt.Sprint(got) != fmt.Sprint(whole) {
				t.Errorf("%s in pages of %d: %v, want %v", path, limit, got, whole)
			}
		}
		e.badPages(path)
	}
}

// badPages asks for pages that there are not.
func (e *env) badPages(path string) {
	e.t.Helper()
	for _, query := range []string{
		"limit=0", "limit=-1", "limit=201", "limit=", "limit=abc", "limit=1.0", "limit=1e2", "limit=%2B5", "limit=+5", "limit=05", "limit=0x10",
		"limit=99999999999999999999", "limit=%D9%A3", "limit=5%00", "limit=5&limit=5", "limit=1%20OR%201=1", "limit[]=5&limit=0",
		"after=", "after=0", "after=-1", "after=01", "after=A", "after=%20a", "after=zzzzzzzzzzzzzzzzzzzz", "after=%2E%2E%2Fetc", "after='--",
		"after=a&after=b", "after=null", "after=1.5",
		// What cannot be parsed is not what was not given.
		"limit=%zz", "limit=0;after=1", "after=%",
	} {
		e.get(path+"?"+query).problem(http.StatusBadRequest, "bad_request")
	}
	for _, query := range []string{"limit=1", "limit=200", "limit=50", "unknown=1", "after=" + cursor(path, 1)} {
		e.get(path + "?" + query).want(http.StatusOK)
	}
	// A cursor that was made up, or that belongs to another list, is none.
	for _, after := range []string{"1", "x", "zzzzzz", cursor("/v1/elsewhere", 1), cursor(path, 1) + "0", "0" + cursor(path, 1)} {
		e.get(path+"?after="+after).problem(http.StatusBadRequest, "bad_request")
	}
	r := e.get(path + "?after=" + cursor(path, math.MaxInt64)).want(http.StatusOK)
	if len(r.items()) != 0 || r.at("next") != nil {
		e.t.Errorf("%s: past the end there is %s", path, r.body)
	}
}

func TestListsDefaultTo50(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 0)
	id := e.campaign(`"base_length":20`, "")
	path := "/v1/campaigns/" + id + "/positions"
	r := e.get(path).want(http.StatusOK)
	if len(r.items()) != 50 || r.at("next") == nil {
		t.Errorf("%d items without a limit", len(r.items()))
	}
	if all := e.walk(path, "id", 200); len(all) != 210 {
		t.Errorf("%d positions of a triangle of 20", len(all))
	}
	r = e.get(path + "?limit=200").want(http.StatusOK)
	if len(r.items()) != 200 {
		t.Errorf("%d items of a page of 200", len(r.items()))
	}
	e.get("/v1/campaigns/"+newUUID()+"/positions").problem(http.StatusNotFound, "not_found")
	e.get("/v1/campaigns/"+newUUID()+"/purchases").problem(http.StatusNotFound, "not_found")
}
