//go:build unix

package explore

import (
	"context"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/sim"
)

// servers are two servers, of which the first or the second is tried first.
func servers(first int) []string {
	if first%2 == 0 {
		return []string{"s1", "s2"}
	}
	return []string{"s2", "s1"}
}

// lastPosition has three buyers want the last two positions, by two servers.
func lastPosition() Scenario {
	var campaign client.Campaign
	return Scenario{
		Servers: 2, Kills: true,
		Open: func(ctx context.Context, c *sim.Client) error {
			if err := sim.OpenAccounts(ctx, c, []string{"ann", "bob", "cyd", "house"}, 100); err != nil {
				return err
			}
			var err error
			campaign, err = sim.Launch(ctx, c, "last", client.CreateCampaignRequest{
				Name: "last", BaseLength: 2, Price: 10, Currency: "SIM", Beneficiary: "house", Prizes: []client.PrizeRequest{{Name: "only", Quantity: 1}},
			})
			if err != nil {
				return err
			}
			_, err = c.Settle(ctx, sim.NewPurchase("first", campaign.ID, "ann", 0))
			return err
		},
		Play: func(ctx context.Context, w *World) {
			for i, buyer := range []string{"ann", "bob", "cyd"} {
				c := w.Client(buyer, servers(i)...)
				w.Settle(ctx, c, sim.NewPurchase("buy-"+buyer, campaign.ID, buyer, 0))
			}
		},
		Check: func(ctx context.Context, w *World, db *pgx.Conn) error {
			var sold, draws int
			err := db.QueryRow(ctx, `SELECT (SELECT count(*) FROM purchases WHERE campaign = $1), (SELECT count(*) FROM draws WHERE campaign = $1)`, campaign.ID).Scan(&sold, &draws)
			if err == nil && (sold != 3 || draws != 1 || w.Count("buy-", http.StatusCreated) != 2 || w.Count("buy-", http.StatusConflict) != 1) {
				err = fmt.Errorf("%d positions of 3 were sold, with %d draws, and %d buyers of 3 were told that they have one", sold, draws, w.Count("buy-", http.StatusCreated))
			}
			return err
		},
	}
}

// accounts has both servers remember the same accounts, and change them in turn: each has to notice what the other did.
func accounts() Scenario {
	return Scenario{
		Servers: 2, Kills: true,
		Open: func(ctx context.Context, c *sim.Client) error {
			return sim.OpenAccounts(ctx, c, []string{"ann", "bob"}, 50)
		},
		Play: func(ctx context.Context, w *World) {
			for i := range 2 {
				name := fmt.Sprintf("c%d", i+1)
				c := w.Client(name, servers(i)...)
				from, to := "ann", "bob"
				if i == 1 {
					from, to = to, from
				}
				w.Settle(ctx, c,
					sim.NewTransfer(name+"-1", from, to, 40),
					sim.NewTransfer(name+"-2", from, to, 40),
					sim.NewDeposit(name+"-3", "ann", 5),
				)
			}
		},
	}
}

// oneKey has clients send the same command at the same time to both servers, as a client does that lost its patience.
func oneKey() Scenario {
	return Scenario{
		Servers: 2, Kills: true,
		Open: func(ctx context.Context, c *sim.Client) error {
			return sim.OpenAccounts(ctx, c, []string{"ann", "bob"}, 50)
		},
		Play: func(ctx context.Context, w *World) {
			transfer, hold := sim.NewTransfer("transfer", "ann", "bob", 30), sim.NewHold("hold", "ann", 20)
			for i := range 2 {
				w.Settle(ctx, w.Client(fmt.Sprintf("c%d", i+1), servers(i)...), transfer, hold)
			}
		},
		Check: func(_ context.Context, w *World, _ *pgx.Conn) error {
			if n := w.Count("", http.StatusCreated); n != 2 {
				return fmt.Errorf("%d commands of two were done", n)
			}
			return nil
		},
	}
}
