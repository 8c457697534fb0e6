//go:build unix

package main

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/sim/wire"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestConsoleInTrouble has an open console whose server has lost its database, whose request gets no answer, whose auction has no server,
// and whose server drains.
func TestConsoleInTrouble(t *testing.T) {
	t.Parallel()
	proxy, through := wire.Through(t, pgtest.Server(t).URL(), wire.Options{})
	s, server, start := startProcess(t, through)
	s.account("shop", 0)
	for i := range 5 {
		s.account(fmt.Sprintf("buyer-%d", i), 10_000_000)
	}
	b := s.opensConsole("net::ERR_", "WebSocket", "Failed to load", "Failed to fetch", "503")

	// The server answers, and its database does not.
	b.visit("/console/accounts")
	b.await("the list", `document.body.textContent.includes("buyer-4")`)
	proxy.Refuse(true)
	b.await("the banner", shownAway+` && document.getElementById("away").textContent.includes("The server answers, but it can't work")`)
	b.await("what is shown is said to be old", `/Its last answer was at \d\d:\d\d:\d\d/.test(document.getElementById("away").textContent)`)
	b.await("the list is marked", `document.querySelector(".stale .stale-note")?.textContent.startsWith("Not read since")`)
	b.everywhere("no-database")
	proxy.Refuse(false)
	b.await("it is back", `document.getElementById("away").hidden && document.querySelector(".stale") === null`)

	s.loses(b)

	// An auction's page goes on with its clock, says that nothing comes, and follows again.
	auction := s.newAuction("Alone", "30m")
	s.call(http.MethodPost, "/v1/auctions/"+auction+"/start", nil)
	s.bid(auction, 2)
	b.visit("/console/auctions/" + auction)
	live := func(is string) string {
		return fmt.Sprintf(`[...document.querySelectorAll("main [role=status]")].some((e) => e.textContent === %q)`, is)
	}
	b.await("the stream", live("live")+` && document.querySelectorAll(".leaders tbody tr").length === 2`)
	testwait.Must(t, server.Kill(testwait.Context(t, patience)))
	b.await("the banner, and the stream that is gone", shownAway+" && "+live("reconnecting…"))
	b.eval(`window.clock = document.querySelector(".clock").textContent`, nil)
	b.await("the clock goes on, and the board stays", `document.querySelector(".clock").textContent !== window.clock && document.querySelectorAll(".leaders tbody tr").length === 2`)
	b.everywhere("away-auction")
	start()
	b.await("the stream is back", `document.getElementById("away").hidden && `+live("live"))
	s.call("POST", "/v1/auctions/"+auction+"/bids", obj{"account": "buyer-4", "amount": 900_000})
	b.await("the bid", `document.querySelectorAll(".leaders tbody tr").length === 3`)

	// A server that is asked to end does so under an open console with a stream.
	code, err := server.Terminate(testwait.Context(t, patience))
	testwait.Must(t, err)
	if code != 0 {
		t.Errorf("the server has ended with %d", code)
	}
	b.await("the banner", shownAway)
	start()
	b.await("the stream is back", `document.getElementById("away").hidden && `+live("live"))
}

// loses takes an answer from the browser that the server has given, after a while without one, and asks again.
func (s *scene) loses(b *browser) {
	s.t.Helper()
	campaign := s.newCampaign("Asked twice", 3)
	b.visit("/console/campaigns/" + campaign)
	b.click("main", "Open the sale")
	b.await("the dialog", `document.querySelector("dialog[open]") !== null`)
	var lost atomic.Int32
	listening, stop := context.WithCancel(b.ctx)
	defer stop()
	told := make(chan struct{})
	chromedp.ListenTarget(listening, func(event any) {
		if e, ok := event.(*fetch.EventRequestPaused); ok {
			lost.Add(1)
			go func() {
				select {
				case <-told:
				case <-listening.Done():
				}
				_ = chromedp.Run(b.ctx, fetch.FailRequest(e.RequestID, network.ErrorReasonConnectionReset))
			}()
		}
	})
	b.run("take answers", fetch.Enable().WithPatterns([]*fetch.RequestPattern{{URLPattern: "*/publish", RequestStage: fetch.RequestStageResponse}}))
	buttons := `[...document.querySelectorAll("dialog[open] button")].map((e) => e.textContent).join() === `
	b.await("the way out", buttons+`"Keep the draft,Open the sale"`)
	b.eval(`document.querySelector("dialog[open] button[type=submit]").click()`, nil)
	b.await("there is no answer yet", buttons+`"Close,Open the sale" && document.querySelector("dialog").textContent.includes("There is no answer yet")`)
	close(told)
	b.await("no promise to keep the draft", buttons+`"Close,Ask again"`)
	b.await("nobody knows", `document.querySelector("dialog[open] button[type=submit]")?.textContent === "Ask again" && document.querySelector("dialog").textContent.includes("It may have been done")`)
	b.accessible(s.t, "no answer")
	b.shoot("unanswered")
	b.run("let answers through", fetch.Disable())
	b.click("dialog", "Ask again")
	b.await("it is done", `document.querySelector("dialog") === null && document.querySelector(".page-head .badge")?.textContent === "active"`)
	if lost.Load() != 1 {
		s.t.Errorf("%d answers were lost", lost.Load())
	}
	if actions := s.audited(campaign); fmt.Sprint(actions) != "[campaign.publish campaign.create]" {
		s.t.Errorf("the audit log has %v", actions)
	}
}
