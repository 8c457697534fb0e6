package client_test

import (
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestAuction(t *testing.T) {
	ctx, c := t.Context(), newClient()
	ids := open(t, c, 1_000, 3)
	seller, a, b := ids[0], ids[1], ids[2]
	made, err := c.CreateAuction(ctx, client.CreateAuctionRequest{
		Title: "lot", Currency: "SIM", Seller: seller, Rounds: []client.RoundRequest{{Winners: 1, Duration: "1h"}},
		MinBid: 10, Cooldown: "1h", AntiSnipe: client.AntiSnipeRequest{Window: "2h", Extension: "1m", MaxExtensions: 1},
	})
	testwait.Must(t, err)
	if made.Status != "pending" || made.MinBid != 10 || made.Cooldown != "1h0m0s" || made.AntiSnipe.MaxExtensions != 1 || !made.UniqueAmounts || !made.Rounds[0].EndsAt.IsZero() {
		t.Errorf("made %+v", made)
	}
	if _, err := c.Bid(ctx, made.ID, client.BidRequest{Account: a, Amount: 50}); client.CodeOf(err) != "not_active" {
		t.Errorf("a bid before the start: %v", err)
	}
	started, err := c.StartAuction(ctx, made.ID)
	testwait.Must(t, err)
	bid, err := c.Bid(ctx, made.ID, client.BidRequest{Account: a, Amount: 50})
	testwait.Must(t, err)
	if bid.Rank != 1 || bid.PreviousAmount != 0 || bid.RoundEndsAt.Sub(started.Rounds[0].EndsAt) != time.Minute {
		t.Errorf("bid %+v in round %+v", bid, started.Rounds[0])
	}
	// The cooldown asks for longer than a call lasts, so the call ends with what the server said.
	var answer client.Answer
	_, err = c.Bid(ctx, made.ID, client.BidRequest{Account: a, Amount: 60}, client.Into(&answer))
	if client.CodeOf(err) != "cooldown" || answer.Attempts != 1 || answer.Header.Get("Retry-After") != "3600" {
		t.Errorf("a hasty raise: %v, %+v", err, answer)
	}
	testwait.Must(t, testwait.Err(c.Bid(ctx, made.ID, client.BidRequest{Account: b, Amount: 40})))
	if least, err := c.MinWinningBid(ctx, made.ID); err != nil || least != 51 {
		t.Errorf("the least winning bid is %d, %v", least, err)
	}
	if free, err := c.FreeBid(ctx, made.ID); err != nil || free != 51 {
		t.Errorf("what to bid is %d, %v", free, err)
	}
	board := collected(t, c.Leaderboard(ctx, made.ID))
	if len(board) != 2 || board[0].Account != a || !board[0].Winning || board[1].Account != b || board[1].Winning {
		t.Errorf("leaderboard %+v", board)
	}
	if bids := collected(t, c.Bids(ctx, made.ID)); len(bids) != 2 || bids[0].Seq != bid.Seq || bids[1].Account != b {
		t.Errorf("bids %+v", bids)
	}
	if winners := collected(t, c.AuctionWinners(ctx, made.ID)); len(winners) != 0 {
		t.Errorf("winners of an open round: %+v", winners)
	}
	if all := collected(t, c.Auctions(ctx)); !slices.ContainsFunc(all, func(s client.AuctionSummary) bool { return s.ID == made.ID && s.TotalBids == 2 }) {
		t.Errorf("the auction is not among %+v", all)
	}
	cancelled, err := c.CancelAuction(ctx, made.ID)
	testwait.Must(t, err)
	if read, err := c.GetAuction(ctx, made.ID); err != nil || read.Status != "cancelled" || read.Seq != cancelled.Seq {
		t.Errorf("read %+v, %v", read, err)
	}
	if account, err := c.GetAccount(ctx, a); err != nil || account.Available != 1_000 || account.Held != 0 {
		t.Errorf("the bidder has %+v, %v", account, err)
	}
}

// collected reads a list to its end.
func collected[T any](t *testing.T, items iter.Seq2[T, error]) (all []T) {
	t.Helper()
	for item, err := range items {
		testwait.Must(t, err)
		all = append(all, item)
	}
	return all
}
