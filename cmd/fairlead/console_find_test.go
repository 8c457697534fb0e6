package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestConsoleFinds searches, makes, chooses and asks on every screen: what item an operator looks for, and what is done about it.
func TestConsoleFinds(t *testing.T) {
	t.Parallel()
	chromiumPath(t) // Where there is none, nothing else is started.
	s := startScene(t)
	b := openBrowser(t, s.url)
	b.look(1440, "light")
	b.visit("/console/")
	b.write("form", "key", s.key)
	b.click("form", "Sign in")
	b.await("the overview", `document.querySelector(".tiles") !== null`)
	s.explainsWhatIsEmpty(b)
	s.makes(b)
	for i := range 5 {
		s.account(fmt.Sprintf("buyer-%d", i), 1_000_000)
	}
	s.searches(b)
	s.choosesMany(b)
	s.asksBySize(b)
	s.keepsItsPlace(b)
	s.narrowsToAnAccount(b)
	s.showsZones(b)
	s.followsWhoeverIsIn(b)
	b.quiet("as an administrator")
	s.looksOnly(b)
	b.quiet("as a reader")
}

// press sends keys to what has the focus.
func (b *browser) press(keys string, modifiers ...chromedp.KeyOption) {
	b.t.Helper()
	b.run("press", chromedp.KeyEvent(keys, modifiers...))
}

// explainsWhatIsEmpty visits lists that have nothing yet.
func (s *scene) explainsWhatIsEmpty(b *browser) {
	s.t.Helper()
	for name, has := range map[string]string{
		"campaigns": "New campaign", "auctions": "New auction", "publications": "New publication", "targets": "New target", "multidraws": "curl", "automations": "curl", "subscriptions": "curl", "transfers": "curl",
		"accounts": "New account", "sagas": "There is none yet", "locks": "Nothing is held",
	} {
		b.visit("/console/" + name)
		b.await("the explanation of "+name, fmt.Sprintf(`document.querySelector(".explained")?.textContent.includes("curl http") && document.querySelector(".explained").textContent.includes(%q)`, has))
		b.everywhere("empty-" + name)
	}
}

