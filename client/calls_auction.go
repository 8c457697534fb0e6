package client

import (
	"context"
	"iter"

	"github.com/fairlead-dev/fairlead/client/api"
)

// CreateAuction makes an auction, pending.
func (c *Client) CreateAuction(ctx context.Context, q CreateAuctionRequest, opts ...CallOption) (*Auction, error) {
	return created(c.api.PostAuctionsWithResponse(ctx, nil, q, opts...))
}

// GetAuction reads an auction with its rounds.
func (c *Client) GetAuction(ctx context.Context, id string, opts ...CallOption) (*Auction, error) {
	return ok(c.api.GetAuctionsIDWithResponse(ctx, id, opts...))
}

// Auctions gives all auctions, a page at a time.
func (c *Client) Auctions(ctx context.Context, opts ...CallOption) iter.Seq2[AuctionSummary, error] {
	return pages(func(after *string) ([]AuctionSummary, *string, error) {
		list, err := ok(c.api.GetAuctionsWithResponse(ctx, &api.GetAuctionsParams{Limit: pageLimit(), After: after}, opts...))
		if err != nil {
			return nil, nil, err
		}
		return list.Items, list.Next, nil
	})
}

// StartAuction opens the first round of a pending auction. Code bad_transition: it is not pending.
func (c *Client) StartAuction(ctx context.Context, id string, opts ...CallOption) (*Auction, error) {
	return ok(c.api.PostAuctionsIDStartWithResponse(ctx, id, nil, api.NoFields{}, opts...))
}

// CancelAuction ends an auction; the money of every standing bid is free again when it returns. Code bad_transition: it has
// ended.
func (c *Client) CancelAuction(ctx context.Context, id string, opts ...CallOption) (*Auction, error) {
	return ok(c.api.PostAuctionsIDCancelWithResponse(ctx, id, nil, api.NoFields{}, opts...))
}

// Bid bids, or raises the account's bid to the amount. Codes not_active, own_auction, bid_too_low, amount_taken,
// insufficient_funds; and cooldown, which is retryable: the client waits and tries again, unless [Retry] says otherwise.
func (c *Client) Bid(ctx context.Context, auction string, q BidRequest, opts ...CallOption) (*Bid, error) {
	return created(c.api.PostAuctionsIDBidsWithResponse(ctx, auction, nil, q, opts...))
}

// Leaderboard gives the standing bids by rank, a page at a time. Bids placed between two pages may move others from one
// page to the next, and let them come twice or not at all.
func (c *Client) Leaderboard(ctx context.Context, auction string, opts ...CallOption) iter.Seq2[Rank, error] {
	return pages(func(after *string) ([]Rank, *string, error) {
		list, err := ok(c.api.GetAuctionsIDLeaderboardWithResponse(ctx, auction, &api.GetAuctionsIDLeaderboardParams{Limit: pageLimit(), After: after}, opts...))
		if err != nil {
			return nil, nil, err
		}
		return list.Items, list.Next, nil
	})
}

// AuctionWinners gives who won, by round and rank, a page at a time.
func (c *Client) AuctionWinners(ctx context.Context, auction string, opts ...CallOption) iter.Seq2[AuctionWinner, error] {
	return pages(func(after *string) ([]AuctionWinner, *string, error) {
		list, err := ok(c.api.GetAuctionsIDWinnersWithResponse(ctx, auction, &api.GetAuctionsIDWinnersParams{Limit: pageLimit(), After: after}, opts...))
		if err != nil {
			return nil, nil, err
		}
		return list.Items, list.Next, nil
	})
}

// Bids gives all accepted bids of an auction, oldest first, a page at a time.
func (c *Client) Bids(ctx context.Context, auction string, opts ...CallOption) iter.Seq2[PlacedBid, error] {
	return pages(func(after *string) ([]PlacedBid, *string, error) {
		list, err := ok(c.api.GetAuctionsIDBidsWithResponse(ctx, auction, &api.GetAuctionsIDBidsParams{Limit: pageLimit(), After: after}, opts...))
		if err != nil {
			return nil, nil, err
		}
		return list.Items, list.Next, nil
	})
}

// MinWinningBid reads the least new bid that would now win. Code not_active: the auction has ended.
func (c *Client) MinWinningBid(ctx context.Context, auction string, opts ...CallOption) (int64, error) {
	least, err := ok(c.api.GetAuctionsIDMinWinningBidWithResponse(ctx, auction, opts...))
	if err != nil {
		return 0, err
	}
	return least.Amount, nil
}
