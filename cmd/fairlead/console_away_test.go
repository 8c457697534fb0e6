//go:build unix

package main

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"syscall"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// shownAway holds while the banner says that the server is away.
const shownAway = `(!document.getElementById("away").hidden && document.body.classList.contains("server-away"))`

// patience bounds how long a server may take to start or to end.
const patience = testwait.Patience

// TestConsoleWithoutServer stops, kills and restarts a server under an open console, which says at each moment what is so.
func TestConsoleWithoutServer(t *testing.T) {
	t.Parallel()
	database := pgtest.Server(t).URL()
	s, server, start := startProcess(t, database)
	s.account("shop", 0)
	campaign := s.newCampaign("Seen from outside", 3)
	s.call(http.MethodPost, "/v1/campaigns/"+campaign+"/publish", nil)
	b := s.opensConsole("net::ERR_", "WebSocket", "Failed to load", "Failed to fetch")
	b.await("a look after the first", `document.querySelectorAll(".tile .value")[1].textContent.includes("a second")`)

	// It hangs: nothing is refused, and nothing is answered.
	testwait.Must(t, server.Signal(syscall.SIGSTOP))
	b.await("the banner", shownAway+` && document.getElementById("away").textContent.includes("did not answer within")`)
	var age string
	b.eval(`window.age = document.querySelector(".tile time").textContent`, &age)
	b.await("ages go on", `document.querySelector(".tile time").textContent !== window.age`)
	b.await("grey tiles", `getComputedStyle(document.querySelector(".tile")).filter === "grayscale(1)"`)
	b.await("the time of the last answer", `/Its last answer was at \d\d:\d\d:\d\d, \d+ s ago/.test(document.getElementById("away").textContent)`)
	b.click("#away", "Retry")
	b.await("it is tried", `document.getElementById("away").textContent.includes("Trying…")`)
	for _, look := range viewports() {
		b.look(look.width, look.scheme)
		b.properly(fmt.Sprintf("away-overview-%d-%s", look.width, look.scheme))
	}
	testwait.Must(t, server.Signal(syscall.SIGCONT))
	b.await("it is back", `!`+shownAway+` && document.getElementById("away").hidden`)
	b.await("the page goes on", `/, \d s ago/.test(document.querySelector(".read").textContent)`)

	// It is dead. A page whose script is not here yet can't be shown, and comes by itself when the server is back.
	testwait.Must(t, server.Kill(testwait.Context(t, patience)))
	b.await("the banner", shownAway+` && document.getElementById("away").textContent.includes("can't be reached")`)
	b.click("nav", "Sagas, in doubt")
	b.await("the script is missed", `document.querySelector("main").textContent.includes("The script of this page can't be fetched")`)
	for _, look := range viewports() {
		b.look(look.width, look.scheme)
		b.shoot(fmt.Sprintf("away-script-%d-%s", look.width, look.scheme))
		b.accessible(t, "the missed script")
	}
	start()
	b.comes("the page", `document.querySelector("h1")?.textContent.startsWith("Sagas") && document.getElementById("away").hidden`)

	// A list follows what others do.
	b.visit("/console/accounts")
	b.await("the list", `document.body.textContent.includes("shop")`)
	s.account("newcomer", 0)
	b.await("the newcomer", `document.body.textContent.includes("newcomer")`)

	// The session ends behind the page's back.
	conn := pgtest.Connect(t, database)
	_, err := conn.Exec(t.Context(), "DELETE FROM console_sessions")
	testwait.Must(t, err)
	b.expect("net::ERR_", "401")
	b.await("the sign-in", `document.getElementById("gate").textContent.includes("Your session has ended")`)
	b.properly("session-ended")
	b.write("form", "key", s.key)
	b.click("form", "Sign in")
	b.await("the same page", `document.querySelector("h1")?.textContent === "Accounts" && document.body.textContent.includes("newcomer")`)

	// The page comes, its script does not.
	b.run("block", network.SetBlockedURLs([]string{"*/js/ui.js"}))
	b.run("visit", chromedp.Navigate(s.url+"/console/"))
	b.await("what the page says without its script", `getComputedStyle(document.querySelector(".unloaded") ?? document.body).visibility === "visible" && document.querySelector(".unloaded") !== null`)
	for _, look := range viewports() {
		b.look(look.width, look.scheme)
		b.shoot(fmt.Sprintf("away-unloaded-%d-%s", look.width, look.scheme))
	}
	b.run("unblock", network.SetBlockedURLs([]string{}))
	b.click("main", "Load it again")
	b.comes("the overview", `document.querySelector(".tiles") !== null && document.querySelector(".unloaded") === null`)

	// A public page says it, too.
	b.visit("/p/campaigns/" + campaign)
	b.await("the campaign", `document.body.textContent.includes("0 of 6 sold")`)
	testwait.Must(t, server.Kill(testwait.Context(t, patience)))
	b.await("the banner", shownAway)
	for _, look := range viewports() {
		b.look(look.width, look.scheme)
		b.properly(fmt.Sprintf("away-public-%d-%s", look.width, look.scheme))
	}
	start()
	b.await("it is back", `document.getElementById("away").hidden`)
}

// startProcess starts a server on a database as a process of its own, which tests can stop, kill, and start again.
func startProcess(t *testing.T, database string) (s *scene, server *sim.Server, start func()) {
	t.Helper()
	binary, err := exec.LookPath("fairlead") // testscript has put it there: this test's own binary.
	testwait.Must(t, err)
	chromiumPath(t)
	server = sim.NewServer(sim.ServerOptions{
		Binary: binary, DataDir: t.TempDir(), DatabaseURL: database, Args: []string{"--listen", fmt.Sprintf("127.0.0.1:%d", pgtest.Port(t))},
	})
	start = func() {
		t.Helper()
		_, err := server.Start(testwait.Context(t, patience))
		testwait.Must(t, err)
	}
	start()
	t.Cleanup(func() { _ = server.Kill(context.Background()) })
	return &scene{t: t, url: server.URL(), key: sim.AdminKey}, server, start
}

// opensConsole signs in to the console, in a browser that may have troubles with those in them.
func (s *scene) opensConsole(troubles ...string) *browser {
	s.t.Helper()
	b := openBrowser(s.t, s.url)
	b.expect(troubles...)
	b.look(1440, "light")
	b.visit("/console/")
	b.write("form", "key", s.key)
	b.click("form", "Sign in")
	b.await("the overview", `document.querySelector(".tile time") !== null`)
	return b
}

// comes waits for what holds on a page that loads itself again meanwhile.
func (b *browser) comes(what, expression string) {
	b.t.Helper()
	testwait.Eventually(b.t, stepTimeout, what+" comes", func() bool {
		ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
		defer cancel()
		var ok bool
		return chromedp.Run(ctx, chromedp.Evaluate(expression, &ok)) == nil && ok
	})
}