// makes fills in the forms, wrongly and then rightly.
func (s *scene) makes(b *browser) {
	s.t.Helper()
	submit := func(form string) {
		b.t.Helper()
		b.eval(`document.querySelector("`+form+` button[type=submit]").click()`, nil)
	}
	wrong := func(name string) string {
		return fmt.Sprintf(`document.querySelector("[name=%s]").getAttribute("aria-invalid") === "true" && document.activeElement.name === %q`, name, name)
	}
	b.visit("/console/accounts")
	b.click("main", "New account")
	b.await("the form", `document.querySelector("form.making") !== null`)
	submit(".making")
	b.await("the field that is needed", wrong("id"))
	b.everywhere("form-needed")
	b.write(".making", "id", "shop")
	submit(".making")
	b.await("the account", `location.pathname === "/console/accounts/shop" && document.querySelector("h1")?.textContent === "shop"`)
	b.expect("409", "404", "422", "400")
	b.visit("/console/new/account")
	b.write(".making", "id", "shop")
	submit(".making")
	b.await("the server's refusal at its field", wrong("id")+` && document.querySelector(".making .wrong:not(:empty)").textContent.includes("exists")`)
	b.shoot("form-exists")

	b.visit("/console/new/campaign")
	for name, value := range map[string]string{"name": "Midsummer regatta", "base_length": "20", "price": "250", "beneficiary": "nobody"} {
		b.write(".making > .field", name, value)
	}
	b.write("fieldset", "name", "A pennant")
	b.await("the hint", `document.body.textContent.includes("210 positions") && document.body.textContent.includes("2.50 EUR")`)
	submit(".making")
	b.await("there is no such account", wrong("beneficiary"))
	b.write(".making", "beneficiary", "shop")
	b.write("fieldset", "quantity", "999")
	submit(".making")
	b.await("too many prizes", `[...document.querySelectorAll("fieldset .wrong")].some((e) => e.textContent.includes("quantity exceeds"))`)
	for _, look := range viewports() {
		b.look(look.width, look.scheme)
		b.eval(`scrollTo(0, 0)`, nil)
		b.accessible(b.t, "a refused form")
		b.shoot(fmt.Sprintf("form-refused-%d-%s", look.width, look.scheme))
	}
	b.look(1440, "light")
	b.write("fieldset", "quantity", "3")
	submit(".making")
	b.await("the campaign", `document.querySelector("h1")?.textContent === "Midsummer regatta"`)
	var path string
	b.eval("location.pathname", &path)
	s.onSale = strings.TrimPrefix(path, "/console/campaigns/")

	b.visit("/console/new/auction")
	b.write(".making", "title", "A brass sextant")
	b.write(".making", "seller", "shop")
	b.click(".making", "Add a round")
	b.write(".making", "window", "1m")
	submit(".making")
	b.await("late bids need all three", `document.querySelector(".making .note.bad")?.textContent.includes("anti_snipe")`)
	b.write(".making", "extension", "30s")
	b.write(".making", "max_extensions", "3")
	submit(".making")
	b.await("the auction", `document.querySelector("h1")?.textContent === "A brass sextant"`)
	b.eval("location.pathname", &path)
	s.auction = strings.TrimPrefix(path, "/console/auctions/")
	if rounds, _ := s.call(http.MethodGet, "/v1/auctions/"+s.auction, nil)["rounds"].([]any); len(rounds) != 2 {
		s.t.Errorf("%d rounds", len(rounds))
	}

	b.visit("/console/new/target")
	b.write(".making", "name", "newsroom")
	b.write(".making", "url", "ftp://example.com")
	submit(".making")
	b.await("the URL is refused", wrong("url"))
	b.write(".making", "url", s.url+"/nothing-is-here")
	submit(".making")
	b.await("the secret", `document.querySelector(".note.good code")?.textContent.startsWith("whsec_")`)
	b.everywhere("form-secret")

	b.visit("/console/new/publication")
	b.write(".making", "target", "nowhere")
	b.write(".making", "payload", "{")
	submit(".making")
	b.await("this is not JSON", wrong("payload"))
	b.write(".making", "payload", `{"a":1}`)
	submit(".making")
	b.await("there is no such target", wrong("target"))
	b.write(".making", "target", "newsroom")
	submit(".making")
	b.await("the publication", `document.querySelector("h1")?.textContent === "To newsroom"`)
	b.quiet("forms")
	b.expect()
}

// searches looks for things by keyboard alone.
func (s *scene) searches(b *browser) {
	s.t.Helper()
	deposit := s.id("POST", "/v1/deposits", obj{"account": "shop", "amount": 5, "reference": "order-4711"})
	find := func(text, option string) {
		b.t.Helper()
		b.press("k", chromedp.KeyModifiers(2)) // Control.
		b.await("the search", `document.activeElement?.getAttribute("role") === "combobox"`)
		b.run("type", chromedp.KeyEvent(text))
		b.await(option, fmt.Sprintf(`document.querySelector("[role=option][aria-selected=true]")?.textContent.includes(%q)`, option))
	}
	b.visit("/console/")
	find("REGATTA", "Midsummer regatta")
	for _, look := range viewports() {
		b.look(look.width, look.scheme)
		b.properly(fmt.Sprintf("search-%d-%s", look.width, look.scheme))
	}
	b.look(1440, "light")
	b.press(kb.ArrowDown)
	b.await("the next one", `document.querySelector("#found-1")?.getAttribute("aria-selected") === "true" && document.activeElement.getAttribute("aria-activedescendant") === "found-1"`)
	b.press(kb.ArrowUp)
	b.press(kb.Enter)
	b.await("the campaign", `location.pathname === "/console/campaigns/`+s.onSale+`" && document.querySelector("h1")?.textContent === "Midsummer regatta"`)
	find("order-4711", "order-4711")
	b.press(kb.Enter)
	b.await("the transfer", `location.pathname === "/console/transfers/`+deposit+`"`)
	find("buyer-3", "buyer-3")
	b.press(kb.Enter)
	b.await("the account", `location.pathname === "/console/accounts/buyer-3"`)
	find(s.auction, "A brass sextant")
	b.press(kb.Escape)
	b.await("it is closed", `document.querySelector("dialog") === null`)
	find("audit", "Audit log")
	b.press(kb.Enter)
	b.await("the page, with names beside ids", `location.pathname === "/console/audit" && [...document.querySelectorAll(".named")].some((e) => e.textContent.startsWith("Midsummer regatta"))`)
	b.everywhere("audit-names")
	// A thing that nothing is called shows where else to look.
	find("zzz", "Locks with")
	b.press(kb.Escape)
	b.quiet("searching")
}

