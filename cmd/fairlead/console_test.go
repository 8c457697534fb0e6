package main

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// viewport is a width and a colour scheme that pages are looked at in.
type viewport struct {
	width  int64
	scheme string
}

// viewports are a wide light screen and a narrow dark one: what depends on the width does not depend on the colours. In long runs, and
// for pictures, they are all four.
func viewports() []viewport {
	all := []viewport{{1440, "light"}, {390, "dark"}, {1440, "dark"}, {390, "light"}}
	if !testwait.Torture() && os.Getenv(shotsVariable) == "" {
		return all[:2]
	}
	return all
}

// proper is what holds on every page, as a list of what does not: fields have labels, buttons and links have names, pictures have
// texts, there is one main heading, nothing is wider than the screen, and no stored text has run or become markup.
const proper = `(() => {
	const wrong = [];
	const name = (e) => (e.getAttribute("aria-label") || e.textContent || "").trim();
	if (document.querySelectorAll("h1").length !== 1) wrong.push("there are " + document.querySelectorAll("h1").length + " main headings");
	if ([...document.querySelectorAll("main")].filter((e) => e.checkVisibility()).length !== 1) wrong.push("there is not one main landmark");
	if (!document.documentElement.lang || !document.title) wrong.push("no language or title");
	for (const e of document.querySelectorAll("input, select, textarea")) if (!e.labels?.length && !e.getAttribute("aria-label")) wrong.push("a field without a label: " + e.name);
	for (const e of document.querySelectorAll("button, a[href]")) if (!name(e)) wrong.push("a control without a name in " + e.parentElement.className);
	for (const e of document.querySelectorAll("svg[role=img], canvas")) if (!e.getAttribute("aria-label") && !e.querySelector("title") && !e.parentElement.closest("[role=img][aria-label]")) wrong.push("a drawing without a text");
	for (const e of document.querySelectorAll("img")) if (!e.hasAttribute("alt")) wrong.push("an image without a text");
	for (const e of document.querySelectorAll("table")) if (!e.caption) wrong.push("a table without a caption");
	if (document.documentElement.scrollWidth > document.documentElement.clientWidth + 1) {
		const wide = [...document.querySelectorAll("main *")].find((e) => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1 && !e.closest("pre, .visually-hidden"));
		wrong.push("wider than the screen: " + document.documentElement.scrollWidth + " " + wide?.tagName + "." + wide?.className + " " + wide?.textContent.slice(0, 60));
	}
	for (const e of document.querySelectorAll(".card table")) if (e.checkVisibility() && e.getBoundingClientRect().right > e.closest(".card").getBoundingClientRect().right - 8) wrong.push("a table leaves its card: " + e.caption?.textContent);
	for (const e of document.querySelectorAll("tbody .chooses")) if (Math.abs(e.getBoundingClientRect().top - e.closest("tr").querySelector(".lead").getBoundingClientRect().top) > 20) wrong.push("a box is apart from the name of its row");
	if (window.pwned !== undefined) wrong.push("a stored text has run: " + window.pwned);
	if (document.querySelector("main img[onerror], main script")) wrong.push("a stored text became markup");
	for (const e of document.querySelectorAll(".note.bad[role=alert]")) wrong.push("a problem is shown: " + e.textContent);
	return wrong;
})()`

// shownPage is a page, a name for its picture, and a text that must be on it.
type shownPage struct{ name, path, has string }

