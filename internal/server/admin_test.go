package server

import (
	"encoding/base64"
	"fmt"
	"math/bits"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// useAdmin uses every route of the console's lists with success.
func (e *env) useAdmin(campaign, auction, principal string) {
	e.t.Helper()
	for _, path := range []string{
		"/v1/admin/measurements", "/v1/admin/deadlocks", "/v1/admin/accounts/alice/balances", "/v1/admin/campaigns/" + campaign + "/sales",
		"/v1/admin/database-waits", "/v1/admin/overview", "/v1/admin/campaigns?status=completed", "/v1/admin/campaigns?limit=1", "/v1/admin/campaigns/" + campaign + "/map",
		"/v1/admin/auctions?status=active", "/v1/admin/auctions/" + auction + "/bids", "/v1/admin/auctions/" + auction + "/chart",
		"/v1/admin/accounts?prefix=al&limit=1", "/v1/admin/accounts/alice/entries?limit=1", "/v1/admin/accounts/alice/holds?limit=1",
		"/v1/admin/transfers?limit=1", "/v1/admin/transfers?status=failed", "/v1/admin/audit?limit=1", "/v1/admin/audit?action=campaign.create",
		"/v1/admin/audit?object=" + campaign, "/v1/admin/audit?principal=" + url.QueryEscape(principal),
		"/v1/admin/search?q=alice", "/v1/admin/names?ids=" + campaign, "/v1/admin/campaigns/" + campaign + "/purchases", "/v1/admin/multidraws", "/v1/admin/publications?status=failed",
	} {
		e.get(path).want(http.StatusOK)
	}
	e.send(send{method: http.MethodPost, path: "/v1/accounts", body: `{"id":"kept","currency":"EUR"}`, key: "kept-key"}).want(http.StatusCreated)
	e.get("/v1/admin/idempotency?key=kept-key&method=POST&path=%2Fv1%2Faccounts&principal=" + url.QueryEscape(principal)).want(http.StatusOK)
	e.get("/v1/admin/idempotency?key=other-key&method=POST&path=%2Fv1%2Faccounts&principal="+url.QueryEscape(principal)).problem(http.StatusNotFound, "not_found")
}

// TestAdminLists walks every list page by page: what is there comes once each, in order, and a filter leaves out the rest.
func TestAdminLists(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	var accounts, campaigns []string
	for i := range 5 {
		id := fmt.Sprintf("alpha-%d", i)
		e.account(id, "EUR", 100)
		accounts = append(accounts, id)
	}
	e.account("alphb", "EUR", 0)
	for range 3 {
		campaigns = append([]string{e.campaign(`"base_length":2`, "")}, campaigns...)
	}
	e.campaignPost(campaigns[1], "publish", ``).want(http.StatusOK)
	var holds []string
	for range 4 {
		holds = append([]string{e.post("/v1/holds", `{"account":"alpha-0","amount":1}`).want(http.StatusCreated).str("id")}, holds...)
	}
	e.post("/v1/holds/"+holds[1]+"/release", ``).want(http.StatusOK)
	holds = slices.Delete(holds, 1, 2)
	e.post("/v1/transfers", `{"from":"alphb","to":"alpha-0","amount":1}`).problem(http.StatusPaymentRequired, "insufficient_funds")

	for _, limit := range []int{1, 2, 200} {
		for path, want := range map[string][]string{
			"/v1/admin/accounts?prefix=alpha&":             accounts,
			"/v1/admin/accounts?prefix=zz&":                nil,
			"/v1/admin/campaigns?":                         campaigns,
			"/v1/admin/campaigns?status=active&":           {campaigns[1]},
			"/v1/admin/campaigns?status=pending&":          {campaigns[0], campaigns[2]},
			"/v1/admin/accounts/alpha-0/holds?":            holds,
			"/v1/admin/audit?object=" + campaigns[1] + "&": {"campaign.publish", "campaign.create"},
		} {
			member := "id"
			if slices.Contains(want, "campaign.publish") {
				member = "action"
			}
			if got := e.pages(path, member, limit); !slices.Equal(got, want) {
				t.Errorf("%s by %d: %v, want %v", path, limit, got, want)
			}
		}
		failed := e.pages("/v1/admin/transfers?status=failed&", "status", limit)
		all := e.pages("/v1/admin/transfers?", "id", limit)
		sorted := slices.Clone(all)
		slices.Sort(sorted)
		slices.Reverse(sorted)
		if !slices.Equal(failed, []string{"failed"}) || len(all) != e.count("transfers") || !slices.Equal(all, sorted) {
			t.Errorf("transfers by %d: failed %v, %d in all", limit, failed, len(all))
		}
		if n := len(e.pages("/v1/admin/accounts/alpha-0/entries?", "id", limit)); n != 1 {
			t.Errorf("%d entries", n)
		}
	}
	// A cursor belongs to its list and its filter.
	next := e.get("/v1/admin/accounts?prefix=alpha&limit=1").str("next")
	campaign := e.get("/v1/admin/campaigns?limit=1").str("next")
	for _, bad := range []string{
		"/v1/admin/accounts?after=" + next, "/v1/admin/accounts?prefix=alphb&after=" + next, "/v1/admin/accounts?prefix=alpha&after=" + next + "0", "/v1/admin/accounts?prefix=alpha&after=",
		"/v1/admin/campaigns?status=pending&after=" + campaign, "/v1/admin/campaigns?status=nothing", "/v1/admin/transfers?status=drawing", "/v1/admin/accounts?prefix=%00",
		"/v1/admin/accounts?prefix=a&prefix=b", "/v1/admin/audit?action=a&object=b", "/v1/admin/idempotency?key=k", "/v1/admin/auctions?limit=0",
	} {
		e.get(bad).problem(http.StatusBadRequest, "bad_request")
	}
}

// pages walks a list whose path ends where its further parameters begin.
func (e *env) pages(path, member string, limit int) []string {
	e.t.Helper()
	var all []string
	for after := ""; ; {
		r := e.get(fmt.Sprintf("%slimit=%d%s", path, limit, after)).want(http.StatusOK)
		for i := range r.items() {
			all = append(all, r.str(fmt.Sprintf("items.%d.%s", i, member)))
		}
		if r.at("next") == nil {
			return all
		}
		after = "&after=" + url.QueryEscape(r.str("next"))
	}
}

// TestSaleMap compares the map of a campaign with its positions.
func TestSaleMap(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 10_000)
	id := e.onSale(`"base_length":5`, "")
	for range 7 {
		e.buy(id, "alice").want(http.StatusCreated)
	}
	m := e.get("/v1/admin/campaigns/" + id + "/map").want(http.StatusOK)
	sold, err := base64.StdEncoding.DecodeString(m.str("sold"))
	must(t, err)
	n := 0
	for i, p := range e.get("/v1/campaigns/" + id + "/positions?limit=200").items() {
		if is := sold[i/8]&(0x80>>(i%8)) != 0; is != (object(p)["status"] == "sold") {
			t.Errorf("position %d: sold on the map %v, %v", i, is, p)
		}
	}
	for _, b := range sold {
		n += bits.OnesCount8(b)
	}
	if n != 7 || len(sold) != 2 {
		t.Errorf("%d sold in %d bytes", n, len(sold))
	}
	large := e.campaign(`"layers":[{"positions":20001}]`, "")
	if got := e.get("/v1/admin/campaigns/" + large + "/map").want(http.StatusOK); got.at("sold") != nil {
		t.Error("a campaign too large to be drawn is mapped position by position")
	}
}

