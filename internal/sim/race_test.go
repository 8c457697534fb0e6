//go:build unix

package sim_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/sim"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

const (
	buyers    = 500
	positions = 210 // a triangle of 20 layers
)

// triangle is the campaign of the race.
func triangle(name, beneficiary string) client.CreateCampaignRequest {
	q := small(name, beneficiary, 20, 10)
	q.Prizes = []client.PrizeRequest{{Name: "first", Quantity: 1}, {Name: "second", Quantity: 3}, {Name: "base", Layer: 20, Quantity: 5}}
	return q
}

// small is a campaign of one prize.
func small(name, beneficiary string, length, price int64) client.CreateCampaignRequest {
	return client.CreateCampaignRequest{
		Name: name, BaseLength: length, Price: price, Currency: "SIM", Beneficiary: beneficiary,
		Prizes: []client.PrizeRequest{{Name: "only", Quantity: 1}},
	}
}

func names(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return all
}

// race lets every account buy one position of any layer at the same moment and returns the answers.
func race(ctx context.Context, client *sim.Client, campaign, keys string, accounts []string) []sim.Answer {
	ops := make([]*sim.Op, len(accounts))
	for i, account := range accounts {
		ops[i] = sim.NewPurchase(fmt.Sprintf("%s-%d", keys, i), campaign, account, 0)
	}
	return storm(ctx, client, ops)
}

// checkRace counts the answers of a race: as many sold as there are positions, all others told that it is sold out.
func checkRace(t *testing.T, answers []sim.Answer) {
	t.Helper()
	sold, refused := 0, 0
	places := map[string]bool{}
	for i, a := range answers {
		switch {
		case a.Err == nil && a.Status == http.StatusCreated:
			var p client.Purchase
			testwait.Check(t, a.JSON(&p))
			places[fmt.Sprintf("%d/%d", p.Position.Layer, p.Position.Number)] = true
			sold++
		case a.Status == http.StatusConflict && a.Code() == "sold_out":
			refused++
		default:
			t.Errorf("buyer %d: %v", i, a)
		}
	}
	if sold != positions || refused != buyers-positions || len(places) != positions {
		t.Errorf("%d sold at %d places, %d refused; want %d and %d", sold, len(places), refused, positions, buyers-positions)
	}
}

// draw is what the interface tells of a draw.
type draw struct {
	Campaign string `json:"campaign"`
	Winners  []struct {
		Prize    string `json:"prize"`
		Account  string `json:"account"`
		Position struct {
			Layer  int `json:"layer"`
			Number int `json:"number"`
		} `json:"position"`
	} `json:"winners"`
}

// checkDrawn asks for the draw, which must be there at once, in each way twice, with the same answer.
func checkDrawn(t *testing.T, client *sim.Client, campaign string, winners int) {
	t.Helper()
	first := answerTo(t, client, "/v1/campaigns/"+campaign+"/draw")
	if first.Status != http.StatusOK {
		t.Fatalf("draw of %s: %v", campaign, first)
	}
	var d draw
	testwait.Must(t, first.JSON(&d))
	if d.Campaign != campaign || len(d.Winners) != winners {
		t.Errorf("draw of %s: %d winners, want %d: %s", campaign, len(d.Winners), winners, first.Body)
	}
	again := answerTo(t, client, "/v1/campaigns/"+campaign+"/draw")
	if string(again.Body) != string(first.Body) {
		t.Errorf("two draws of %s: %s and %s", campaign, first.Body, again.Body)
	}
	asked, err := client.Settle(t.Context(), sim.NewOp(sim.KindDraw, "/v1/campaigns/"+campaign+"/draw", "draw", nil))
	if err != nil || asked.Status != http.StatusOK {
		t.Errorf("asking for the draw of %s: %v %v", campaign, asked, err)
	}
	var same draw
	if err := asked.JSON(&same); err != nil || !slices.Equal(same.Winners, d.Winners) {
		t.Errorf("asked for, the draw of %s is %s, not %s", campaign, asked.Body, first.Body)
	}
}