func (s *scene) pages() []shownPage {
	return []shownPage{
		{"overview", "/console/", "By service"},
		{"campaigns", "/console/campaigns", "The thousand layers"},
		{"campaigns-active", "/console/campaigns?status=active", "Midsummer regatta"},
		{"campaign-drawn", "/console/campaigns/" + s.drawn, payloadScript},
		{"campaign-on-sale", "/console/campaigns/" + s.onSale, "77 of 210 sold"},
		{"campaign-huge", "/console/campaigns/" + s.huge, "500,500 positions are too many for dots"},
		{"campaign-pending", "/console/campaigns/" + s.pending, "0 of 15 sold"},
		{"multidraws", "/console/multidraws", payloadImage},
		{"multidraw", "/console/multidraws/" + s.multidraw, "300 of 300 drawn"},
		{"auctions", "/console/auctions", payloadScript},
		{"auction", "/console/auctions/" + s.auction, "winning"},
		{"auction-ended", "/console/auctions/" + s.ended, "It was cancelled before a round was closed"},
		{"publications", "/console/publications", payloadQuote},
		{"publication-failed", "/console/publications/" + s.failed, "the target answered 404"},
		{"publication-publishing", "/console/publications/" + s.publishing, "Last sign of life"},
		{"publication-draft", "/console/publications/" + s.draft, "It was not tried yet"},
		{"publication-scheduled", "/console/publications/" + s.scheduled, "Publish now"},
		{"automations", "/console/automations", "Weekly digest"},
		{"automation", "/console/automations/" + s.automation, "Weekly digest"},
		{"targets", "/console/targets", payloadLink},
		{"target-failing", "/console/targets/" + s.refusing, "the target answered 404. Such an answer ends the publication"},
		{"target-idle", "/console/targets/nowhere", "No attempt to deliver to it has ended yet"},
		{"subscriptions", "/console/subscriptions", payloadImage},
		{"subscription", "/console/subscriptions/" + s.subscription, "retrying"},
		{"accounts", "/console/accounts", "buyer-1"},
		{"accounts-prefix", "/console/accounts?prefix=buyer", "buyer-4"},
		{"account", "/console/accounts/buyer-1", "behind"},
		{"account-purchases", "/console/accounts/buyer-2", "cross-transfer …" + s.saga[len(s.saga)-12:]},
		{"account-escrow", "/console/accounts/escrow%2F" + s.onSale, "Available"},
		{"account-outside", "/console/accounts/outside%2FEUR", "the outside of the books"},
		{"transfers", "/console/transfers", "purchase"},
		{"transfers-failed", "/console/transfers?status=failed", "failed"},
		{"transfer", "/console/transfers/" + s.transfer, payloadScript},
		{"transfer-legs", "/console/transfers/" + s.legs, "2 legs"},
		{"locks", "/console/locks", "harbourmaster"},
		{"sagas", "/console/sagas", "cross-transfer"},
		{"saga", "/console/sagas/" + s.saga, "Steps"},
		{"idempotency", "/console/idempotency?key=known&path=%2Fv1%2Faccounts&principal=key:" + s.adminID, "shop"},
		{"verify", "/console/verify", "The file is not sent anywhere"},
		{"keys", "/console/keys", payloadScript},
		{"audit", "/console/audit", "campaign.publish"},
		{"audit-narrowed", "/console/audit?object=" + s.onSale, "campaign.create"},
		{"new-account", "/console/new/account", "Make the account"},
		{"new-campaign", "/console/new/campaign", "Add a prize"},
		{"new-auction", "/console/new/auction", "Add a round"},
		{"new-target", "/console/new/target", "Longest attempt"},
		{"new-publication", "/console/new/publication", "Any JSON"},
		{"transfers-account", "/console/transfers?account=buyer-1", "escrow of"},
		{"publications-target", "/console/publications?target=silent", "publishing"},
		{"nowhere", "/console/nowhere", "There is no such page"},
		{"public-campaign", "/p/campaigns/" + s.drawn, "105 of 105 sold"},
		{"public-campaign-on-sale", "/p/campaigns/" + s.onSale, "77 of 210 sold"},
		{"public-auction", "/p/auctions/" + s.auction, "would win now"},
	}
}

