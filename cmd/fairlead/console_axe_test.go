package main

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// axeVariable names the file axe.min.js of axe-core. Without it, the one that scripts/setup.sh test has put into .tools is taken.
const axeVariable = "FAIRLEAD_AXE"

var errNoAxe = errors.New("axe-core is not installed (scripts/setup.sh test installs it): the console's accessibility was NOT TESTED with it")

// axeScript reads axe-core once.
var axeScript = sync.OnceValues(func() (string, error) {
	installed, err := filepath.Glob("../../.tools/axe-core-*/axe.min.js")
	if err != nil {
		return "", err
	}
	path := os.Getenv(axeVariable)
	if path == "" && len(installed) > 0 {
		path = slices.Max(installed)
	}
	if path == "" {
		return "", errNoAxe
	}
	script, err := os.ReadFile(path)
	return string(script), err
})

// npmAnswers reports whether npm's registry can be reached, so that axe-core should be here.
var npmAnswers = sync.OnceValue(func() bool {
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(cmp.Or(os.Getenv("FAIRLEAD_NPM_REGISTRY"), "https://registry.npmjs.org") + "/axe-core/latest")
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	client.CloseIdleConnections()
	return resp.StatusCode == http.StatusOK
})

// accessible lets axe-core look at what is shown, on a wide light screen and on a narrow dark one: it takes a third of a second each time.
// With FAIRLEAD_TORTURE it looks at all four. Its script is run by the debugger, so the page's content policy stays as it is. Once it was
// asked for, each further document of the tab has it from its beginning.
func (b *browser) accessible(t *testing.T, where string) {
	t.Helper()
	if !testwait.Torture() && (b.passed || (b.width >= 600) != (b.scheme == "light")) {
		return
	}
	script, err := axeScript()
	switch {
	case errors.Is(err, errNoAxe) && (os.Getenv("CI") != "true" || !npmAnswers()):
		t.Log(err)
		return
	case err != nil:
		t.Fatal(err)
	}
	var loaded bool
	b.eval("window.axe !== undefined", &loaded)
	if !loaded {
		b.run("load axe-core", chromedp.Evaluate(script+"; null", nil), chromedp.ActionFunc(func(ctx context.Context) error {
			_, err := page.AddScriptToEvaluateOnNewDocument(script).Do(ctx)
			return err
		}))
	}
	var found []string
	b.eval(`axe.run(document, { resultTypes: ["violations"] }).then((r) => r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes.map((n) => n.target.join(" ") + " " + (n.any[0]?.message ?? "")).slice(0, 3).join(", ")))`, &found)
	if len(found) > 0 {
		t.Errorf("%s: axe-core finds %s", where, strings.Join(found, "; "))
	}
}
