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

// manyAuctions has a bidder each bid in eight auctions of one server, whose transactions are gathered, while another server's
// bidder is in half of them: what undoes those must not be felt, and no bid may be told that is not there, in the others.
func manyAuctions() Scenario {
	const (
		many = 8
		both = many / 2 // of them have the guest
	)
	var auctions [many]client.Auction
	account := func(i int) string { return fmt.Sprintf("b%d", i) }
	return Scenario{
		Servers: 2, Kills: true, Stall: 3 * time.Second, Unbooked: true,
		Open: func(ctx context.Context, c *sim.Client) error {
			names := []string{"house", "guest"}
			for i := range many {
				names = append(names, account(i))
			}
			if err := sim.OpenAccounts(ctx, c, names, 1000); err != nil {
				return err
			}
			for i := range auctions {
				var err error
				if auctions[i], err = openAuction(ctx, c, fmt.Sprintf("auction-%d", i), "0s"); err != nil {
					return err
				}
			}
			return nil
		},
		Warm: func(ctx context.Context, w *World) error {
			for i := range auctions {
				path, key := "/v1/auctions/"+auctions[i].ID+"/start", fmt.Sprintf("start-%d", i)
				if err := expect(ctx, w,
					expected{"s1", sim.NewOp(sim.KindAuction, path, key, nil), http.StatusOK},
					expected{"s1", sim.NewBid(fmt.Sprintf("warm-%d", i), auctions[i].ID, account(i), 1), http.StatusCreated}); err != nil {
					return err
				}
			}
			for i := range both {
				if err := expect(ctx, w,
					expected{"s2", sim.NewBid(fmt.Sprintf("warm-guest-%d", i), auctions[i].ID, "guest", 2), http.StatusCreated},
					expected{"s1", sim.NewBid(fmt.Sprintf("warm-again-%d", i), auctions[i].ID, account(i), 3), http.StatusCreated}); err != nil {
					return err
				}
			}
			return nil
		},
		Play: func(ctx context.Context, w *World) {
			for i := range auctions {
				c := w.Client(account(i), servers(0)...)
				w.Settle(ctx, c, sim.NewBid(fmt.Sprintf("bid-%d-1", i), auctions[i].ID, account(i), 10), sim.NewBid(fmt.Sprintf("bid-%d-2", i), auctions[i].ID, account(i), 20))
			}
			for i := range both {
				w.Settle(ctx, w.Client("guest", servers(1)...), sim.NewBid(fmt.Sprintf("bid-guest-%d", i), auctions[i].ID, "guest", 15))
			}
		},
		Check: func(ctx context.Context, w *World, db *pgx.Conn) error {
			if done := w.Count("bid-", http.StatusCreated); done != 2*many+both {
				return fmt.Errorf("of %d bids %d were placed", 2*many+both, done)
			}
			var wrong string
			err := db.QueryRow(ctx, `SELECT coalesce(string_agg(format('%s bids %s in auction %s, and %s bids of it are there', s.account, s.amount, a.title, n.bids), '; '), '')
				FROM auction_standing AS s JOIN auctions AS a ON a.id = s.auction,
					LATERAL (SELECT count(*) AS bids FROM auction_bids AS b WHERE b.auction = a.id AND b.account = s.account) AS n
				WHERE s.amount <> CASE s.account WHEN 'guest' THEN 15 ELSE 20 END OR n.bids <> CASE WHEN s.account = 'guest' THEN 2 WHEN right(a.title, 1)::integer < $1 THEN 4 ELSE 3 END`, both).Scan(&wrong)
			if err == nil && wrong != "" {
				err = errors.New(wrong)
			}
			return err
		},
	}
}

// openAuction creates an auction of one long round.
func openAuction(ctx context.Context, c *sim.Client, title, cooldown string) (out client.Auction, err error) {
	made, err := c.Settle(ctx, sim.NewOp(sim.KindAuction, "/v1/auctions", title, client.CreateAuctionRequest{
		Title: title, Currency: "SIM", Seller: "house", Cooldown: cooldown, Rounds: []client.RoundRequest{{Winners: 1, Duration: "1h"}},
	}))
	if err != nil || made.Status != http.StatusCreated {
		return out, fmt.Errorf("make an auction: %v: %w", made, err)
	}
	return out, made.JSON(&out)
}