// choosesMany retries and cancels publications together.
func (s *scene) choosesMany(b *browser) {
	s.t.Helper()
	var failed []string
	for range 3 {
		id := s.newPublication("newsroom", false)
		s.call("POST", "/v1/publications/"+id+"/publish", nil)
		failed = append(failed, id)
	}
	for _, id := range failed {
		s.eventually("it fails", func() bool { return s.call("GET", "/v1/publications/"+id, nil)["status"] == "failed" })
	}
	var drafts []string
	for range 130 {
		drafts = append(drafts, s.newPublication("newsroom", true))
	}
	attempts := func(id string) any { return s.call("GET", "/v1/publications/"+id, nil)["attempts"] }
	b.visit("/console/publications?status=failed&target=newsroom")
	b.await("three", `document.querySelectorAll("tbody tr").length === 3`)
	b.eval(`document.querySelector("thead .chooses").click()`, nil)
	b.await("they are chosen", `document.querySelector(".chosen").textContent.includes("3 chosen")`)
	b.everywhere("bulk-chosen")
	b.click(".chosen", "Retry 3")
	b.await("the dialog", `document.querySelector("dialog[open] button[type=submit]")?.textContent === "Retry 3 publications"`)
	// One of them is gone meanwhile.
	s.call("POST", "/v1/publications/"+failed[0]+"/retry", nil)
	b.expect("409")
	b.eval(`document.querySelector("dialog[open] button[type=submit]").click()`, nil)
	b.await("the results", `/[23] done/.test(document.querySelector("dialog [role=status]").textContent) && document.querySelectorAll(".results .badge").length === 3`)
	for _, look := range viewports() {
		b.look(look.width, look.scheme)
		b.accessible(b.t, "results")
		b.shoot(fmt.Sprintf("bulk-results-%d-%s", look.width, look.scheme))
	}
	b.look(1440, "light")
	b.click("dialog", "Close")
	for _, id := range failed {
		s.eventually("it was tried again", func() bool { n, _ := attempts(id).(float64); return n >= 2 })
	}
	for _, id := range failed[1:] {
		retries := 0
		for _, action := range s.audited(id) {
			if action == "publication.retry" {
				retries++
			}
		}
		if retries != 1 {
			s.t.Errorf("%s was retried %d times", id, retries)
		}
	}
	b.expect()

	b.visit("/console/publications?status=scheduled")
	b.await("a page", `document.querySelectorAll("tbody tr").length === 50`)
	b.eval(`document.querySelector("tbody .chooses").click()`, nil)
	b.click(".chosen", "Choose the whole list")
	b.await("all are chosen", `document.querySelector(".chosen").textContent.includes("130 chosen")`)
	b.click(".chosen", "Cancel 130")
	b.await("it has to be typed", `document.querySelector("dialog[open] button[type=submit]")?.disabled === true && document.querySelector("dialog").textContent.includes("Type 130 to confirm")`)
	for _, look := range viewports() {
		b.look(look.width, look.scheme)
		b.accessible(b.t, "a large number")
		b.shoot(fmt.Sprintf("bulk-typed-%d-%s", look.width, look.scheme))
	}
	b.look(1440, "light")
	b.write("dialog", "typed", "13")
	b.await("a wrong number", `document.querySelector("dialog[open] button[type=submit]").disabled`)
	b.write("dialog", "typed", "130")
	b.eval(`document.querySelector("dialog[open] button[type=submit]").click()`, nil)
	b.await("all are cancelled", `document.querySelector("dialog [role=status]").textContent.startsWith("130 done")`)
	b.click("dialog", "Close")
	for _, id := range []string{drafts[0], drafts[len(drafts)-1]} {
		if status := s.call("GET", "/v1/publications/"+id, nil)["status"]; status != "cancelled" {
			s.t.Errorf("%s is %v", id, status)
		}
	}
	b.await("the list says what to do", `document.body.textContent.includes("Clear the filters")`)
	b.click("main", "Clear the filters")
	b.await("all of them", `document.querySelectorAll("tbody tr").length === 50 && location.search === ""`)
	// An error leads to all that have it.
	b.visit("/console/publications?status=failed&target=newsroom")
	b.await("errors", `[...document.querySelectorAll("td a")].some((e) => e.textContent === "the target answered 404")`)
	b.click("main td", "the target answered 404")
	b.await("those with the error", `new URLSearchParams(location.search).get("error") === "the target answered 404" && document.querySelector("#main[aria-busy]") === null && document.querySelectorAll("tbody tr").length === 3`)
	b.write("form", "cause", "status")
	b.await("those with the cause", `location.search === "?cause=status" && document.querySelector("#main[aria-busy]") === null && document.querySelectorAll("tbody tr").length === 3`)
	b.write("form", "cause", "dns")
	b.await("none has another cause", `document.body.textContent.includes("No publication matches.")`)
	b.quiet("many at once")
}

