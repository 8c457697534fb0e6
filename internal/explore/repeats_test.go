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

// repeatedBids has each bid of one bidder reach both servers, as a client sends it that lost its patience, while another bidder has the second
// server read the auctions. A server that knows of a bid by its auction alone, and decides on its repeat without locks, would refuse it until the
// bidder's cooldown is over. That refusal leaves no record, so only a look at its key shows that the bid was placed.
func repeatedBids() Scenario {
	const many = 3
	var auctions [many + 1]client.Auction // the last one is for the warm-up
	account := func(i int) string { return fmt.Sprintf("ann%d", i) }
	return Scenario{
		Servers: 2, Kills: true, Stall: 3 * time.Second, Unbooked: true,
		Install: func(ctx context.Context, db *pgx.Conn) error { return execute(ctx, db, watchAuctions) },
		Open: func(ctx context.Context, c *sim.Client) (err error) {
			names := []string{"bob", "house"}
			for i := range auctions {
				names = append(names, account(i))
			}
			if err := sim.OpenAccounts(ctx, c, names, 1000); err != nil {
				return err
			}
			for i := range auctions {
				if auctions[i], err = openAuction(ctx, c, fmt.Sprintf("auction-%d", i), "5s"); err != nil {
					return err
				}
			}
			return nil
		},
		Warm: func(ctx context.Context, w *World) error {
			for i := range auctions {
				start := sim.NewOp(sim.KindAuction, "/v1/auctions/"+auctions[i].ID+"/start", fmt.Sprintf("start-%d", i), nil)
				if err := expect(ctx, w, expected{"s1", start, http.StatusOK}); err != nil {
					return err
				}
			}
			last := auctions[many].ID
			return expect(ctx, w, // So that the second server has its connections, and knows what time it is.
				expected{"s2", sim.NewBid("warm-1", last, account(many), 1), http.StatusCreated},
				expected{"s2", sim.NewBid("warm-2", last, "bob", 2), http.StatusCreated})
		},
		Play: func(ctx context.Context, w *World) {
			for i, a := range auctions[:many] {
				twice := sim.NewBid(fmt.Sprintf("twice-%d", i), a.ID, account(i), 10)
				w.Settle(ctx, w.Client(account(i), "s1"), twice)
				w.Settle(ctx, w.Client(fmt.Sprintf("bob%d", i), "s2"), sim.NewBid(fmt.Sprintf("bob-%d", i), a.ID, "bob", 15), twice)
			}
		},
		Check: func(ctx context.Context, w *World, db *pgx.Conn) error {
			var wrong []error
			if done := w.Count("twice-", http.StatusCreated) + w.Count("bob-", http.StatusCreated); done != 2*many {
				wrong = append(wrong, fmt.Errorf("of %d bids %d were placed", 2*many, done))
			}
			for _, op := range w.History.Ops()[w.opened:] {
				for _, a := range op.Answers() {
					if a.Err == nil && a.Status == http.StatusTooManyRequests {
						wrong = append(wrong, fmt.Errorf("%s: refused for a cooldown, and it is the account's first bid", op))
					}
				}
			}
			for _, a := range auctions[:many] {
				wrong = append(wrong, checkBids(ctx, w, db, a.ID))
			}
			return errors.Join(wrong...)
		},
	}
}
