package main

import (
	"fmt"
	"net/http"
	"testing"
)

// chartPages are the pages with charts, and what must be true before they are looked at.
func (s *scene) chartPages() []shownPage {
	const drawn = `[...document.querySelectorAll(".plot canvas")].filter((e) => e.checkVisibility()).length >= %d`
	return []shownPage{
		{"charts-overview", "/console/", fmt.Sprintf(drawn, 2)},
		{"charts-auction", "/console/auctions/" + s.auction, fmt.Sprintf(drawn, 2)},
		{"charts-public-auction", "/p/auctions/" + s.auction, fmt.Sprintf(drawn, 2)},
		{"charts-locks", "/console/locks", fmt.Sprintf(drawn, 1) + ` && document.querySelector(".graph") !== null`},
		{"charts-targets", "/console/targets", fmt.Sprintf(drawn, 1)},
		{"charts-account", "/console/accounts/buyer-1", fmt.Sprintf(drawn, 1)},
		{"charts-campaign", "/console/campaigns/" + s.onSale, fmt.Sprintf(drawn, 1)},
		{"charts-multidraw", "/console/multidraws/" + s.multidraw, fmt.Sprintf(drawn, 1)},
	}
}

// TestConsoleCharts looks at every page with charts, in both colour schemes, on a desk's and a phone's screen.
func TestConsoleCharts(t *testing.T) {
	chromiumPath(t)
	s := startScene(t)
	b := openBrowser(t, s.url)
	s.fill()
	s.queue()
	b.visit("/console/")
	b.write("form", "key", s.key)
	b.click("form", "Sign in")
	b.await("the overview", `document.querySelector(".tiles") !== null`)
	for _, p := range s.chartPages() {
		b.visit(p.path)
		b.await(p.name, p.has)
		for _, look := range viewports() {
			b.look(look.width, look.scheme)
			where := fmt.Sprintf("%s-%d-%s", p.name, look.width, look.scheme)
			b.properly(where)
		}
	}
	s.zooms(b)
	s.redraws(b)
}

// zooms looks at one round of an auction, and at all places of its leaderboard.
func (s *scene) zooms(b *browser) {
	s.t.Helper()
	auction := s.newAuction("Two rounds", "1s")
	s.call("POST", "/v1/auctions/"+auction+"/start", nil)
	s.eventually("the second round", func() bool {
		n, _ := s.call("GET", "/v1/auctions/"+auction, nil)["current_round"].(float64)
		return n == 2
	})
	const bidders = 12
	for i := range bidders {
		s.account(fmt.Sprintf("bidder-%d", i), 1_000_000)
		s.call("POST", "/v1/auctions/"+auction+"/bids", obj{"account": fmt.Sprintf("bidder-%d", i), "amount": 1000 + 100*i})
	}
	b.look(390, "light")
	b.visit("/console/auctions/" + auction)
	// The clock and the chart come before everything else, at every width.
	b.await("the order", `document.querySelector("main section .clock") !== null && document.querySelector("main section").querySelector("canvas") !== null`)
	rows := func(n int) string {
		return fmt.Sprintf(`document.querySelectorAll(".leaders tbody tr").length === %d`, n)
	}
	b.await("ten places", rows(10))
	b.click("main", "Show all")
	b.await("all places", rows(bidders))
	b.click("main", "Show the first 10")
	b.await("ten places again", rows(10))
	pressed := `document.querySelector(".pick [aria-pressed=true]")?.textContent === %q`
	b.await("all rounds", fmt.Sprintf(pressed, "All"))
	b.click(".pick", "Round 2")
	b.await("the second round", fmt.Sprintf(pressed, "Round 2"))
	b.properly("charts-zoomed")
	// One more bid is counted, and the rate of bids with it.
	s.call("POST", "/v1/auctions/"+auction+"/bids", obj{"account": "bidder-0", "amount": 5000})
	b.await("the bid", fmt.Sprintf(`[...document.querySelectorAll(".now .figure")].some((e) => e.textContent === "%d")`, bidders+1))
	b.await("the rate", `/^0\.\d$/.test([...document.querySelectorAll(".now .figure")].at(-1).textContent)`)
}

// redraws makes multi-draws again in the browser, and finds what is wrong with the proof of another.
func (s *scene) redraws(b *browser) {
	s.t.Helper()
	valid := `document.querySelector("[data-verdict]")?.dataset.verdict === "valid" && document.body.textContent.includes("All %s draws, made again in this browser")`
	b.visit("/console/multidraws/" + s.multidraw)
	b.click("main", "Verify in this browser")
	b.await("the verdict", fmt.Sprintf(valid, "300"))
	large := s.id("POST", "/v1/multidraws", obj{"lock_key": "large", "count": 20_000, "range": obj{"min": -1_000_000, "max": 1_000_000}})
	b.visit("/console/multidraws/" + large)
	b.await("a part", `document.body.textContent.includes("The first 10,000 of 20,000 draws")`)
	b.click("main", "Verify in this browser")
	b.await("the verdict", fmt.Sprintf(valid, "20,000"))
	b.look(1440, "dark")
	b.properly("charts-multidraw-verified")
	wheel := s.id("POST", "/v1/multidraws", obj{"lock_key": "prizes", "count": 1000, "prizes": []obj{{"id": "gold", "name": payloadImage, "weight": 1}, {"id": "tin", "name": "Tin", "weight": 9}, {"id": "air", "name": "Never", "weight": 0}}})
	b.visit("/console/multidraws/" + wheel)
	b.await("prizes", `document.querySelectorAll("main table tbody tr td.lead").length >= 3 && document.body.textContent.includes("All 1,000 draws.")`)
	b.click("main", "Verify in this browser")
	b.await("the verdict", fmt.Sprintf(valid, "1,000"))
	b.properly("charts-multidraw-prizes")
}