// TestPublicPages looks at campaigns and auctions as somebody without a credential.
func TestPublicPages(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice@example.com", "EUR", 10_000)
	public := e.by("")
	pending := e.campaign(`"base_length":2`, "")
	drawn := e.onSale(`"base_length":2`, `,"prizes":[{"name":"p","quantity":1}]`)
	for range 3 {
		e.buy(drawn, "alice@example.com").want(http.StatusCreated)
	}
	lot := e.auctioned(twoRounds, "")
	for _, path := range []string{"/p/campaigns/" + pending, "/p/campaigns/" + newUUID(), "/p/auctions/" + lot, "/p/auctions/x"} {
		if r := e.browse(http.MethodGet, path, ""); r.StatusCode != http.StatusNotFound || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") {
			t.Errorf("%s: %d %v", path, r.StatusCode, r.Header)
		}
		public.get(path+"/state").problem(http.StatusNotFound, "not_found")
	}
	e.post("/v1/auctions/"+lot+"/start", ``).want(http.StatusOK)
	e.bid(lot, "alice@example.com", 500).want(http.StatusCreated)
	campaign := public.get("/p/campaigns/" + drawn + "/state").want(http.StatusOK)
	auction := public.get("/p/auctions/" + lot + "/state").want(http.StatusOK)
	for _, r := range []*reply{campaign, auction} {
		if strings.Contains(string(r.body), "alice") {
			t.Errorf("%s names an account: %s", r.what, r.body)
		}
	}
	if campaign.str("winners.0.alias") == auction.str("leaderboard.0.alias") {
		t.Error("an alias can be followed from one page to another")
	}
	// Whoever has a position's id learns that it was sealed; nobody gets the whole list.
	place := e.get("/v1/campaigns/" + drawn + "/purchases").str("items.0.position.id")
	public.get("/p/campaigns/" + drawn + "/positions/" + place).want(http.StatusOK)
	public.get("/p/campaigns/"+drawn+"/positions/"+newUUID()).problem(http.StatusNotFound, "not_found")
	public.get("/p/campaigns/"+drawn+"/proof").problem(http.StatusNotFound, "not_found")
	page := e.browse(http.MethodGet, "/p/campaigns/"+drawn, "")
	if policy := page.Header.Get("Content-Security-Policy"); page.StatusCode != http.StatusOK || !strings.Contains(policy, "frame-ancestors *") || page.Header.Get("Set-Cookie") != "" {
		t.Errorf("%d %v", page.StatusCode, page.Header)
	}
}
