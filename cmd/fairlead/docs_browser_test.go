package main

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

const (
	// listed are the paths of the operations that /docs shows.
	listed = `[...document.querySelectorAll(".opblock-summary-path")].map((e) => e.dataset.path)`

	// tooWide is how much of a page is beyond the right edge of the screen, in pixels.
	tooWide = `Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth - 1)`

	// brighter counts the texts that are brighter than the page behind them, and all of them.
	brighter = `(() => {
		const shade = (colour) => colour.match(/[\d.]+/g).slice(0, 3).reduce((sum, n) => sum + Number(n), 0);
		const paper = shade(getComputedStyle(document.body).backgroundColor);
		const texts = [...document.querySelectorAll("h1, h2, h3, h4, p, td, .opblock-summary-path, .opblock-summary-description")].filter((e) => e.checkVisibility());
		return [texts.filter((e) => shade(getComputedStyle(e).color) > paper).length, texts.length];
	})()`
)

// TestDocsInBrowser looks at the pages that need no credential: all operations, with their search, and all problems.
func TestDocsInBrowser(t *testing.T) {
	chromiumPath(t) // Where there is none, nothing else is started.
	s := startScene(t)
	b := openBrowser(t, s.url)
	for _, look := range viewports() {
		where := fmt.Sprintf("%d-%s", look.width, look.scheme)
		b.look(look.width, look.scheme)
		b.run("all operations", chromedp.Navigate(s.url+"/docs"))
		b.await("all operations", listed+`.includes("/v1/campaigns/{id}/purchases") && `+listed+`.includes("/v1/locks")`)
		b.legible("docs-"+where, look.scheme)

		b.run("search", chromedp.SendKeys(".operation-filter-input", "purchase", chromedp.ByQuery))
		b.await("a shorter list", listed+`.includes("/v1/campaigns/{id}/purchases") && !`+listed+`.includes("/v1/locks")`)
		b.accessible(t, "docs-"+where) // The rows of some operations: axe-core needs too long for all of them.
		b.eval(`document.querySelector(".opblock-post .opblock-summary-control").click()`, nil)
		b.await("one operation with its answers", `document.querySelector(".opblock-body .responses-table") !== null`)
		b.await("answers that are wide enough to be read", `document.querySelector(".responses-table .response .response-col_description").getBoundingClientRect().width > 250`)
		b.legible("docs-open-"+where, look.scheme)
		b.accessible(t, "docs-open-"+where)

		b.visit("/docs/problems#sold_out")
		b.properly("problems-" + where)
		b.legible("problems-"+where, look.scheme)
	}
}

// legible holds of a page that it fits the screen, has the colours of the scheme, and has logged nothing.
func (b *browser) legible(where, scheme string) {
	b.t.Helper()
	var wide float64
	if b.eval(tooWide, &wide); wide > 0 {
		b.t.Errorf("%s: %g pixels are beyond the screen", where, wide)
	}
	var texts [2]int
	b.eval(brighter, &texts)
	if want := map[string]int{"light": 0, "dark": texts[1]}[scheme]; texts[0] != want || texts[1] == 0 {
		b.t.Errorf("%s: of %d texts %d are brighter than the page, want %d", where, texts[1], texts[0], want)
	}
	b.shoot(where)
	b.quiet(where)
}