// TestConsole drives every page in a browser, in both colour schemes, on a desk's and a phone's screen, and every action on a phone's.
func TestConsole(t *testing.T) {
	t.Parallel()
	chromiumPath(t) // Where there is none, nothing else is started.
	s := startScene(t)
	b := openBrowser(t, s.url)
	s.fill()
	s.signsIn(b)
	links := map[string]string{} // where each is, by its address
	for _, p := range s.pages() {
		if p.name == "locks" {
			s.queue() // Locks and waits end after minutes.
		}
		b.visit(p.path)
		b.await(p.name+" has "+p.has, fmt.Sprintf("document.body.textContent.includes(%q)", p.has))
		var found []string
		b.eval(`[...document.querySelectorAll("a[href]")].map((e) => e.href)`, &found)
		for _, link := range found {
			links[link] = p.name
		}
		b.everywhere(p.name)
	}
	b.follows(links)
	b.visit("/console/accounts/buyer-2")
	b.await("its purchases", `[...document.querySelectorAll("caption")].find((e) => e.textContent === "Purchases")?.closest("table").textContent.includes("layer ")`)
	b.await("a link to its saga", fmt.Sprintf(`document.querySelector('tbody a[href="/console/sagas/%s"]') !== null`, s.saga))
	// Buttons are pressed by a script, which can do so on any screen; long runs do it on both.
	for i, look := range viewports()[testwait.Count(1, 0):2] {
		b.look(look.width, look.scheme)
		s.acts(b, i)
		b.quiet(fmt.Sprintf("actions at %d %s", look.width, look.scheme))
	}
	s.verifies(b)
	s.goesLive(b)
	b.quiet("at the end")
}

// properly holds what is shown against what holds everywhere.
func (b *browser) properly(where string) {
	b.t.Helper()
	var wrong []string
	b.eval(proper, &wrong)
	for _, w := range wrong {
		b.t.Errorf("%s: %s", where, w)
	}
	b.accessible(b.t, where)
	b.shoot(where)
	b.quiet(where)
}

// signsIn goes through every way in.
func (s *scene) signsIn(b *browser) {
	s.t.Helper()
	b.look(1440, "light")
	b.visit("/console/")
	b.properly("sign-in")
	b.expect("401", "410")
	b.write("form", "key", "nonsense")
	b.click("form", "Sign in")
	b.await("a refusal", `document.body.textContent.includes("Invalid or revoked key")`)
	b.write("form", "key", s.key)
	b.click("form", "Sign in")
	b.await("the overview", `document.querySelector(".tiles") !== null`)
	var bytes int64
	b.mu.Lock()
	bytes = b.received
	b.mu.Unlock()
	s.t.Logf("sign-in and overview: %d bytes received", bytes)
	if bytes > 300_000 {
		s.t.Errorf("the first load has %d bytes", bytes)
	}
	var cookie string
	if b.eval("document.cookie", &cookie); cookie != "" {
		s.t.Errorf("scripts see the cookie %q", cookie)
	}
	b.click("nav", "Sign out")
	b.await("the sign-in", `document.body.textContent.includes("You are signed out")`)
	// A link signs in once, and is out of the address at once.
	link, signsIn := s.node.ConsoleLink(s.t.Context(), false)
	if !signsIn {
		s.t.Fatal(link)
	}
	link = strings.TrimPrefix(link, s.url)
	b.visit(link)
	b.await("the overview", `document.querySelector(".tiles") !== null && location.hash === ""`)
	b.click("nav", "Sign out")
	b.await("the sign-in", `document.body.textContent.includes("You are signed out")`)
	b.visit(link)
	b.await("a refusal", `document.body.textContent.includes("used up or has expired")`)
	b.write("form", "key", s.key)
	b.click("form", "Sign in")
	b.await("the overview", `document.querySelector(".tiles") !== null`)
	b.eval(`history.replaceState(null, "", "/console/")`, nil)
	b.quiet("signing in")
	b.expect()
}

// confirm presses an action's button and, in the dialog, the one that names the action.
func (b *browser) confirm(within, label string) {
	b.t.Helper()
	b.click(within, label)
	b.await("the dialog", `document.querySelector("dialog[open]") !== null`)
	b.namesItsAction(label)
	b.eval(`document.querySelector("dialog[open] button[type=submit]").click()`, nil)
	b.await(label+" is done", `document.querySelector("dialog") === null`)
}

// namesItsAction wants a dialog's two ways out in words of their own: what is done, and what stays as it is.
func (b *browser) namesItsAction(label string) {
	b.t.Helper()
	var ways []string
	b.eval(`[...document.querySelectorAll("dialog[open] .actions button")].map((e) => e.textContent.trim())`, &ways)
	if len(ways) != 2 || ways[0] == ways[1] {
		b.t.Fatalf("the dialog of %s offers %q", label, ways)
	}
	for _, way := range ways {
		if !strings.Contains(way, " ") || strings.Contains(way, "Leave it as it is") || strings.Contains(way, "undefined") {
			b.t.Errorf("the dialog of %s offers %q", label, ways)
		}
	}
}

