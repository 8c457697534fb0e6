package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// shotsVariable names a directory to put pictures of every page into, for people to look at.
const shotsVariable = "FAIRLEAD_SCREENSHOTS"

// stepTimeout bounds one step in the browser, on a machine that has other things to do.
const stepTimeout = testwait.Patience

// browser is one tab of a chromium that nobody sees, and what went wrong in it.
type browser struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // It is the tab.
	home *url.URL

	width  int64 // of the screen
	scheme string
	shown  int  // how many pages were looked at on every screen
	passed bool // axe-core has seen this page on another screen, or will

	mu       sync.Mutex
	troubles []string
	received int64    // bytes over the network
	expected []string // parts of troubles that a test provokes
}

// chromiumPath finds the browser. In CI it must be there.
func chromiumPath(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "chromium is not installed (scripts/setup.sh test installs it): the console was NOT tested in a browser"
	if os.Getenv("CI") == "true" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// profile is a directory for chromium, whose helpers write in it for some moments after it has ended.
func profile(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fairlead-chromium-") //nolint:usetesting // See above.
	testwait.Must(t, err)
	t.Cleanup(func() {
		for deadline := time.Now().Add(testwait.Patience); ; time.Sleep(50 * time.Millisecond) {
			err := os.RemoveAll(dir)
			if err == nil {
				return
			}
			if time.Now().After(deadline) {
				t.Error(err)
				return
			}
		}
	})
	return dir
}

// openBrowser starts chromium for the server at home.
func openBrowser(t *testing.T, home string) *browser {
	t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(chromiumPath(t)), chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true), chromedp.UserDataDir(profile(t)),
		// Nothing but the server may be reached, by the page or by the browser itself.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"), chromedp.Flag("disable-component-update", true),
		chromedp.WSURLReadTimeout(testwait.Patience))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, closeTab := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {})) // It complains of events that it does not know.
	t.Cleanup(closeTab)
	u, err := url.Parse(home)
	testwait.Must(t, err)
	b := &browser{t: t, ctx: ctx, home: u}
	chromedp.ListenTarget(ctx, b.listen)
	b.run("start", network.Enable(), cdplog.Enable(), chromedp.ActionFunc(func(ctx context.Context) error {
		// Violations of the content policy are events of the document.
		_, err := page.AddScriptToEvaluateOnNewDocument(`addEventListener("securitypolicyviolation", (e) => console.error("CSP violation", e.violatedDirective, e.blockedURI))`).Do(ctx)
		return err
	}))
	return b
}