// TestFiveHundredBuyersRaceForTwoHundredAndTenPositions is the main job: exactly 210 sold, 290 told so, one draw that
// anyone can verify, books that balance; again and again on one server.
func TestFiveHundredBuyersRaceForTwoHundredAndTenPositions(t *testing.T) {
	beside(t)
	database := newDatabase(t)
	server := newServer(t, database)
	client, history := newClient(t, server)
	accounts := names("buyer", buyers)
	testwait.Must(t, sim.OpenAccounts(testwait.Context(t, patience), client, append(accounts, "house"), 1_000_000))
	var times []time.Duration
	for run := range testwait.Count(2, 100) {
		name := fmt.Sprintf("race-%d", run)
		campaign, err := sim.Launch(testwait.Context(t, patience), client, name, triangle(name, "house"))
		testwait.Must(t, err)
		began := time.Now()
		answers := race(testwait.Context(t, patience), client, campaign.ID, name, accounts)
		times = append(times, time.Since(began))
		checkRace(t, answers)
		checkDrawn(t, client, campaign.ID, 9)
		verify(t, client, campaign.ID, campaign.Commitment)
		if t.Failed() {
			break
		}
	}
	slices.Sort(times)
	t.Logf("%d races of %d on %d: median %v, longest %v", len(times), buyers, positions, times[len(times)/2], times[len(times)-1])
	closeBooks(t, database, client, history, 10)
}

// TestTwoBuyersOnTheLastTwoPositions checks the narrowest race: both succeed, one draw, and it is there as soon as the
// answer that sold the last position is.
func TestTwoBuyersOnTheLastTwoPositions(t *testing.T) {
	beside(t)
	database := newDatabase(t)
	server := newServer(t, database)
	client, history := newClient(t, server)
	testwait.Must(t, sim.OpenAccounts(testwait.Context(t, patience), client, []string{"ann", "bob", "house"}, 1_000_000))
	for run := range testwait.Count(10, 200) {
		name := fmt.Sprintf("last-%d", run)
		campaign, err := sim.Launch(testwait.Context(t, patience), client, name, small(name, "house", 2, 10))
		testwait.Must(t, err)
		if a, err := client.Settle(testwait.Context(t, patience), sim.NewPurchase(name, campaign.ID, "ann", 0)); err != nil || a.Status != http.StatusCreated {
			t.Fatalf("the first of three: %v %v", a, err)
		}
		begin := make(chan struct{})
		var group sync.WaitGroup
		for _, buyer := range []string{"ann", "bob"} {
			group.Go(func() {
				<-begin
				a := decided(t.Context(), client, sim.NewPurchase(name+"-"+buyer, campaign.ID, buyer, 0))
				if a.Err != nil || a.Status != http.StatusCreated {
					t.Errorf("run %d: %s: %v", run, buyer, a)
					return
				}
				// Whoever sees the campaign full sees its draw.
				var now struct {
					Sold   int    `json:"sold_positions"`
					Total  int    `json:"total_positions"`
					Status string `json:"status"`
				}
				if err := client.GetJSON(t.Context(), "/v1/campaigns/"+campaign.ID, &now); err != nil {
					t.Error(err)
				} else if now.Sold == now.Total {
					if d := answerTo(t, client, "/v1/campaigns/"+campaign.ID+"/draw"); now.Status != "completed" || d.Status != http.StatusOK {
						t.Errorf("run %d: sold out, %s, draw: %v", run, now.Status, d)
					}
				}
			})
		}
		close(begin)
		group.Wait()
		checkDrawn(t, client, campaign.ID, 1)
		if t.Failed() {
			break
		}
	}
	closeBooks(t, database, client, history, 5)
}

// TestBuyersRaceOnTwoServers spreads the race over two servers on one database.
func TestBuyersRaceOnTwoServers(t *testing.T) {
	beside(t)
	database := newDatabase(t)
	first := newServer(t, database)
	client, history := newClient(t, first, newServer(t, database))
	accounts := names("buyer", buyers)
	testwait.Must(t, sim.OpenAccounts(testwait.Context(t, patience), client, append(accounts, "house"), 1_000_000))
	for run := range testwait.Count(1, 50) {
		name := fmt.Sprintf("race-%d", run)
		campaign, err := sim.Launch(testwait.Context(t, patience), client, name, triangle(name, "house"))
		testwait.Must(t, err)
		checkRace(t, race(testwait.Context(t, patience), client, campaign.ID, name, accounts))
		checkDrawn(t, client, campaign.ID, 9)
		verify(t, client, campaign.ID, campaign.Commitment)
		if t.Failed() {
			break
		}
	}
	closeBooks(t, database, client, history, 10)
}