// acts does everything that can be done, and looks for its row in the audit log.
func (s *scene) acts(b *browser, round int) {
	s.t.Helper()
	status := func(path string) string {
		text, _ := s.call(http.MethodGet, path, nil)["status"].(string)
		return text
	}
	becomes := func(path, want string) {
		s.t.Helper()
		s.eventually(path+" becomes "+want, func() bool { return status(path) == want })
	}
	campaign := s.newCampaign(fmt.Sprintf("Acted on %d", round), 2)
	b.visit("/console/campaigns/" + campaign)
	b.click("main", "Open the sale")
	b.await("the dialog", `document.querySelector("dialog[open]") !== null`)
	b.shoot(fmt.Sprintf("dialog-%d", round))
	// Nothing is done before it is confirmed.
	b.click("dialog", "Keep the draft")
	if status("/v1/campaigns/"+campaign) != "pending" {
		s.t.Error("a dialog that was left has acted")
	}
	b.confirm("main", "Open the sale")
	becomes("/v1/campaigns/"+campaign, "active")
	b.await("the page follows", `document.querySelector(".page-head .badge")?.textContent === "active"`)
	b.await("the audit log has it", `[...document.querySelectorAll("main code")].some((e) => e.textContent === "campaign.publish")`)
	b.confirm("main", "Cancel")
	becomes("/v1/campaigns/"+campaign, "cancelled")

	// The page may ask for the least winning bid at the moment when the auction is cancelled.
	b.quiet("a campaign")
	b.expect("/min-winning-bid")
	auction := s.newAuction(fmt.Sprintf("Acted on %d", round), "2h")
	b.visit("/console/auctions/" + auction)
	b.confirm("main", "Start")
	becomes("/v1/auctions/"+auction, "active")
	b.await("the page follows", `document.querySelector(".page-head .badge")?.textContent === "active"`)
	b.confirm("main", "Cancel")
	becomes("/v1/auctions/"+auction, "cancelled")

	failed := s.newFailure()
	b.visit("/console/publications/" + failed)
	b.quiet("an auction")
	b.expect()
	b.confirm("main", "Retry")
	s.eventually("it is tried again", func() bool {
		n, _ := s.call(http.MethodGet, "/v1/publications/"+failed, nil)["attempts"].(float64)
		return n == 2
	})
	scheduled := s.newPublication("nowhere", true)
	b.visit("/console/publications/" + scheduled)
	b.confirm("main", "Cancel")
	becomes("/v1/publications/"+scheduled, "cancelled")
	draft := s.newPublication("nowhere", false)
	b.visit("/console/publications/" + draft)
	b.confirm("main", "Publish now")
	s.eventually("it is sent", func() bool { return status("/v1/publications/"+draft) != "draft" })

	b.visit("/console/targets/" + s.refusing)
	b.await("the cause", `document.body.textContent.includes("Status 404")`)
	b.confirm("main", "Pause")
	b.await("the page follows", `document.querySelector(".page-head .badge")?.textContent === "paused" && document.body.textContent.includes("An operator paused it")`)
	b.await("the audit log has it", `[...document.querySelectorAll("main code")].some((e) => e.textContent === "target.pause")`)
	b.properly(fmt.Sprintf("target-paused-%d", round))
	b.confirm("main", "Resume")
	b.await("the page follows", `document.querySelector(".page-head .badge")?.textContent === "failing"`)

	b.visit("/console/automations/" + s.automation)
	b.confirm("main", "Pause")
	becomes("/v1/automations/"+s.automation, "paused")
	b.await("the page follows", `document.querySelector(".page-head .badge")?.textContent === "paused"`)
	b.confirm("main", "Resume")
	becomes("/v1/automations/"+s.automation, "active")

	hold := s.newHold()
	b.visit("/console/accounts/buyer-1")
	b.confirm("main table", "Release")
	becomes("/v1/holds/"+hold, "released")

	owner := fmt.Sprintf("to be released %d", round)
	s.newLock(owner)
	b.visit("/console/locks")
	b.await("the lock", fmt.Sprintf("document.body.textContent.includes(%q)", owner))
	b.eval(fmt.Sprintf(`[...document.querySelectorAll("tr")].find((e) => e.textContent.includes(%q)).querySelector("button").click()`, owner), nil)
	b.eval(`document.querySelector("dialog[open] button[type=submit]").click()`, nil)
	s.eventually("the lock is released", func() bool {
		return !strings.Contains(fmt.Sprint(s.call(http.MethodGet, "/v1/locks", nil)["holders"]), owner)
	})

	operation := s.id("POST", "/v1/multidraws", obj{"lock_key": fmt.Sprintf("undone %d", round), "count": 10, "range": obj{"min": 1, "max": 6}})
	b.visit("/console/multidraws/" + operation)
	b.confirm("main", "Roll back")
	becomes("/v1/multidraws/"+operation, "rolled_back")

	b.visit("/console/keys")
	b.click("main", "New service key")
	name := fmt.Sprintf("made in the console %d", round)
	b.write("dialog", "name", name)
	b.eval(`document.querySelector("dialog[open] button[type=submit]").click()`, nil)
	b.await("the secret", `document.querySelector(".note.good code")?.textContent.startsWith("fl_service_")`)
	var secret string
	b.eval(`document.querySelector(".note.good code").textContent`, &secret)
	admin := s.key
	s.key = secret
	s.call(http.MethodGet, "/v1/accounts/shop", nil) // The key that was shown is in force.
	s.key = admin
	b.await("the key is listed", fmt.Sprintf("[...document.querySelectorAll('td')].some((e) => e.textContent === %q)", name))
	b.eval(fmt.Sprintf(`[...document.querySelectorAll("tr")].find((e) => e.textContent.includes(%q)).querySelector("button").click()`, name), nil)
	b.eval(`document.querySelector("dialog[open] button[type=submit]").click()`, nil)
	b.await("it is revoked", fmt.Sprintf(`[...document.querySelectorAll("tr")].find((e) => e.textContent.includes(%q))?.textContent.includes("revoked")`, name))

	// Filters and pages by hand: the address follows, and a page further is another.
	b.visit("/console/accounts")
	b.write("form", "prefix", "buyer-3")
	b.await("the filter", `document.querySelectorAll("tbody tr").length === 1 && location.search === "?prefix=buyer-3"`)
	b.visit("/console/campaigns/" + s.onSale)
	var first string
	cells := `[...document.querySelectorAll("section")].find((e) => e.querySelector("h2")?.textContent.startsWith("Purchases"))?.querySelector("table")?.textContent ?? ""`
	cells = "(" + cells + ")"
	b.await("the purchases", cells+`.length > 0`)
	b.eval(cells, &first)
	b.click("main", "More")
	b.await("another page", fmt.Sprintf("%s !== %q", cells, first))
	b.click("main", "Back")
	b.await("the first page", fmt.Sprintf("%s === %q", cells, first))
}

