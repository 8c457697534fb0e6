package server

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/live"
)

// TestDraftsAreHidden lets a user ask for campaigns and auctions that were never opened in every way there is: they are as absent
// as those that never were.
func TestDraftsAreHidden(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.account("alice", "EUR", 10_000)
	campaign, auction := e.campaign(`"base_length":2`, ""), e.auctioned(twoRounds, "")
	withdrawn := e.campaign(`"base_length":2`, "")
	e.campaignPost(withdrawn, "cancel", "").want(http.StatusOK)
	called := e.auctioned(twoRounds, "")
	e.auctionPost(called, "cancel").want(http.StatusOK)
	place := e.get("/v1/campaigns/" + campaign + "/positions").want(http.StatusOK).str("items.0.id")
	user := e.by(e.user("alice"))
	drafts := []string{campaign, withdrawn, auction, called}
	// alike replaces what a request and its answer have of their own.
	alike := func(r *reply, id string) string {
		return strings.NewReplacer(id, "ID", r.str("request_id"), "REQUEST").Replace(string(r.body))
	}
	hidden := 0
	for _, rt := range e.server.routes() {
		if rt.method != http.MethodGet || rt.access == accessAdmin || !strings.HasPrefix(rt.path, "/v1/campaigns/{id}") && !strings.HasPrefix(rt.path, "/v1/auctions/{id}") && !strings.HasPrefix(rt.path, "/p/") {
			continue
		}
		for _, id := range drafts {
			absent := newUUID()
			path := func(id string) string { return strings.NewReplacer("{id}", id, "{position}", place).Replace(rt.path) }
			asker := user
			if rt.access == accessPublic {
				if asker = e.by(""); !strings.HasSuffix(rt.path, "/state") && !strings.Contains(rt.path, "{position}") {
					continue // A page, which says the same to all.
				}
			}
			r, none := asker.get(path(id)).problem(http.StatusNotFound, "not_found"), asker.get(path(absent)).problem(http.StatusNotFound, "not_found")
			if alike(r, id) != alike(none, absent) {
				t.Errorf("%s tells a draft from nothing: %s and %s", rt.path, r.body, none.body)
			}
			hidden++
		}
	}
	if hidden < 50 {
		t.Errorf("only %d reads were tried", hidden)
	}
	for list, want := range map[string]string{"/v1/campaigns": campaign, "/v1/auctions": auction} {
		if n := len(user.items(list)); n != 0 {
			t.Errorf("%s shows a user %d drafts", list, n)
		}
		if !strings.Contains(string(e.by(e.service).get(list).body), want) {
			t.Errorf("%s hides drafts from staff", list)
		}
	}
	for path, body := range map[string]string{
		"/v1/campaigns/" + campaign + "/purchases": `{"account":"alice"}`, "/v1/campaigns/" + withdrawn + "/purchases": `{"account":"alice"}`,
		"/v1/auctions/" + auction + "/bids": `{"account":"alice","amount":5}`, "/v1/auctions/" + called + "/bids": `{"account":"alice","amount":5}`,
	} {
		user.keyed("once", path, body).problem(http.StatusNotFound, "not_found")
		e.post(path, body).problem(http.StatusConflict, "not_active")
	}
	for _, topic := range []string{"campaign:" + campaign, "auction:" + auction} {
		user.get("/v1/accounts/alice/aliases?topic="+topic).problem(http.StatusNotFound, "not_found")
	}
	// What a user was told was no decision: the same key buys and bids once it is open.
	e.campaignPost(campaign, "publish", "").want(http.StatusOK)
	e.auctionPost(auction, "start").want(http.StatusOK)
	user.keyed("once", "/v1/campaigns/"+campaign+"/purchases", `{"account":"alice"}`).want(http.StatusCreated)
	user.keyed("once", "/v1/auctions/"+auction+"/bids", `{"account":"alice","amount":5}`).want(http.StatusCreated)
	for _, path := range []string{"/v1/campaigns", "/v1/auctions"} {
		if n := len(user.items(path)); n != 1 {
			t.Errorf("%s shows a user %d of what is open", path, n)
		}
	}
}

// TestTopicsOfDraftsAreHidden lets a user follow what was never opened.
func TestTopicsOfDraftsAreHidden(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	l := newLiveEnv(t, e, live.Options{}, nil)
	campaign, auction := e.campaign(`"base_length":2`, ""), e.auctioned(twoRounds, "")
	user := *l
	user.env = l.by(l.user("alice"))
	c, staff := user.connect(), l.connect()
	for _, topic := range []string{"campaign:" + campaign, "auction:" + auction} {
		c.say(`{"op":"subscribe","topic":%q}`, topic)
		if h := c.hear(); h.Problem == nil || h.Problem.Code != "not_found" {
			t.Errorf("a user follows the draft %s: %+v", topic, h)
		}
		c.say(`{"op":"subscribe","topic":%q,"since":0}`, topic)
		if h := c.hear(); h.Problem == nil || h.Problem.Code != "not_found" {
			t.Errorf("a user follows the draft %s from its beginning: %+v", topic, h)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		request, err := user.request(ctx, send{method: http.MethodGet, path: "/v1/events?topic=" + topic})
		must(t, err)
		request.URL.Host = strings.TrimPrefix(l.url, "http://")
		response, err := l.http.Do(request)
		must(t, err)
		e.received(http.MethodGet, "/v1/events", "", response).problem(http.StatusNotFound, "not_found")
		cancel()
		staff.subscribe(topic, "")
	}
	e.campaignPost(campaign, "publish", "").want(http.StatusOK)
	e.auctionPost(auction, "start").want(http.StatusOK)
	c.subscribe("campaign:"+campaign, "")
	c.subscribe("auction:"+auction, "")
}