// graphIsClear lists what covers what in the wait-for graph: words that meet other words or leave their box, and lines through boxes.
const graphIsClear = `(() => {
	const wrong = [];
	const rect = (e) => e.getBoundingClientRect();
	const words = [...document.querySelectorAll(".graph text")];
	const boxes = [...document.querySelectorAll(".graph rect")].map(rect);
	const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
	words.forEach((e, i) => {
		const a = rect(e);
		if (a.width === 0) wrong.push("no words");
		for (const f of words.slice(i + 1)) if (meet(a, rect(f))) wrong.push(e.textContent + " meets " + f.textContent);
		const own = rect(e.parentElement.querySelector("rect"));
		if (a.left < own.left || a.right > own.right || a.top < own.top || a.bottom > own.bottom) wrong.push(e.textContent + " leaves its box");
	});
	boxes.forEach((a, i) => { for (const b of boxes.slice(i + 1)) if (meet(a, b)) wrong.push("two boxes meet"); });
	const frame = rect(document.querySelector(".graph"));
	for (const path of document.querySelectorAll(".graph path")) {
		for (let at = 0; at < path.getTotalLength(); at += 3) {
			const p = path.getPointAtLength(at);
			const [x, y] = [p.x + frame.left, p.y + frame.top];
			if (boxes.some((b) => x > b.left + 1 && x < b.right - 1 && y > b.top + 1 && y < b.bottom - 1)) { wrong.push("a line crosses a box"); break; }
		}
	}
	return wrong;
})()`

// TestWaitGraph draws thirty owners in three layers, and lists a deadlock that was broken.
func TestWaitGraph(t *testing.T) {
	chromiumPath(t)
	s := startScene(t)
	b := openBrowser(t, s.url)
	s.call("POST", "/v1/locks", obj{"keys": []string{"quay"}, "owner": "the root of all waiting, whose name is far too long for any box", "ttl": "10m"})
	waits := [][2]string{}
	const middle, below = 9, 20
	for i := range middle {
		owner := fmt.Sprintf("pilot %d %s", i, payloadImage)
		s.call("POST", "/v1/locks", obj{"keys": []string{fmt.Sprintf("berth %d", i)}, "owner": owner, "ttl": "10m"})
		waits = append(waits, [2]string{owner, "quay"})
	}
	for i := range below {
		waits = append(waits, [2]string{fmt.Sprintf("tug %d WWWWWWWWWWWWWWWWWWWW", i), fmt.Sprintf("berth %d", i%middle)})
	}
	s.wait(waits)
	b.visit("/console/")
	b.write("form", "key", s.key)
	b.click("form", "Sign in")
	b.await("the overview", `document.querySelector(".tiles") !== null`)
	b.visit("/console/locks")
	for _, look := range viewports() {
		b.look(look.width, look.scheme)
		b.await("the graph", fmt.Sprintf(`document.querySelectorAll(".graph rect").length === %d && document.querySelector(".graph").clientWidth <= document.querySelector(".graph-box").clientWidth`, 1+middle+below))
		var wrong []string
		b.eval(graphIsClear, &wrong)
		if len(wrong) > 0 {
			t.Errorf("at %d: %d: %v", look.width, len(wrong), wrong[:min(5, len(wrong))])
		}
		b.await("the root", fmt.Sprintf(`[...document.querySelectorAll(".graph g")].filter((g) => g.querySelector(".root")).length === 1 && document.querySelector(".graph g:has(.root) .what").textContent.startsWith("blocks %d, ")`, middle+below))
		b.await("the root in words", fmt.Sprintf(`document.querySelector(".graph-box").previousSibling.textContent.includes("blocks %d, longest ")`, middle+below))
		b.properly(fmt.Sprintf("graph-%d-%s", look.width, look.scheme))
	}
	// One who asks for what another waits behind closes a cycle, and is refused.
	s.call("POST", "/v1/locks", obj{"keys": []string{"east"}, "owner": "anna", "ttl": "10m"})
	s.call("POST", "/v1/locks", obj{"keys": []string{"west"}, "owner": "boris", "ttl": "10m"})
	s.wait([][2]string{{"anna", "west"}})
	if doc, status := s.try("POST", "/v1/locks", obj{"keys": []string{"east"}, "owner": "boris", "ttl": "1m", "wait": "5m"}); status != http.StatusConflict || doc["code"] != "deadlock" {
		t.Fatalf("%d %v", status, doc)
	}
	b.await("the deadlock", `document.body.textContent.includes("boris waited for east of anna") && document.body.textContent.includes("anna waited for west of boris")`)
	b.quiet("deadlocks")
}
