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
	t.Parallel()
	chromiumPath(t) // Where there is none, nothing else is started.
	s := startScene(t)
	b := openBrowser(t, s.url)
	b.run("all operations", chromedp.Navigate(s.url+"/docs"))
	b.await("all operations", listed+`.includes("/v1/campaigns/{id}/purchases") && `+listed+`.includes("/v1/locks")`)
	b.onEveryScreen("docs", b.legible)

	b.run("search", chromedp.SendKeys(".operation-filter-input", "purchase", chromedp.ByQuery))
	b.await("a shorter list", listed+`.includes("/v1/campaigns/{id}/purchases") && !`+listed+`.includes("/v1/locks")`)
	accessible := func(where string) { b.accessible(t, where) }
	b.onEveryScreen("docs", accessible) // The rows of some operations: axe-core needs too long for all of them.
	b.eval(`document.querySelector(".opblock-post .opblock-summary-control").click()`, nil)
	b.await("one operation with its answers", `document.querySelector(".opblock-body .responses-table") !== null`)
	b.onEveryScreen("docs-open", func(where string) {
		b.await("answers that are wide enough to be read", `document.querySelector(".responses-table .response .response-col_description").getBoundingClientRect().width > 250`)
		b.legible(where)
		b.accessible(t, where)
	})

	b.visit("/docs/problems#sold_out")
	b.onEveryScreen("problems", func(where string) {
		b.properly(where)
		b.legible(where)
	})
}

// onEveryScreen looks at what is shown on each screen. A page follows the screen, so that it need not be loaded for each.
func (b *browser) onEveryScreen(name string, look func(where string)) {
	b.t.Helper()
	for _, v := range viewports() {
		b.look(v.width, v.scheme)
		b.await("the end of all transitions", `document.getAnimations().every((a) => !(a instanceof CSSTransition))`)
		look(fmt.Sprintf("%s-%d-%s", name, v.width, v.scheme))
	}
}

// legible holds of a page that it fits the screen, has the colours of the scheme, and has logged nothing.
func (b *browser) legible(where string) {
	b.t.Helper()
	var wide float64
	if b.eval(tooWide, &wide); wide > 0 {
		b.t.Errorf("%s: %g pixels are beyond the screen", where, wide)
	}
	var texts [2]int
	b.eval(brighter, &texts)
	if want := map[string]int{"light": 0, "dark": texts[1]}[b.scheme]; texts[0] != want || texts[1] == 0 {
		b.t.Errorf("%s: of %d texts %d are brighter than the page, want %d", where, texts[1], texts[0], want)
	}
	b.shoot(where)
	b.quiet(where)
}
