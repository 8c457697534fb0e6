package client

import (
	"context"
	"iter"
)

// CreateAuction makes an auction, pending.
func (c *Client) CreateAuction(ctx context.Context, q CreateAuctionRequest, opts ...CallOption) (*Auction, error) {
	return post[Auction](ctx, c, "/v1/auctions", q, opts)
}

// GetAuction reads an auction with its rounds.
func (c *Client) GetAuction(ctx context.Context, id string, opts ...CallOption) (*Auction, error) {
	return get[Auction](ctx, c, at("/v1/auctions/%s", id), opts)
}

// Auctions gives all auctions, a page at a time.
func (c *Client) Auctions(ctx context.Context, opts ...CallOption) iter.Seq2[AuctionSummary, error] {
	return pages[AuctionSummary](ctx, c, opts, "/v1/auctions")
}

// StartAuction opens the first round of a pending auction. Code bad_transition: it is not pending.
func (c *Client) StartAuction(ctx context.Context, id string, opts ...CallOption) (*Auction, error) {
	return post[Auction](ctx, c, at("/v1/auctions/%s/start", id), nil, opts)
}

// CancelAuction ends an auction; the money of every standing bid is free again when it returns. Code bad_transition: it has
// ended.
func (c *Client) CancelAuction(ctx context.Context, id string, opts ...CallOption) (*Auction, error) {
	return post[Auction](ctx, c, at("/v1/auctions/%s/cancel", id), nil, opts)
}

// Bid bids, or raises the account's bid to the amount. Codes not_active, own_auction, bid_too_low, amount_taken,
// insufficient_funds; and cooldown, which is retryable: the client waits and tries again, unless [Retry] says otherwise.
func (c *Client) Bid(ctx context.Context, auction string, q BidRequest, opts ...CallOption) (*Bid, error) {
	return post[Bid](ctx, c, at("/v1/auctions/%s/bids", auction), q, opts)
}

// Leaderboard gives the standing bids by rank, a page at a time. Bids placed between two pages may move others from one
// page to the next, and let them come twice or not at all.
func (c *Client) Leaderboard(ctx context.Context, auction string, opts ...CallOption) iter.Seq2[Rank, error] {
	return pages[Rank](ctx, c, opts, at("/v1/auctions/%s/leaderboard", auction))
}

// AuctionWinners gives who won, by round and rank, a page at a time.
func (c *Client) AuctionWinners(ctx context.Context, auction string, opts ...CallOption) iter.Seq2[AuctionWinner, error] {
	return pages[AuctionWinner](ctx, c, opts, at("/v1/auctions/%s/winners", auction))
}

// Bids gives all accepted bids of an auction, oldest first, a page at a time.
func (c *Client) Bids(ctx context.Context, auction string, opts ...CallOption) iter.Seq2[PlacedBid, error] {
	return pages[PlacedBid](ctx, c, opts, at("/v1/auctions/%s/bids", auction))
}

// MinWinningBid reads the least new bid that would now win. Code not_active: the auction has ended.
func (c *Client) MinWinningBid(ctx context.Context, auction string, opts ...CallOption) (int64, error) {
	least, err := get[MinWinningBid](ctx, c, at("/v1/auctions/%s/min-winning-bid", auction), opts)
	if err != nil {
		return 0, err
	}
	return least.Amount, nil
}
