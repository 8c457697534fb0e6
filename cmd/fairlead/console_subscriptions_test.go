package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
)

// rescuesSubscription pauses a subscription, resumes it, has a topic delivered again, meets one that its receiver has made pause, and ends it.
func (s *scene) rescuesSubscription(b *browser) {
	s.t.Helper()
	var mu sync.Mutex
	var got []string
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.Header.Get("Webhook-Id"))
	}))
	s.t.Cleanup(receiver.Close)
	deliveries := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return got
	}
	s.call("POST", "/v1/targets", obj{"name": "listener", "kind": "webhook", "url": receiver.URL})
	auction := s.newAuction("Listened to", "2h")
	s.call("POST", "/v1/auctions/"+auction+"/start", nil)
	id := s.newSubscription("Listening", "listener", "auction:"+auction)
	s.eventually("the start and its round are delivered", func() bool { return len(deliveries()) == 2 })
	status := func(says string) {
		b.await("the page says "+says, fmt.Sprintf(`document.querySelector(".page-head .badge")?.textContent === %q`, says))
	}
	audited := func(action string) {
		b.await("the page has "+action, fmt.Sprintf(`[...document.querySelectorAll("main code")].some((e) => e.textContent === %q)`, action))
	}
	row := func(has string) {
		b.await("the topic's row says "+has, fmt.Sprintf(`[...document.querySelectorAll("tbody tr")].some((e) => e.textContent.includes("auction:%s") && e.textContent.includes(%q))`, auction, has))
	}

	b.visit("/console/subscriptions/" + id)
	status("active")
	row("current")
	b.confirm("main", "Pause")
	status("paused")
	audited("subscription.pause")
	s.call("POST", "/v1/auctions/"+auction+"/bids", obj{"account": "buyer-1", "amount": 500})
	b.visit("/console/subscriptions/" + id)
	row("behind")
	b.everywhere("subscription-paused")
	b.confirm("main", "Resume")
	status("active")
	s.eventually("what came meanwhile is delivered", func() bool { return len(deliveries()) == 3 })

	b.visit("/console/subscriptions/" + id)
	row("current")
	b.click("main table", "Replay")
	b.await("the dialog", `document.querySelector("dialog[open]") !== null`)
	b.namesItsAction("Replay")
	b.write("dialog", "after", "0")
	b.everywhere("subscription-replay")
	b.eval(`document.querySelector("dialog[open] button[type=submit]").click()`, nil)
	s.eventually("all of them come again", func() bool { return len(deliveries()) == 6 })
	if all := deliveries(); !slices.Equal(all[:3], all[3:]) {
		s.t.Errorf("a replay has other ids: %v", all)
	}

	// Ten refusals in a row take nine minutes: that they happened is written by hand.
	s.one(`UPDATE subscriptions SET paused_at = clock_timestamp(), paused_reason = 'refused', refusals = 10 WHERE id = $1`, id)
	b.visit("/console/subscriptions/" + id)
	status("refused")
	b.await("the reason", `document.body.textContent.includes("refused 10 events in a row for good")`)
	b.visit("/console/subscriptions")
	b.await("the list says so", `document.querySelector("tbody")?.textContent.includes("refused")`)
	b.everywhere("subscriptions-refused")

	b.visit("/console/subscriptions/" + id)
	b.confirm("main", "Delete")
	b.await("the list, without it", `location.pathname === "/console/subscriptions" && document.querySelector("h1")?.textContent === "Subscriptions" && !document.querySelector("main").textContent.includes("Listening")`)
	if _, status := s.try("GET", "/v1/subscriptions/"+id, nil); status != http.StatusNotFound {
		s.t.Errorf("it is still there: %d", status)
	}
	s.call("POST", "/v1/auctions/"+auction+"/cancel", nil)
}
