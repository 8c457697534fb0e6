package main

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/fairlead-dev/fairlead/internal/testwait"
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
	t.Parallel()
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
	s.measures(b)
	s.redraws(b)
}

// clockFirst lists what of an auction's page stands above its clock or between the clock and the charts.
const clockFirst = `(() => {
	const wrong = [];
	const rect = (e) => e.getBoundingClientRect();
	const clock = rect(document.querySelector("main .clock"));
	const charts = [...document.querySelectorAll("main .plot")].map(rect);
	const first = document.querySelector("main section.card");
	if (clock.height === 0) wrong.push("there is no clock");
	for (const c of charts) if (c.height === 0 || c.top < clock.bottom) wrong.push("a chart is not below the clock");
	for (const e of document.querySelectorAll("main section.card")) {
		if (e !== first && charts.some((c) => rect(e).top < c.bottom)) wrong.push("not below the charts: " + e.textContent.slice(0, 30));
	}
	return wrong;
})()`

// zooms looks at one round of an auction, and at all places of its leaderboard.
func (s *scene) zooms(b *browser) {
	s.t.Helper()
	auction := s.newAuction("Two rounds", "3s")
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
	rows := func(n int) string {
		return fmt.Sprintf(`document.querySelectorAll(".leaders tbody tr").length === %d`, n)
	}
	pressed := func(name string) string {
		return fmt.Sprintf(`document.querySelector(".pick [aria-pressed=true]")?.textContent === %q`, name)
	}
	const span = `document.querySelector(".plot[aria-label^='Bids over time, ']")?.getAttribute("aria-label").match(/, (.*) to (.*?)\./).slice(1).join(" to ")`
	for _, look := range viewports()[:2] {
		b.look(look.width, look.scheme)
		b.visit("/console/auctions/" + auction)
		b.await("ten places", rows(10))
		b.await("both charts", `[...document.querySelectorAll("main .plot canvas")].filter((e) => e.checkVisibility()).length === 2`)
		var wrong []string
		if b.eval(clockFirst, &wrong); len(wrong) > 0 {
			s.t.Errorf("at %d %s: %v", look.width, look.scheme, wrong)
		}
		b.await("all rounds", pressed("All")+` && `+span+` !== undefined`)
		var all string
		b.eval(span, &all)
		b.click(".pick", "Round 2")
		b.await("the second round, on an axis of its own", fmt.Sprintf(`%s && %s !== %q && location.search === "?round=2"`, pressed("Round 2"), span, all))
		b.properly(fmt.Sprintf("charts-zoomed-%d-%s", look.width, look.scheme))
		b.click(".pick", "All")
		b.await("all rounds again", fmt.Sprintf(`%s && %s === %q && location.search === ""`, pressed("All"), span, all))
	}
	// What is shown is in the address: it is the same after a reload, and on the browser's way back.
	b.click("main", "Show all")
	b.await("all places", rows(bidders)+` && location.search === "?places=all"`)
	b.click(".pick", "Round 2")
	b.await("the second round", pressed("Round 2")+` && location.search === "?places=all&round=2"`)
	b.run("reload", chromedp.Reload())
	b.await("the same", pressed("Round 2")+" && "+rows(bidders))
	b.eval("history.back()", nil)
	b.await("all rounds", pressed("All")+" && "+rows(bidders))
	b.click("main", "Show the first 10")
	b.await("ten places again", rows(10)+` && location.search === ""`)
	// One more bid is counted, and the rate of bids with it, once the page has begun to count.
	b.await("no bids a second", `[...document.querySelectorAll(".now .figure")].at(-1).textContent === "0"`)
	s.call("POST", "/v1/auctions/"+auction+"/bids", obj{"account": "bidder-0", "amount": 5000})
	b.await("the bid", fmt.Sprintf(`[...document.querySelectorAll(".now .figure")].some((e) => e.textContent === "%d")`, bidders+1))
	b.await("the rate", `/^0\.\d$/.test([...document.querySelectorAll(".now .figure")].at(-1).textContent)`)
}

// measures has the overview show the latency, the throughput, the refusals and the waits for locks that it is given. The last values are
// written, so it goes on until a sample has them.
func (s *scene) measures(b *browser) {
	s.t.Helper()
	b.look(1440, "light")
	b.visit("/console/")
	s.account("poor", 0)
	legend := func(title, line string) string {
		return fmt.Sprintf(`[...document.querySelectorAll(".hour")].find((e) => e.querySelector("h3").textContent === %q)
			?.querySelectorAll(".plot-legend span").values().some((e) => e.textContent.startsWith(%q) && /^[1-9]|^0\.\d*[1-9]/.test(e.querySelector("b")?.textContent ?? ""))`, title, line)
	}
	lines := legend("Throughput, a second", "requests") + " && " + legend("Throughput, a second", "commands") +
		" && " + legend("Latency", "requests p50") + " && " + legend("Latency", "requests p99") + " && " + legend("Latency", "commits p99") +
		" && " + legend("Refusals a minute, by reason", "insufficient funds") +
		" && " + legend("Time that requests for locks took", "p50") + " && " + legend("Time that requests for locks took", "p99")
	testwait.Eventually(s.t, testwait.Patience, "the last values", func() bool {
		if _, status := s.try("POST", "/v1/transfers", obj{"from": "poor", "to": "shop", "amount": 1}); status != http.StatusPaymentRequired {
			s.t.Errorf("a transfer without money: %d", status)
		}
		lock := s.id("POST", "/v1/locks", obj{"keys": []string{"measured"}, "owner": "gauge", "ttl": "1m"})
		s.call(http.MethodDelete, "/v1/locks/"+lock, nil)
		var shown bool
		b.eval("Boolean("+lines+")", &shown)
		return shown
	})
	b.shoot("charts-measured")
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
	t.Parallel()
	chromiumPath(t)
	s := startScene(t)
	b := openBrowser(t, s.url)
	s.call("POST", "/v1/locks", obj{"keys": []string{"quay"}, "owner": "the root of all waiting, whose name is far too long for any box", "ttl": "2h"})
	waits := [][2]string{}
	const middle, below = 9, 20
	for i := range middle {
		owner := fmt.Sprintf("pilot %d %s", i, payloadImage)
		s.call("POST", "/v1/locks", obj{"keys": []string{fmt.Sprintf("berth %d", i)}, "owner": owner, "ttl": "2h"})
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
	s.call("POST", "/v1/locks", obj{"keys": []string{"east"}, "owner": "anna", "ttl": "2h"})
	s.call("POST", "/v1/locks", obj{"keys": []string{"west"}, "owner": "boris", "ttl": "2h"})
	s.wait([][2]string{{"anna", "west"}})
	if doc, status := s.try("POST", "/v1/locks", obj{"keys": []string{"east"}, "owner": "boris", "ttl": "1m", "wait": "10m"}); status != http.StatusConflict || doc["code"] != "deadlock" {
		t.Fatalf("%d %v", status, doc)
	}
	b.await("the deadlock", `document.body.textContent.includes("boris waited for east of anna") && document.body.textContent.includes("anna waited for west of boris")`)
	b.quiet("deadlocks")
}
