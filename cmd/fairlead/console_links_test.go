package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// follows goes to each of the links: the console's own as a click does, without loading the console anew.
func (b *browser) follows(links map[string]string) {
	b.t.Helper()
	b.look(1440, "light")
	b.visit("/console/verify")
	console := b.home.String() + "/console/"
	followed := 0
	for _, link := range slices.Sorted(maps.Keys(links)) {
		var wrong string
		switch {
		case strings.HasPrefix(link, console) && !strings.HasSuffix(link, "#main"):
			b.eval(fmt.Sprintf(`(async () => {
				history.replaceState(null, "", %q);
				dispatchEvent(new PopStateEvent("popstate"));
				while (document.querySelector("#main[aria-busy]")) await new Promise((r) => setTimeout(r, 5));
				const title = document.querySelector("main h1")?.textContent ?? "no heading";
				return title.startsWith("There is no such ") || title === "This page can't be shown" || title === "no heading" ? title : "";
			})()`, link), &wrong)
		case strings.HasPrefix(link, b.home.String()):
			b.eval(fmt.Sprintf(`fetch(%q).then((r) => r.ok ? "" : String(r.status))`, link), &wrong)
		default:
			wrong = "it leaves the server"
		}
		if followed++; wrong != "" {
			b.t.Errorf("the link to %s on the page %s: %s", link, links[link], wrong)
		}
	}
	b.t.Logf("%d links", followed)
	if followed < len(links) || followed < 100 {
		b.t.Errorf("only %d links were followed", followed)
	}
	b.quiet("following links")
}