// asksBySize cancels a campaign that has sold a lot.
func (s *scene) asksBySize(b *browser) {
	s.t.Helper()
	path := "/v1/campaigns/" + s.onSale
	s.call("POST", path+"/publish", nil)
	s.buy(s.onSale, 105)
	b.visit("/console/campaigns/" + s.onSale)
	b.click("main", "Cancel")
	b.await("the dialog names the action", `[...document.querySelectorAll("dialog button")].map((e) => e.textContent).join() === "Keep selling,Cancel campaign and refund 105 purchases, 262.50 EUR"`)
	for _, look := range viewports() {
		b.look(look.width, look.scheme)
		b.accessible(b.t, "the dialog")
		b.shoot(fmt.Sprintf("dialog-typed-%d-%s", look.width, look.scheme))
	}
	b.look(1440, "light")
	b.click("dialog", "Keep selling")
	b.await("it is closed", `document.querySelector("dialog") === null`)
	if status := s.call("GET", path, nil)["status"]; status != "active" {
		s.t.Errorf("the campaign is %v", status)
	}
	b.click("main", "Cancel")
	b.write("dialog", "typed", "105")
	b.click("dialog", "Cancel campaign and refund 105 purchases, 262.50 EUR")
	s.eventually("it is cancelled", func() bool { return s.call("GET", path, nil)["status"] == "cancelled" })
	b.quiet("dialogs")
}

