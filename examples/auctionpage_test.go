//go:build unix

package examples_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// openPage starts the auction's web site, on the server at that address, and returns its own; it must end well when it is
// interrupted.
func openPage(t *testing.T, server string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := program(ctx, "auctionpage", append([]string{"-listen", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(cmd.Env, "FAIRLEAD_URL="+server)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer time.AfterFunc(patience, cancel).Stop()
		defer cancel()
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("auctionpage: %v\n%s", err, complaints.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	address := regexp.MustCompile(`http://\S+/`).FindString(line)
	if err != nil || address == "" {
		t.Fatalf("it printed %q, %v", line, err)
	}
	return address
}

// send sends a request without keeping the connection, and returns status and body.
func send(t *testing.T, req *http.Request) (int, string) {
	t.Helper()
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	testwait.Must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	testwait.Must(t, err)
	return resp.StatusCode, string(body)
}

func bidRequest(t *testing.T, page, name, amount, key string) *http.Request {
	t.Helper()
	form := url.Values{"name": {name}, "amount": {amount}, "key": {key}}
	req, err := http.NewRequestWithContext(testwait.Context(t, patience), http.MethodPost, page+"bids", strings.NewReader(form.Encode()))
	testwait.Must(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return req
}

// TestAuctionPageBids bids as the page's script does, and as other sites' pages would like to.
func TestAuctionPageBids(t *testing.T) {
	t.Parallel()
	page := openPage(t, shared.server.URL(), "-bots", "0")
	bidder, key := "ann-"+uuid.NewString()[:8], uuid.NewString()
	const stands = "Your bid of 15.00 EUR stands, at rank 1."
	for range 2 { // The same key: the same bid.
		if status, body := send(t, bidRequest(t, page, bidder, "1500", key)); status != http.StatusCreated || body != stands {
			t.Errorf("%d %s", status, body)
		}
	}
	for _, refused := range []struct {
		name, amount string
		status       int
		body         string
	}{
		{"bob-" + bidder, "1500", http.StatusConflict, "Somebody has bid exactly that."},
		{"bob-" + bidder, "999", http.StatusUnprocessableEntity, "That is too little."},
		{"bob-" + bidder, "1000001", http.StatusPaymentRequired, "That is more than you have."},
		{"bob-" + bidder, "ten", http.StatusBadRequest, "The amount is no number of cents."},
	} {
		status, body := send(t, bidRequest(t, page, refused.name, refused.amount, ""))
		if status != refused.status || strings.TrimSpace(body) != refused.body {
			t.Errorf("%s of %s: %d %s", refused.amount, refused.name, status, body)
		}
	}
	foreign := bidRequest(t, page, bidder, "2000", "")
	foreign.Header.Set("Sec-Fetch-Site", "cross-site")
	if status, body := send(t, foreign); status != http.StatusForbidden {
		t.Errorf("another site's page: %d %s", status, body)
	}
}

// TestAuctionPageStream leaves the stream and comes back as a browser does.
func TestAuctionPageStream(t *testing.T) {
	t.Parallel()
	page := openPage(t, shared.server.URL(), "-bots", "0")
	if status, body := send(t, bidRequest(t, page, "ann", "1500", "")); status != http.StatusCreated {
		t.Fatalf("%d %s", status, body)
	}
	for last, want := range map[string]string{"": "id: 1\n", "2": "id: 3\n"} {
		ctx, cancel := context.WithCancel(testwait.Context(t, patience))
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, page+"events", http.NoBody)
		testwait.Must(t, err)
		req.Close = true
		if last != "" {
			req.Header.Set("Last-Event-ID", last)
		}
		resp, err := http.DefaultClient.Do(req)
		testwait.Must(t, err)
		for lines := bufio.NewReader(resp.Body); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("after %q: %v", last, err)
			}
			if strings.HasPrefix(line, "id:") {
				if line != want {
					t.Errorf("after %q came %q", last, line)
				}
				break
			}
		}
		cancel()
		_ = resp.Body.Close()
	}
}

// outage stands between the page and the server, and sometimes in the way.
type outage struct {
	*httptest.Server

	away atomic.Bool
}

func newOutage(t *testing.T) *outage {
	t.Helper()
	server, err := url.Parse(shared.server.URL())
	testwait.Must(t, err)
	transport := &http.Transport{}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(server) }, Transport: transport, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	o := &outage{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o.away.Load() {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		o.CloseClientConnections()
		o.Close()
		transport.CloseIdleConnections()
	})
	return o
}

// begin makes the server unreachable, also for those that are connected.
func (o *outage) begin() {
	o.away.Store(true)
	o.CloseClientConnections()
}

func (o *outage) end() { o.away.Store(false) }

// TestAuctionPageInABrowser looks at the page while bots bid, bids, and lets the server be away for a while. The page's
// script complains of an event that it missed.
func TestAuctionPageInABrowser(t *testing.T) {
	t.Parallel()
	way := newOutage(t)
	page := openPage(t, way.URL, "-bots", "2", "-round", "1h")
	tab := openTab(t)
	visitor := "visitor-" + uuid.NewString()[:8]
	shown := func(expression string) chromedp.Action {
		return chromedp.Poll(expression, nil, chromedp.WithPollingTimeout(0))
	} // the step's limit
	steps := []struct {
		what   string
		action chromedp.Action
	}{
		{"open", chromedp.Navigate(page)},
		{"both bots are on the board", shown(`document.querySelectorAll("#board tr").length >= 2`)},
		{"name", chromedp.SendKeys(`[name=name]`, visitor)},
		{"amount", chromedp.SendKeys(`[name=bid]`, "9999.99")},
		{"bid", chromedp.Click(`form button`)},
		{"the answer", shown(`document.querySelector("#answer").textContent.includes("stands, at rank 1")`)},
		{"first on the board", shown(fmt.Sprintf(`document.querySelector("#board tr.wins td:nth-child(2)").textContent === "bidder.%s"`, visitor))},
		{"an outage", chromedp.ActionFunc(func(context.Context) error { way.begin(); return nil })},
		{"it is noticed", shown(`document.querySelector("#state").textContent.startsWith("The connection is lost")`)},
		{"the outage ends", chromedp.ActionFunc(func(context.Context) error { way.end(); return nil })},
		{"it is over", shown(`document.querySelector("#state").textContent.startsWith("Round 1")`)},
		{"clear the clock", chromedp.Evaluate(`document.querySelector("#clock").textContent = ""`, nil)},
		{"the clock runs", shown(`/^\d+ s$/.test(document.querySelector("#clock").textContent)`)},
	}
	for _, step := range steps {
		ctx, cancel := context.WithTimeout(tab.ctx, patience)
		if err := chromedp.Run(ctx, step.action); err != nil {
			t.Errorf("%s: %v", step.what, err)
		}
		cancel()
		if t.Failed() {
			break
		}
	}
	if dir := os.Getenv("FAIRLEAD_SCREENSHOTS"); dir != "" {
		var picture []byte
		if err := chromedp.Run(tab.ctx, chromedp.FullScreenshot(&picture, 100)); err != nil {
			t.Error(err)
		} else if err := os.WriteFile(dir+"/auctionpage.png", picture, 0o600); err != nil {
			t.Error(err)
		}
	}
	for _, what := range tab.seen() {
		t.Error(what)
	}
}

// tab is a tab of a chromium that nobody sees, and what went wrong in it.
type tab struct {
	ctx context.Context //nolint:containedctx // It is the tab.

	mu       sync.Mutex
	troubles []string
}

func openTab(t *testing.T) *tab {
	t.Helper()
	path := ""
	for _, name := range []string{"google-chrome", "chromium-browser", "chromium"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
		}
	}
	if path == "" {
		const missing = "chromium is not installed: the page was NOT tested in a browser"
		if os.Getenv("CI") == "true" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	profile, err := os.MkdirTemp("", "auctionpage-") //nolint:usetesting // The browser's children write for a moment longer than it lives.
	testwait.Must(t, err)
	t.Cleanup(func() {
		for until := time.Now().Add(patience); os.RemoveAll(profile) != nil && time.Now().Before(until); {
			time.Sleep(10 * time.Millisecond)
		}
	})
	allocator, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true), chromedp.UserDataDir(profile),
		// Nothing but this machine may be reached.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"), chromedp.Flag("disable-component-update", true),
		chromedp.WSURLReadTimeout(patience))...)
	t.Cleanup(stop)
	ctx, closeTab := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {})) // It complains of events that it does not know.
	t.Cleanup(closeTab)
	b := &tab{ctx: ctx}
	chromedp.ListenTarget(ctx, b.listen)
	testwait.Must(t, chromedp.Run(ctx, network.Enable(), cdplog.Enable()))
	return b
}

// listen notes exceptions, complaints on the console, and what the content policy has kept from happening.
func (b *tab) listen(event any) {
	var what string
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		what = "exception: " + e.ExceptionDetails.Error()
	case *runtime.EventConsoleAPICalled:
		what = "console: " + string(e.Type)
	case *cdplog.EventEntryAdded:
		if strings.Contains(e.Entry.Text, "502") || strings.Contains(e.Entry.Text, "ERR_INCOMPLETE_CHUNKED_ENCODING") {
			return // The outage.
		}
		what = fmt.Sprintf("log: %s %s", e.Entry.Text, e.Entry.URL)
	default:
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.troubles = append(b.troubles, what)
}

func (b *tab) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.troubles
}
