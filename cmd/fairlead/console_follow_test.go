package main

import (
	"fmt"
	"net/http"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// followsWhoeverIsIn has lists, the locks and an auction follow what others do while the focus is in them.
func (s *scene) followsWhoeverIsIn(b *browser) {
	s.t.Helper()
	first := s.newPublication("newsroom", true)
	b.visit("/console/publications?status=scheduled")
	box := fmt.Sprintf(`document.querySelector("tr:has(a[href$='%s']) .chooses")`, first)
	b.await("the publication", box+" !== null")
	b.eval(fmt.Sprintf(`(() => { const box = %s; box.focus(); box.click(); })()`, box), nil)
	b.await("one is chosen", `document.querySelector(".chosen").textContent.includes("1 chosen")`)
	second := s.newPublication("newsroom", true)
	b.await("the new one, with the tick and the focus where they were",
		fmt.Sprintf(`document.querySelector("a[href$='%s']") !== null && %s.checked && document.activeElement === %s && document.querySelector(".chosen").textContent.includes("1 chosen")`, second, box, box))
	// The thing that has the focus changes, and its row with it: the mark in the box is of what it is now.
	s.call("POST", "/v1/publications/"+first+"/cancel", nil)
	b.await("the focus is in the list", fmt.Sprintf(`%s === null && document.querySelector("main").contains(document.activeElement)`, box))

	lock := func(owner, key string) {
		s.call("POST", "/v1/locks", obj{"keys": []string{key}, "owner": owner, "ttl": "2h"})
	}
	lock("the keeper", "gate")
	b.visit("/console/locks")
	button := `[...document.querySelectorAll("tr")].find((e) => e.textContent.includes("the keeper"))?.querySelector("button")`
	b.await("the lock", button+" !== undefined")
	b.eval(button+".focus()", nil)
	lock("a newcomer", "gate 2")
	s.wait([][2]string{{"a guest", "gate"}})
	b.await("the newcomer, the graph, and the focus where it was",
		fmt.Sprintf(`document.querySelector("main").textContent.includes("a newcomer") && document.querySelectorAll(".graph rect").length === 2 && document.activeElement === %s`, button))
	// What is looked for is in the address.
	b.write("main", "q", "newcomer")
	narrowed := `document.querySelectorAll("main table")[0]?.tBodies[0].rows.length === 1 && location.search === "?q=newcomer" && document.querySelector("main [name=q]")?.value === "newcomer"`
	b.await("one lock", narrowed)
	b.run("reload", chromedp.Reload())
	b.await("still one lock", narrowed)

	// A leaderboard that can't be read says so, and follows again.
	auction := s.newAuction("Not read", "2h")
	s.call(http.MethodPost, "/v1/auctions/"+auction+"/start", nil)
	s.bid(auction, 2)
	b.visit("/console/auctions/" + auction)
	b.await("two places", `document.querySelectorAll(".leaders tbody tr").length === 2`)
	b.expect("net::ERR_BLOCKED", "Failed to load", "Failed to fetch")
	b.run("block", network.SetBlockedURLs([]string{"*/leaderboard*"}))
	s.call("POST", "/v1/auctions/"+auction+"/bids", obj{"account": "buyer-4", "amount": 900_000})
	b.await("it is stale", `document.querySelector(".stale .leaders") !== null && document.querySelector(".stale-note").checkVisibility() && document.querySelector(".stale-note").textContent.startsWith("Not read since")`)
	b.everywhere("auction-stale")
	b.run("unblock", network.SetBlockedURLs([]string{}))
	b.await("it is not", `document.querySelector(".stale") === null && document.querySelectorAll(".leaders tbody tr").length === 3`)
	b.quiet("following")
	b.expect()
}