// verifies lets pages verify a draw and an inclusion, and refuse what is not so.
func (s *scene) verifies(b *browser) {
	s.t.Helper()
	b.look(1440, "light")
	b.visit("/console/campaigns/" + s.drawn)
	b.click("main", "Verify in this browser")
	b.await("the verdict", `document.querySelector("[data-verdict]")?.dataset.verdict === "valid" && document.querySelectorAll(".steps .ok").length === 6`)
	b.shoot("verified")
	b.visit("/p/campaigns/" + s.drawn)
	purchases, _ := s.call(http.MethodGet, "/v1/campaigns/"+s.drawn+"/purchases?limit=1", nil)["items"].([]any)
	first, _ := purchases[0].(obj)
	place, _ := first["position"].(obj)
	position, _ := place["id"].(string)
	account, _ := first["account"].(string)
	b.write("form", "position", position)
	b.click("form", "Check")
	mine := fmt.Sprint(s.call(http.MethodGet, "/v1/accounts/"+account+"/aliases?topic=campaign:"+s.drawn, nil)["alias"])
	b.await("the inclusion", fmt.Sprintf("document.querySelector('.note.good')?.textContent.includes(%q)", mine[:8]+" was sealed"))
	b.expect("404")
	b.write("form", "position", uuid.NewString())
	b.click("form", "Check")
	b.await("no inclusion", `document.body.textContent.includes("There is no such position")`)
	b.expect()
	b.write("main", "alias", mine)
	b.await("the entrant's own line", `document.body.textContent.includes("You have won") || document.body.textContent.includes("have not won")`)
	b.shoot("public-mine")
}

