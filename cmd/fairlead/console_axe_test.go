package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// axeVariable names the file axe.min.js of axe-core, which then looks at every page that the tests look at.
const axeVariable = "FAIRLEAD_AXE"

// accessible lets axe-core look at what is shown. Its script is run by the debugger, so the page's content policy stays as it is.
func (b *browser) accessible(t *testing.T, where string) {
	t.Helper()
	path := os.Getenv(axeVariable)
	if path == "" {
		return
	}
	script, err := os.ReadFile(path)
	testwait.Must(t, err)
	var loaded bool
	b.eval("window.axe !== undefined", &loaded)
	if !loaded {
		b.run("load axe-core", chromedp.Evaluate(string(script)+"; null", nil))
	}
	var found []string
	b.eval(`axe.run(document, { resultTypes: ["violations"] }).then((r) => r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes.map((n) => n.target.join(" ") + " " + (n.any[0]?.message ?? "")).slice(0, 3).join(", ")))`, &found)
	if len(found) > 0 {
		t.Errorf("%s: axe-core finds %s", where, fmt.Sprint(strings.Join(found, "; ")))
	}
}