// keepsItsPlace goes through pages of a list, by the list's buttons, the browser's and the address.
func (s *scene) keepsItsPlace(b *browser) {
	s.t.Helper()
	rows := `[...document.querySelectorAll("tbody td:first-child")].map((e) => e.textContent).join("\n")`
	b.visit("/console/accounts/shop")
	balances := `[...document.querySelectorAll("table")].find((e) => e.caption.textContent === "Entries")?.textContent ?? ""`
	b.await("the kind, the counterparty and the balance", "("+balances+`).includes("deposit") && (`+balances+`).includes("outside/EUR")`)
	b.everywhere("account-entries")
	b.visit("/console/transfers")
	b.await("a page", `document.querySelectorAll("tbody tr").length === 50`)
	var first, second string
	b.eval(rows, &first)
	b.click("main", "More")
	b.await("another page", fmt.Sprintf(`%s !== %q && location.search.includes("after=") && document.querySelectorAll("tbody tr").length === 50`, rows, first))
	b.eval(rows, &second)
	b.run("reload", chromedp.Reload())
	b.await("the same page", fmt.Sprintf(`%s === %q && document.querySelector(".pager").textContent.includes("Page 2")`, rows, second))
	b.eval("history.back()", nil)
	b.await("the browser's way back", fmt.Sprintf(`%s === %q && location.search === ""`, rows, first))
	b.eval("history.forward()", nil)
	b.await("and on", fmt.Sprintf(`%s === %q`, rows, second))
	var address string
	b.eval("location.href", &address)
	b.eval("history.replaceState(null, '', '/console/')", nil)
	b.visit(strings.TrimPrefix(address, s.url))
	b.await("by its address", fmt.Sprintf(`%s === %q`, rows, second))
	b.click("main", "To the first page")
	b.await("the first page", fmt.Sprintf(`%s === %q`, rows, first))
	b.expect("400")
	b.visit("/console/transfers?after=nonsense")
	b.await("a cursor that is none", `document.body.textContent.includes("a place that this list does not have") && document.body.textContent.includes("To the first page") && document.querySelector(".pager").hidden`)
	b.click("main", "To the first page")
	b.await("the first page", `document.querySelectorAll("tbody tr").length === 50`)
	b.quiet("a bad cursor")
	b.expect()
	b.write("form", "account", "buyer-2")
	b.await("one account's", `document.querySelectorAll("tbody tr").length > 20 && [...document.querySelectorAll("tbody tr")].every((e) => e.textContent.includes("buyer-2"))`)
}

// narrowsToAnAccount looks for one account's purchases, bids, and transfers between ledgers.
func (s *scene) narrowsToAnAccount(b *browser) {
	s.t.Helper()
	auction := s.newAuction("Two bidders", "1h")
	s.call("POST", "/v1/auctions/"+auction+"/start", nil)
	for i, who := range []string{"buyer-1", "buyer-2", "buyer-1"} {
		s.call("POST", "/v1/auctions/"+auction+"/bids", obj{"account": who, "amount": 1000 + 100*i})
	}
	cross := func(from, to string, amount int) (map[string]any, int) {
		return s.try("POST", "/v1/cross-transfers", obj{"from": obj{"ledger": "local", "account": from}, "to": obj{"ledger": "local", "account": to}, "amount": amount, "mode": "saga"})
	}
	for from, to := range map[string]string{"buyer-1": "shop", "buyer-2": "shop", "buyer-3": "buyer-1"} {
		if _, status := cross(from, to, 10); status != http.StatusCreated {
			s.t.Errorf("a transfer from %s: %d", from, status)
		}
	}
	if _, status := cross("buyer-1", "shop", 900_000_000); status != http.StatusPaymentRequired {
		s.t.Errorf("a transfer without money: %d", status)
	}
	rows := func(caption, all, with string) string {
		return fmt.Sprintf(`((rows) => rows.length === %s && rows.every((r) => r.textContent.includes(%q)))([...document.querySelectorAll("table")].filter((t) => t.caption?.textContent === %q).flatMap((t) => [...t.tBodies[0].rows]))`, all, with, caption)
	}
	b.visit("/console/campaigns/" + s.onSale)
	b.await("a page of all", rows("Purchases", "10", "buyer-")+` && [...document.querySelectorAll("dt")].some((e) => e.textContent === "Refunded")`)
	b.write("form.filters", "account", "buyer-1")
	b.await("one account's", rows("Purchases", "10", "buyer-1")+` && location.search === "?account=buyer-1"`)
	b.everywhere("campaign-of-account")
	b.write("form.filters", "account", "nobody")
	b.await("nobody's", `document.body.textContent.includes("No purchase matches.")`)
	b.visit("/console/auctions/" + auction + "?account=buyer-1")
	b.await("one account's", rows("Bids", "2", "buyer-1"))
	b.everywhere("auction-of-account")
	b.visit("/console/sagas?status=completed")
	b.await("all that are completed", rows("Sagas", "3", "completed"))
	b.write("form.filters", "account", "buyer-1")
	b.await("one account's, whatever their status", rows("Sagas", "3", "buyer-1")+` && location.search === "?account=buyer-1"`)
	b.everywhere("sagas-of-account")
	b.visit("/console/accounts/buyer-1")
	b.await("the account's own", rows("Transfers between ledgers", "3", "buyer-1"))
	b.await("the refused one, too, and why", `((e) => e?.includes("failed") && e.includes("The account has too little money."))([...document.querySelectorAll("table")].find((t) => t.caption?.textContent === "Transfers between ledgers")?.textContent)`)
	b.everywhere("account-sagas")
	b.quiet("one account's")
}