// followsAsSocketIO runs the snippet of the page for users of Socket.IO, as it stands there.
func (s *scene) followsAsSocketIO(b *browser) {
	s.t.Helper()
	text, err := os.ReadFile("../../docs/quickstart/socketio.md")
	if err != nil {
		s.t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```js\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) != 2 {
		s.t.Fatalf("%d snippets", len(blocks))
	}
	use := strings.NewReplacer("http://127.0.0.1:8080", s.url, `"JWT"`, fmt.Sprintf("%q", s.key), "AUCTION", s.auction, "ACCOUNT", "buyer-0",
		"const live", "window.live", "console.log(", "window.said.push(").Replace(string(blocks[1][1]))
	b.eval("window.said = []; "+string(blocks[0][1])+use+"; null", nil)
	b.await("the countdown", `window.said.some((s) => String(s).endsWith(" ms left"))`)
	// Notices are live only, and the account's subscription comes after the auction's: the first of them may come too early.
	s.eventually("the notice", func() (noticed bool) {
		s.bid(s.auction, 5) // Of five buyers, two win.
		b.await("bids", `window.said.some((s) => String(s).startsWith("buyer-4 bids "))`)
		b.eval(`window.said.some((s) => String(s).startsWith("You are outbid. "))`, &noticed)
		return noticed
	})
	b.eval(`live.bid(100000000, crypto.randomUUID()).then((a) => { window.answer = a; live.close(); })`, nil)
	b.await("the answer", `window.answer?.op === "bid" && window.answer.status >= 201`)
}

// goesLive watches pages while things happen.
func (s *scene) goesLive(b *browser) {
	s.t.Helper()
	b.visit("/console/campaigns/" + s.onSale)
	b.await("the stream", `document.body.textContent.includes("live")`)
	s.buy(s.onSale, 5)
	b.await("sales appear", `document.body.textContent.includes("82 of 210 sold")`)
	b.visit("/console/auctions/" + s.auction)
	b.await("the stream", `document.querySelector("dl")?.textContent.includes("live")`)
	const bids = 40
	s.bid(s.auction, bids)
	seq := func() string { return fmt.Sprint(s.call(http.MethodGet, "/v1/auctions/"+s.auction, nil)["seq"]) }
	b.await("the page is in step", fmt.Sprintf(`[...document.querySelectorAll("dd")].some((e) => e.textContent.replaceAll(",", "").startsWith(%q))`, seq()+" live"))
	best, _ := s.call(http.MethodGet, "/v1/auctions/"+s.auction+"/leaderboard?limit=1", nil)["items"].([]any)
	leader, _ := best[0].(obj)
	amount, _ := leader["amount"].(float64)
	b.await("the leader", fmt.Sprintf("document.querySelector('.leaders tbody tr')?.textContent.includes(%q)", fmt.Sprintf("%.2f EUR", amount/100)))
	b.await("who was outbid", `document.querySelector(".leaders tbody tr:nth-child(3)")?.textContent.includes("outbid")`)
	b.shoot("auction-live")
	s.followsAsSocketIO(b)
	b.visit("/p/auctions/" + s.auction)
	alias := s.call(http.MethodGet, fmt.Sprintf("/v1/accounts/%v/aliases?topic=auction:%s", leader["account"], s.auction), nil)["alias"]
	b.write("main", "alias", fmt.Sprint(alias))
	b.await("one's own line", `document.querySelector("tr.me")?.textContent.includes("you")`)
	b.await("the leader", `document.querySelector(".leaders tbody tr")?.textContent.includes("winning")`)
	s.bid(s.auction, 4) // The leader, who bid last, is the one of five who does not bid.
	b.await("who was outbid", `document.querySelector("tr.me")?.textContent.includes("outbid")`)
	// Somebody else's page may frame it.
	if os.Getenv("CI") == "" {
		b.shoot("public-auction-mine")
	}
}