// listen notes what must not be: errors, violations, requests to elsewhere.
func (b *browser) listen(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.trouble("exception: " + e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning || e.Type == runtime.APITypeAssert {
			var words []string
			for _, a := range e.Args {
				words = append(words, string(a.Value)+a.Description)
			}
			b.trouble("console." + string(e.Type) + ": " + strings.Join(words, " "))
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.LevelError || e.Entry.Level == cdplog.LevelWarning {
			b.trouble(fmt.Sprintf("log: %s %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		// The icon of a date field is a data URL of the browser's own; the content policy refuses those of pages.
		if u, err := url.Parse(e.Request.URL); err != nil || (u.Host != b.home.Host && u.Scheme != "blob" && u.Scheme != "data") {
			b.trouble("a request leaves the host: " + e.Request.URL)
		}
	case *network.EventWebSocketCreated:
		if u, err := url.Parse(e.URL); err != nil || u.Host != b.home.Host {
			b.trouble("a socket leaves the host: " + e.URL)
		}
	case *network.EventLoadingFinished:
		b.mu.Lock()
		b.received += int64(e.EncodedDataLength)
		b.mu.Unlock()
	}
}

func (b *browser) trouble(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, part := range b.expected {
		if strings.Contains(what, part) {
			return
		}
	}
	b.troubles = append(b.troubles, what)
}

// expect lets troubles with that in them pass.
func (b *browser) expect(parts ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = parts
}

// quiet fails the test if the page has logged an error since the last call.
func (b *browser) quiet(where string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, what := range b.troubles {
		b.t.Errorf("%s: %s", where, what)
	}
	b.troubles = nil
}

func (b *browser) run(what string, actions ...chromedp.Action) {
	b.t.Helper()
	if err := b.try(actions...); err != nil {
		b.t.Fatalf("%s: %v (%s)", what, err, b.seen())
	}
}

func (b *browser) try(actions ...chromedp.Action) error {
	ctx := b.ctx
	if chromedp.FromContext(ctx).Browser != nil { // The first run starts the browser, whose life is not the step's.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, stepTimeout)
		defer cancel()
	}
	return chromedp.Run(ctx, actions...)
}

// seen is what the page shows, for failures.
func (b *browser) seen() string {
	if chromedp.FromContext(b.ctx).Browser == nil {
		return "no browser"
	}
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Second)
	defer cancel()
	var text string
	err := chromedp.Run(ctx, chromedp.Evaluate(`location.href + ": " + document.body.innerText.slice(0, 1500)`, &text))
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Join(err, fmt.Errorf("the page: %s; troubles: %v", text, b.troubles)).Error()
}

// look emulates a screen and a colour scheme.
func (b *browser) look(width int64, scheme string) {
	b.t.Helper()
	b.width, b.scheme = width, scheme
	b.run("emulate", emulation.SetDeviceMetricsOverride(width, 900, 1, width < 600),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
}

// eval evaluates an expression in the page; promises are waited for.
func (b *browser) eval(expression string, into any) {
	b.t.Helper()
	b.run(expression, chromedp.Evaluate(expression, into, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
}

// await polls until an expression is true in the page. A page that is being left takes the poll with it, which begins anew on the next one.
func (b *browser) await(what, expression string) {
	b.t.Helper()
	poll := chromedp.Poll(expression, nil, chromedp.WithPollingInterval(30*time.Millisecond), chromedp.WithPollingTimeout(stepTimeout))
	err := b.try(poll)
	for left(err) {
		err = b.try(poll)
	}
	if err != nil {
		b.t.Fatalf("await %s: %v (%s)", what, err, b.seen())
	}
}

// left reports whether an expression was not answered because its page was left meanwhile. Chromium has three answers for it.
func left(err error) bool {
	if err == nil {
		return false
	}
	for _, says := range []string{"Cannot find context", "Inspected target navigated or closed", "Execution context was destroyed"} {
		if strings.Contains(err.Error(), says) {
			return true
		}
	}
	return false
}

// visit goes to a page of the server and waits until it is shown, with its lists.
func (b *browser) visit(path string) {
	b.t.Helper()
	b.run("visit "+path, chromedp.Navigate(b.home.String()+path))
	b.await(path, `document.querySelector("h1") !== null && document.querySelector("#main[aria-busy]") === null && [...document.querySelectorAll("#main [aria-live=off]")].every((e) => e.hasChildNodes())`)
}

// click presses the button with that text, or the link, within a part of the page.
func (b *browser) click(within, label string) {
	b.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll(%q)].find((e) => e.textContent.trim() === %q && !e.disabled)`, within+" button, "+within+" a", label)
	b.await(label, find+" !== undefined")
	// The press may lead to another page, which takes the answer with it.
	if err := b.try(chromedp.Evaluate(find+".click()", nil)); err != nil && !left(err) {
		b.t.Fatalf("click %s: %v (%s)", label, err, b.seen())
	}
}

// write puts a text into the field of that name.
func (b *browser) write(within, name, text string) {
	b.t.Helper()
	find := fmt.Sprintf("document.querySelector(%q)", fmt.Sprintf("%s [name=%q]", within, name))
	b.await(name, find+" !== null")
	b.eval(fmt.Sprintf("((e) => { e.value = %q; e.dispatchEvent(new Event('input')); e.dispatchEvent(new Event('change')); })(%s)", text, find), nil)
}

// shoot makes a picture of the whole page, if somebody wants to look.
func (b *browser) shoot(name string) {
	b.t.Helper()
	dir := os.Getenv(shotsVariable)
	if dir == "" {
		return
	}
	var picture []byte
	b.run("shoot "+name, chromedp.FullScreenshot(&picture, 100))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600); err != nil {
		b.t.Fatal(err)
	}
}
