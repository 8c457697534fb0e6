//go:build unix

package sim

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/replay"
)

// The kinds of commands on auctions. They are not of type [Kind] by themselves, because the books of [History.Check] do
// not keep auctions: package replay does.
const (
	KindAuction = "auction"
	KindBid     = "bid"
)

// NewAuction makes the command that creates an auction in SIM. All of it is sent, so that nothing depends on defaults.
func NewAuction(key, title string, r *replay.Rules) *Op {
	q := client.CreateAuctionRequest{
		Title: title, Currency: "SIM", Seller: r.Seller, MinBid: max(r.MinBid, 1), MinIncrement: max(r.MinIncrement, 1),
		AntiSnipe: client.AntiSnipeRequest{Window: r.Window.String(), Extension: r.Extension.String(), MaxExtensions: int64(r.MaxExtensions)},
		Cooldown:  r.Cooldown.String(), UniqueAmounts: &r.UniqueAmounts,
	}
	for _, round := range r.Rounds {
		q.Rounds = append(q.Rounds, client.RoundRequest{Winners: int64(round.Winners), Duration: round.Duration.String()})
	}
	return NewOp(KindAuction, "/v1/auctions", key, q)
}

// CompareAuction compares all that the interface says of an auction with what its events come to: the auction, the whole
// leaderboard, the winners, the history of bids, and what the accounts have. Nothing may change meanwhile.
func CompareAuction(ctx context.Context, c *Client, id string, out *replay.Outcome) error {
	api := c.API(client.Retry{Attempts: 1000, Limit: settleLimit})
	shown, err := api.GetAuction(ctx, id)
	if err != nil {
		return err
	}
	places, err := collect(api.Leaderboard(ctx, id), func(r client.Rank) replay.Place {
		return replay.Place{Rank: int(r.Rank), Account: r.Account, Amount: r.Amount, Winning: r.Winning}
	})
	if err != nil {
		return err
	}
	page, err := client.Call[struct{ Round int }](ctx, api, http.MethodGet, "/v1/auctions/"+id+"/leaderboard", nil)
	if err != nil {
		return err
	}
	wins, err := collect(api.AuctionWinners(ctx, id), func(w client.AuctionWinner) replay.Win {
		return replay.Win{Round: int(w.Round), Rank: int(w.Rank), Account: w.Account, Amount: w.Amount}
	})
	if err != nil {
		return err
	}
	bids, err := collect(api.Bids(ctx, id), func(b client.PlacedBid) client.PlacedBid { return b })
	if err != nil {
		return err
	}
	balances := map[string]replay.Balance{}
	for account := range out.Accounts {
		a, err := api.GetAccount(ctx, account)
		if err != nil {
			return err
		}
		balances[a.ID] = replay.Balance{Available: a.Available, Held: a.Held}
	}
	differences := []error{
		out.CompareAuction(shown), out.CompareLeaderboard(page.Round, places), out.CompareWinners(wins), out.CompareBids(bids), out.CompareAccounts(balances),
	}
	if out.Status == "active" {
		floor, err := api.MinWinningBid(ctx, id)
		if err != nil {
			return err
		}
		differences = append(differences, out.CompareFloor(floor))
	}
	if err := errors.Join(differences...); err != nil {
		return fmt.Errorf("auction %s: %w", id, err)
	}
	return nil
}

// collect reads a list to its end, each item as something else.
func collect[T, U any](items iter.Seq2[T, error], as func(T) U) (all []U, err error) {
	for item, err := range items {
		if err != nil {
			return nil, err
		}
		all = append(all, as(item))
	}
	return all, nil
}
