package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
)

// busy is how long the page's thread has worked, in seconds.
func (b *browser) busy() float64 {
	b.t.Helper()
	var metrics []*performance.Metric
	b.run("metrics", chromedp.ActionFunc(func(ctx context.Context) (err error) {
		metrics, err = performance.GetMetrics().Do(ctx)
		return err
	}))
	for _, m := range metrics {
		if m.Name == "TaskDuration" {
			return m.Value
		}
	}
	b.t.Fatal("the browser does not tell how long it has worked")
	return 0
}

// TestAuctionPageUnderLoad keeps an auction's page in step with 200 bids a second, and looks at what that costs the browser. It
// measures, so it is not for machines that have other things to do.
func TestAuctionPageUnderLoad(t *testing.T) {
	if os.Getenv(agreeVariable) == "" {
		t.Skip("a measurement: set " + agreeVariable)
	}
	chromiumPath(t)
	s := startScene(t)
	b := openBrowser(t, s.url)
	s.account("shop", 0)
	for i := range 5 {
		s.account(fmt.Sprintf("buyer-%d", i), 1_000_000_000)
	}
	auction := s.newAuction("Under load", "2h")
	s.call("POST", "/v1/auctions/"+auction+"/start", nil)
	b.look(1440, "light")
	b.visit("/console/")
	b.write("form", "key", s.key)
	b.click("form", "Sign in")
	b.await("the overview", `document.querySelector(".tiles") !== null`)
	b.visit("/console/auctions/" + auction)
	b.await("the stream", `document.querySelector("dl")?.textContent.includes("live")`)
	b.run("measure", performance.Enable())
	const (
		rate   = 200
		during = 15 * time.Second
	)
	var bidders sync.WaitGroup
	begun, before := time.Now(), b.busy()
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	n := 0
	for ; time.Since(begun) < during; n++ {
		<-tick.C
		bidders.Go(func() {
			s.try("POST", "/v1/auctions/"+auction+"/bids", obj{"account": fmt.Sprintf("buyer-%d", n%5), "amount": 1000 + 137*n})
		})
	}
	bidders.Wait()
	share := (b.busy() - before) / time.Since(begun).Seconds()
	accepted := s.call(http.MethodGet, "/v1/auctions/"+auction, nil)
	b.await("the page is in step", fmt.Sprintf(`[...document.querySelectorAll("dd")].some((e) => e.textContent.replaceAll(",", "").startsWith("%v live"))`, accepted["seq"]))
	t.Logf("%d bids sent in %s, %v accepted, the page's thread busy for %.0f %% of the time", n, time.Since(begun).Round(time.Second), accepted["total_bids"], 100*share)
	if share > 0.2 {
		t.Errorf("the page takes %.0f %% of a core", 100*share)
	}
	b.quiet("under load")
}