// showsZones chooses the time zone, which stays chosen.
func (s *scene) showsZones(b *browser) {
	s.t.Helper()
	b.run("a zone of its own", emulation.SetTimezoneOverride("Asia/Kolkata"))
	b.visit("/console/transfers")
	b.await("times", `document.querySelector("tbody time") !== null`)
	b.write("nav", "zone", "UTC")
	utc := `document.querySelector("tbody time")?.textContent.endsWith("UTC") && document.querySelector("tbody time").textContent.includes(document.querySelector("tbody time").dateTime.slice(11, 16))`
	b.await("times in UTC", utc)
	b.run("reload", chromedp.Reload())
	b.await("still", utc)
	b.everywhere("zone-utc")
	b.write("nav", "zone", "local")
	b.await("the browser's own", `document.querySelector("tbody time") && !document.querySelector("tbody time").textContent.endsWith("UTC")`)
}

// looksOnly signs in with a reader's key.
func (s *scene) looksOnly(b *browser) {
	s.t.Helper()
	open := s.newCampaign("Not for readers", 2)
	s.newHold()
	b.visit("/console/keys")
	b.click("main", "New reader key")
	b.write("dialog", "name", "night watch")
	b.eval(`document.querySelector("dialog[open] button[type=submit]").click()`, nil)
	b.await("the secret", `document.querySelector(".note.good code")?.textContent.startsWith("fl_reader_")`)
	var secret string
	b.eval(`document.querySelector(".note.good code").textContent`, &secret)
	b.expect("401") // The page may be reading the list anew when it signs out.
	b.click("nav", "Sign out")
	b.await("the sign-in", `document.body.textContent.includes("You are signed out")`)
	b.write("form", "key", secret)
	b.click("form", "Sign in")
	b.await("the page", `document.querySelector("h1")?.textContent === "API keys"`)
	b.expect()
	for _, path := range []string{"/console/keys", "/console/campaigns/" + open, "/console/accounts/buyer-1", "/console/publications?status=failed", "/console/new/campaign", "/console/campaigns", "/console/automations", "/console/subscriptions"} {
		b.visit(path)
		b.await("why nothing can be done", `document.querySelector("nav").textContent.includes("You are signed in with a reader key")`)
		b.await("no action is offered", `document.querySelector(".chooses") === null && [...document.querySelectorAll("main .page-head .actions button, main td.act button, main button[type=submit].primary")].every((e) => e.disabled)`)
		b.everywhere("reader" + strings.ReplaceAll(strings.ReplaceAll(strings.TrimSuffix(path, open), "/", "-"), "?", "-"))
	}
	// The server refuses what the page does not offer.
	b.expect("403")
	var status int
	b.eval(fmt.Sprintf(`fetch("/v1/campaigns/%s/publish", { method: "POST", headers: { "Idempotency-Key": "as-a-reader" } }).then((r) => r.status)`, open), &status)
	if status != http.StatusForbidden || s.call("GET", "/v1/campaigns/"+open, nil)["status"] != "pending" {
		s.t.Errorf("a reader's action: %d", status)
	}
	b.quiet("a refused action")
	b.expect()
}
