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
	"github.com/fairlead-dev/fairlead/internal/wait"
)

// lateBids has two bidders bid by two servers until a round ends, which late bids extend, while two servers take themselves for the
// leader and close it.
func lateBids() Scenario {
	var house client.Auction
	return Scenario{
		Servers: 2, Unbooked: true,
		Open: func(ctx context.Context, c *sim.Client) error {
			if err := sim.OpenAccounts(ctx, c, []string{"ann", "bob", "house"}, 1000); err != nil {
				return err
			}
			made, err := c.Settle(ctx, sim.NewOp(sim.KindAuction, "/v1/auctions", "auction", client.CreateAuctionRequest{
				Title: "late", Currency: "SIM", Seller: "house", Cooldown: "0s", Rounds: []client.RoundRequest{{Winners: 1, Duration: "2s"}},
				AntiSnipe: client.AntiSnipeRequest{Window: "800ms", Extension: "700ms", MaxExtensions: 2},
			}))
			if err != nil || made.Status != http.StatusCreated {
				return fmt.Errorf("make an auction: %v: %w", made, err)
			}
			return made.JSON(&house)
		},
		Play: func(ctx context.Context, w *World) {
			leading, over := context.WithCancel(ctx)
			w.Go(func() error {
				c := w.Client("house", servers(0)...)
				if _, err := c.Settle(ctx, sim.NewOp(sim.KindAuction, "/v1/auctions/"+house.ID+"/start", "start", nil)); err != nil {
					return err
				}
				w.Lead(leading, "s1", 1)
				w.Lead(leading, "s2", 2)
				defer over()
				for i, bidder := range []string{"ann", "bob"} {
					c := w.Client(bidder, servers(i)...)
					w.Go(func() error {
						for n := range int64(4) {
							amount := 10*(n+1) + int64(i)
							if _, err := c.Settle(ctx, sim.NewBid(fmt.Sprintf("%s-%d", bidder, n), house.ID, bidder, amount)); err != nil {
								return err
							}
							wait.For(ctx, 650*time.Millisecond)
						}
						return nil
					})
				}
				for {
					var now client.Auction
					if err := c.GetJSON(ctx, "/v1/auctions/"+house.ID, &now); err != nil || now.Status == "completed" {
						return err
					}
					wait.For(ctx, time.Second)
				}
			})
		},
		Check: func(ctx context.Context, w *World, db *pgx.Conn) error { return checkBids(ctx, w, db, house.ID) },
	}
}

// checkBids compares what bidders were told with the bids that are there, and these with the round's end.
func checkBids(ctx context.Context, w *World, db *pgx.Conn, house string) error {
	var wrong []error
	told := map[int64]client.Bid{}
	for _, op := range w.History.Ops() {
		final, _ := op.Final()
		if op.Kind != sim.KindBid || final.Status != http.StatusCreated {
			continue
		}
		var b client.Bid
		if err := final.JSON(&b); err != nil {
			return err
		}
		if _, twice := told[b.Seq]; twice {
			wrong = append(wrong, fmt.Errorf("bid %d was told to two commands", b.Seq))
		}
		told[b.Seq] = b
	}
	var ends, ended time.Time
	if err := db.QueryRow(ctx, `SELECT ends_at, ended_at FROM auction_rounds WHERE auction = $1 AND round = 1`, house).Scan(&ends, &ended); err != nil {
		return err
	}
	if ended.Before(ends) {
		wrong = append(wrong, fmt.Errorf("the round was closed at %v, before its end at %v", ended, ends))
	}
	type bid struct {
		Seq, Amount int64
		Account     string
		At          time.Time
	}
	rows, err := db.Query(ctx, `SELECT seq, amount, account, at FROM auction_bids WHERE auction = $1 ORDER BY seq`, house)
	if err != nil {
		return err
	}
	bids, err := pgx.CollectRows(rows, pgx.RowToStructByPos[bid])
	for _, b := range bids {
		if t, ok := told[b.Seq]; !ok || t.Account != b.Account || t.Amount != b.Amount {
			wrong = append(wrong, fmt.Errorf("bid %+v was told as %+v", b, t))
		}
		if !b.At.Before(ends) {
			wrong = append(wrong, fmt.Errorf("bid %+v is after the round's end at %v", b, ends))
		}
		delete(told, b.Seq)
	}
	for _, t := range told {
		wrong = append(wrong, fmt.Errorf("bid %+v was told, and is not there", t))
	}
	return errors.Join(append(wrong, err)...)
}
