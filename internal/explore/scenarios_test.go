//go:build unix

package explore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/sim"
)

// patience is for how long clients wait for an answer where there are outages: longer than a server that was cut off needs until it gives up, and
// can say so.
const patience = 30 * time.Second

// servers are two servers, of which the first or the second is tried first.
func servers(first int) []string {
	if first%2 == 0 {
		return []string{"s1", "s2"}
	}
	return []string{"s2", "s1"}
}

// expect settles commands one after the other, each by one server, and wants their statuses.
func expect(ctx context.Context, w *World, all ...expected) error {
	for _, e := range all {
		if _, err := w.Client("warm", e.server).Expect(ctx, e.op, e.status); err != nil {
			return err
		}
	}
	return nil
}

// expected is a command for a server, and the status of its answer.
type expected struct {
	server string
	op     *sim.Op
	status int
}

// launch puts a campaign of six positions on sale.
func launch(ctx context.Context, c *sim.Client, name string) (client.Campaign, error) {
	return sim.Launch(ctx, c, name, client.CreateCampaignRequest{
		Name: name, BaseLength: 3, Price: 10, Currency: "SIM", Beneficiary: "house", Prizes: []client.PrizeRequest{{Name: "only", Quantity: 1}},
	})
}

// lastPosition has three buyers want the last two positions, by two servers that both know of earlier sales.
func lastPosition() Scenario {
	var campaign client.Campaign
	return Scenario{
		Servers: 2, Kills: true, Stall: 3 * time.Second, Outage: 12 * time.Second,
		Open: func(ctx context.Context, c *sim.Client) error {
			if err := sim.OpenAccounts(ctx, c, []string{"ann", "bob", "cyd", "house"}, 100); err != nil {
				return err
			}
			var err error
			if campaign, err = launch(ctx, c, "last"); err != nil {
				return err
			}
			_, err = c.Settle(ctx, sim.NewPurchase("first", campaign.ID, "ann", 0))
			return err
		},
		Warm: func(ctx context.Context, w *World) error {
			return expect(ctx, w,
				expected{"s1", sim.NewPurchase("warm-1", campaign.ID, "ann", 0), http.StatusCreated},
				expected{"s2", sim.NewPurchase("warm-2", campaign.ID, "bob", 0), http.StatusCreated},
				expected{"s1", sim.NewPurchase("warm-3", campaign.ID, "cyd", 0), http.StatusCreated})
		},
		Play: func(ctx context.Context, w *World) {
			for i, buyer := range []string{"ann", "bob", "cyd"} {
				c := w.Client(buyer, servers(i)...)
				c.LimitAttempts(patience)
				w.Settle(ctx, c, sim.NewPurchase("buy-"+buyer, campaign.ID, buyer, 0), sim.NewPurchase("buy-"+buyer+"-again", campaign.ID, buyer, 0))
			}
		},
		Check: func(ctx context.Context, w *World, db *pgx.Conn) error {
			var sold, draws int
			err := db.QueryRow(ctx, `SELECT (SELECT count(*) FROM purchases WHERE campaign = $1), (SELECT count(*) FROM draws WHERE campaign = $1)`, campaign.ID).Scan(&sold, &draws)
			if err == nil && (sold != 6 || draws != 1 || w.Count("buy-", http.StatusCreated) != 2 || w.Count("buy-", http.StatusConflict) != 4) {
				err = fmt.Errorf("%d positions of 6 were sold, with %d draws, and of 6 purchases of the last two %d were made", sold, draws, w.Count("buy-", http.StatusCreated))
			}
			return err
		},
	}
}

// acquainted has both servers remember the same accounts in their latest version: a refusal changes none.
func acquainted(ctx context.Context, w *World) error {
	return expect(ctx, w,
		expected{"s1", sim.NewTransfer("warm-1", "ann", "bob", 1), http.StatusCreated},
		expected{"s1", sim.NewTransfer("warm-2", "cyd", "ann", 1), http.StatusPaymentRequired},
		expected{"s2", sim.NewTransfer("warm-3", "ann", "bob", 1000), http.StatusPaymentRequired},
		expected{"s2", sim.NewTransfer("warm-4", "cyd", "ann", 1), http.StatusPaymentRequired})
}

// openPurses opens accounts, of which cyd's is empty.
func openPurses(ctx context.Context, c *sim.Client) error {
	return errors.Join(sim.OpenAccounts(ctx, c, []string{"ann", "bob"}, 50), sim.OpenAccounts(ctx, c, []string{"cyd"}, 0))
}

// accounts has both servers remember the same accounts, and change them in turn: each has to notice what the other did.
func accounts() Scenario {
	return Scenario{
		Servers: 2, Kills: true, Stall: 3 * time.Second, Outage: 12 * time.Second,
		Open: openPurses, Warm: acquainted,
		Play: func(ctx context.Context, w *World) {
			for i := range 2 {
				name := fmt.Sprintf("c%d", i+1)
				c := w.Client(name, servers(i)...)
				c.LimitAttempts(patience)
				from, to := "ann", "bob"
				if i == 1 {
					from, to = to, from
				}
				w.Settle(ctx, c,
					sim.NewTransfer(name+"-1", from, to, 40),
					sim.NewTransfer(name+"-2", from, to, 40),
					sim.NewDeposit(name+"-3", "ann", 5),
					sim.NewTransfer(name+"-4", from, to, 30),
				)
			}
			w.Settle(ctx, w.Client("c3", servers(1)...), sim.NewDeposit("c3-1", "cyd", 30), sim.NewTransfer("c3-covered", "cyd", "ann", 20))
		},
		Check: func(_ context.Context, w *World, _ *pgx.Conn) error {
			if w.Count("c3-covered", http.StatusCreated) != 1 {
				return errors.New("a transfer was refused although a deposit that had been acknowledged covers it")
			}
			if done, refused := w.Count("c", http.StatusCreated), w.Count("c", http.StatusPaymentRequired); done+refused != 10 {
				return fmt.Errorf("of 10 commands %d were done and %d refused for want of money", done, refused)
			}
			return nil
		},
	}
}

// oneKey has clients send the same commands at the same time to both servers, as a client does that lost its patience.
func oneKey() Scenario {
	return Scenario{
		Servers: 2, Kills: true, Stall: 3 * time.Second,
		Open: openPurses, Warm: acquainted,
		Play: func(ctx context.Context, w *World) {
			all := []*sim.Op{
				sim.NewTransfer("transfer", "ann", "bob", 30), sim.NewHold("hold", "bob", 20), sim.NewDeposit("deposit", "cyd", 5), sim.NewTransfer("refused", "cyd", "ann", 500),
			}
			for i := range 2 {
				w.Settle(ctx, w.Client(fmt.Sprintf("c%d", i+1), servers(i)...), all...)
			}
		},
		Check: func(_ context.Context, w *World, _ *pgx.Conn) error {
			if n := w.Count("", http.StatusCreated); n != 3 {
				return fmt.Errorf("%d commands of three were done", n)
			}
			return nil
		},
	}
}
