package fairlead

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon/beacontest"
	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog"
	"github.com/fairlead-dev/fairlead/translog/audit"
)

// TestAudited lets the auditor, which shares no code with the server, judge the public log of one.
func TestAudited(t *testing.T) {
	ctx := t.Context()
	relay := beacontest.New(t)
	chain, err := json.Marshal(relay.Chain())
	testwait.Must(t, err)
	o := Options{
		DatabaseURL: pgtest.Server(t).URL(), Data: t.TempDir(), AdminKey: strings.Repeat("k", 32), LogOrigin: "audited.test/log",
		BeaconChain: filepath.Join(t.TempDir(), "chain.json"), BeaconRelays: []string{relay.URL()}, BeaconLead: time.Second,
	}
	testwait.Must(t, os.WriteFile(o.BeaconChain, chain, 0o600))
	s, err := Open(ctx, o)
	testwait.Must(t, err)
	t.Cleanup(func() { testwait.Check(t, s.Close(testwait.Context(t, testwait.Patience))) })
	web := httptest.NewServer(s.Handler())
	t.Cleanup(web.Close)
	c := s.Client()
	for _, id := range []string{"seller", "ann", "bob", "cyd"} {
		testwait.Must(t, testwait.Err(c.CreateAccount(ctx, client.CreateAccountRequest{ID: id, Currency: "EUR"})))
		if id != "seller" {
			testwait.Must(t, testwait.Err(c.Deposit(ctx, client.MovementRequest{Account: id, Amount: 10_000})))
		}
	}

	campaign := func(draw client.CreateCampaignRequestDraw, sold int) string {
		t.Helper()
		made, err := c.CreateCampaign(ctx, client.CreateCampaignRequest{
			Name: "a \"draw\" </script> \u2028", Currency: "EUR", Beneficiary: "seller", BaseLength: 3, Price: 10, Draw: draw,
			Prizes: []client.PrizeRequest{{Name: "one", Layer: 2, Quantity: 1}, {Name: "many \U0001f600", Quantity: 4}},
		})
		testwait.Must(t, err)
		testwait.Must(t, testwait.Err(c.PublishCampaign(ctx, made.ID)))
		for i := range sold {
			testwait.Must(t, testwait.Err(c.Buy(ctx, made.ID, client.PurchaseRequest{Account: []string{"ann", "bob"}[i%2]})))
		}
		return made.ID
	}
	campaign("instant", 6)
	campaign("beacon", 6)
	campaign("instant", 3)
	testwait.Must(t, testwait.Err(c.CancelCampaign(ctx, campaign("beacon", 2))))

	for _, cancelled := range []bool{false, true} {
		a, err := c.CreateAuction(ctx, client.CreateAuctionRequest{
			Title: "a \"lamp\"", Currency: "EUR", Seller: "seller", MinBid: 5, MinIncrement: 2,
			Rounds:    []client.RoundRequest{{Winners: 1, Duration: "1s"}, {Winners: 2, Duration: "1s"}},
			AntiSnipe: client.AntiSnipeRequest{Window: "1s", Extension: "100ms", MaxExtensions: 3},
		})
		testwait.Must(t, err)
		testwait.Must(t, testwait.Err(c.StartAuction(ctx, a.ID)))
		for i, bidder := range []string{"ann", "bob", "cyd", "ann", "cyd"} {
			// On a slow machine the round may be over.
			if _, err := c.Bid(ctx, a.ID, client.BidRequest{Account: bidder, Amount: int64(20 + 3*i)}); err != nil && client.CodeOf(err) != "not_active" {
				t.Fatal(err)
			}
		}
		if cancelled {
			if _, err := c.CancelAuction(ctx, a.ID); err != nil && client.CodeOf(err) != "bad_transition" {
				t.Fatal(err)
			}
		}
	}
	testwait.Must(t, testwait.Err(c.CreateMultidraw(ctx, client.CreateMultidrawRequest{LockKey: "range", Count: 2345, Range: &client.RangeRequest{Min: -3, Max: 1 << 40}})))
	testwait.Must(t, testwait.Err(c.CreateMultidraw(ctx, client.CreateMultidrawRequest{
		LockKey: "prizes", Count: 99, Prizes: []client.WeightedPrize{{ID: "a", Name: "A", Weight: 3, Value: -1}, {ID: "b", Name: "B", Weight: 0}, {ID: "c", Name: "C", Weight: 9}},
	})))

	key, err := translog.ReadKey(LogKeyFile(o.Data))
	testwait.Must(t, err)
	auditor, err := audit.New(audit.Options{URL: web.URL, Key: key.Verifier(), Chains: []string{relay.Chain().Hash()}, State: filepath.Join(t.TempDir(), "state")})
	testwait.Must(t, err)
	t.Cleanup(auditor.Close)
	testwait.Eventually(t, testwait.Patience, "a log with all of it", func() bool {
		r, err := auditor.Run(ctx)
		testwait.Must(t, err)
		if r.Finding != nil {
			t.Fatal(r.Finding)
		}
		n := r.Counts
		return n.Campaigns == 4 && n.Draws == 2 && n.Winners == 10 && n.Auctions == 2 && n.Settled == 2 && n.Multidraws == 2 && n.Redrawn == 2444 && n.Closings > 0
	})
}
