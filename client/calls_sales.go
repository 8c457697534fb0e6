package client

import (
	"context"
	"iter"
)

// CreateCampaign makes a campaign, pending. Its Commitment is final: keep it, to check the proof against.
func (c *Client) CreateCampaign(ctx context.Context, q CreateCampaignRequest, opts ...CallOption) (*Campaign, error) {
	return post[Campaign](ctx, c, "/v1/campaigns", q, opts)
}

// GetCampaign reads a campaign.
func (c *Client) GetCampaign(ctx context.Context, id string, opts ...CallOption) (*Campaign, error) {
	return get[Campaign](ctx, c, at("/v1/campaigns/%s", id), opts)
}

// Campaigns gives all campaigns, a page at a time.
func (c *Client) Campaigns(ctx context.Context, opts ...CallOption) iter.Seq2[CampaignSummary, error] {
	return pages[CampaignSummary](ctx, c, opts, "/v1/campaigns")
}

// PublishCampaign opens a pending campaign for sale. Code bad_transition: it is not pending.
func (c *Client) PublishCampaign(ctx context.Context, id string, opts ...CallOption) (*Campaign, error) {
	return post[Campaign](ctx, c, at("/v1/campaigns/%s/publish", id), nil, opts)
}

// CancelCampaign ends a campaign that is not sold out; every buyer has the money back when it returns.
func (c *Client) CancelCampaign(ctx context.Context, id string, opts ...CallOption) (*Campaign, error) {
	return post[Campaign](ctx, c, at("/v1/campaigns/%s/cancel", id), nil, opts)
}

// Buy buys a random free position. Codes not_active, sold_out, purchase_limit, insufficient_funds.
func (c *Client) Buy(ctx context.Context, campaign string, q PurchaseRequest, opts ...CallOption) (*Purchase, error) {
	return post[Purchase](ctx, c, at("/v1/campaigns/%s/purchases", campaign), q, opts)
}

// Positions gives all positions of a campaign in order of layer and number, a page at a time.
func (c *Client) Positions(ctx context.Context, campaign string, opts ...CallOption) iter.Seq2[Position, error] {
	return pages[Position](ctx, c, opts, at("/v1/campaigns/%s/positions", campaign))
}

// Purchases gives all purchases of a campaign, to a user its own, oldest first, a page at a time.
func (c *Client) Purchases(ctx context.Context, campaign string, opts ...CallOption) iter.Seq2[Purchase, error] {
	return pages[Purchase](ctx, c, opts, at("/v1/campaigns/%s/purchases", campaign))
}

// AccountPurchases gives an account's purchases in all campaigns, newest first, a page at a time.
func (c *Client) AccountPurchases(ctx context.Context, account string, opts ...CallOption) iter.Seq2[Purchase, error] {
	return pages[Purchase](ctx, c, opts, at("/v1/accounts/%s/purchases", account))
}

// Statistics reads what a campaign's sales add up to.
func (c *Client) Statistics(ctx context.Context, campaign string, opts ...CallOption) (*Statistics, error) {
	return get[Statistics](ctx, c, at("/v1/campaigns/%s/statistics", campaign), opts)
}

// Draw asks for the draw of a sold-out campaign: the same one for ever. Code not_sold_out.
func (c *Client) Draw(ctx context.Context, campaign string, opts ...CallOption) (*Draw, error) {
	return post[Draw](ctx, c, at("/v1/campaigns/%s/draw", campaign), nil, opts)
}

// GetDraw reads the draw. Code not_drawn: there is none yet.
func (c *Client) GetDraw(ctx context.Context, campaign string, opts ...CallOption) (*Draw, error) {
	return get[Draw](ctx, c, at("/v1/campaigns/%s/draw", campaign), opts)
}

// Proof reads the document that package fairdraw and fairlead verify check, byte for byte. Code not_drawn.
func (c *Client) Proof(ctx context.Context, campaign string, opts ...CallOption) ([]byte, error) {
	return c.document(ctx, at("/v1/campaigns/%s/proof", campaign), opts)
}

// InclusionProof reads the short proof that one position was among those drawn from, by the position's id; package
// fairdraw checks it.
func (c *Client) InclusionProof(ctx context.Context, campaign, position string, opts ...CallOption) ([]byte, error) {
	return c.document(ctx, at("/v1/campaigns/%s/proof/positions/%s", campaign, position), opts)
}

// CreateMultidraw draws many times. It comes back completed; or running, where the request is async, or where the draws take
// longer than the server lets a call wait. Code lock_held: another operation has the lock key; it is retryable, so the client
// tries again for a while, unless [Retry] says otherwise.
func (c *Client) CreateMultidraw(ctx context.Context, q CreateMultidrawRequest, opts ...CallOption) (*Multidraw, error) {
	return post[Multidraw](ctx, c, "/v1/multidraws", q, opts)
}

// GetMultidraw reads a multi-draw as it is.
func (c *Client) GetMultidraw(ctx context.Context, id string, opts ...CallOption) (*Multidraw, error) {
	return get[Multidraw](ctx, c, at("/v1/multidraws/%s", id), opts)
}

// Multidraws gives all multi-draws, oldest first, a page at a time.
func (c *Client) Multidraws(ctx context.Context, opts ...CallOption) iter.Seq2[MultidrawSummary, error] {
	return pages[MultidrawSummary](ctx, c, opts, "/v1/multidraws")
}

// ResumeMultidraw goes on with an interrupted multi-draw, which comes back running. Code bad_transition: it is not
// interrupted.
func (c *Client) ResumeMultidraw(ctx context.Context, id string, opts ...CallOption) (*Multidraw, error) {
	return post[Multidraw](ctx, c, at("/v1/multidraws/%s/resume", id), nil, opts)
}

// RollbackMultidraw ends an interrupted or a completed multi-draw. What it had drawn stays readable. Code bad_transition: it
// is neither.
func (c *Client) RollbackMultidraw(ctx context.Context, id string, opts ...CallOption) (*Multidraw, error) {
	return post[Multidraw](ctx, c, at("/v1/multidraws/%s/rollback", id), nil, opts)
}

// largestResultsPage is the most draws that a page can have.
const largestResultsPage = 10_000

// MultidrawInts gives the draws so far of a range, in order, a page at a time.
func (c *Client) MultidrawInts(ctx context.Context, id string, opts ...CallOption) iter.Seq2[int64, error] {
	return pagesOf[int64](ctx, c, opts, largestResultsPage, at("/v1/multidraws/%s/results", id))
}

// MultidrawPrizes gives the ids of the prizes drawn so far, in order, a page at a time.
func (c *Client) MultidrawPrizes(ctx context.Context, id string, opts ...CallOption) iter.Seq2[string, error] {
	return pagesOf[string](ctx, c, opts, largestResultsPage, at("/v1/multidraws/%s/results", id))
}

// MultidrawProof reads the document that fairlead verify checks, byte for byte. Code not_drawn: not everything is drawn.
func (c *Client) MultidrawProof(ctx context.Context, id string, opts ...CallOption) ([]byte, error) {
	return c.document(ctx, at("/v1/multidraws/%s/proof", id), opts)
}

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

// AccountBids gives an account's standing bids in auctions under way, oldest auction first, a page at a time.
func (c *Client) AccountBids(ctx context.Context, account string, opts ...CallOption) iter.Seq2[AccountBid, error] {
	return pages[AccountBid](ctx, c, opts, at("/v1/accounts/%s/bids", account))
}

// FreeBid reads the least amount that wins now and that no standing bid has: what to bid. It is [Client.MinWinningBid] where amounts are not unique.
// 0: all are taken up to the largest amount. Code not_active: the auction has ended.
func (c *Client) FreeBid(ctx context.Context, auction string, opts ...CallOption) (int64, error) {
	least, err := get[MinWinningBid](ctx, c, at("/v1/auctions/%s/min-winning-bid", auction), opts)
	if err != nil {
		return 0, err
	}
	return least.FreeAmount, nil
}

// MinWinningBid reads the least new bid that would now win, if no standing bid has its amount: see [Client.FreeBid]. Code not_active: the
// auction has ended.
func (c *Client) MinWinningBid(ctx context.Context, auction string, opts ...CallOption) (int64, error) {
	least, err := get[MinWinningBid](ctx, c, at("/v1/auctions/%s/min-winning-bid", auction), opts)
	if err != nil {
		return 0, err
	}
	return least.Amount, nil
}

// PublicCampaign reads what a campaign's public page shows. Like PublicPosition and PublicAuction, it needs no key.
func (c *Client) PublicCampaign(ctx context.Context, id string, opts ...CallOption) (*PublicCampaign, error) {
	return get[PublicCampaign](ctx, c, at("/p/campaigns/%s/state", id), opts)
}

// PublicPosition reads that a position was sealed, and by which alias it was bought.
func (c *Client) PublicPosition(ctx context.Context, campaign, position string, opts ...CallOption) (*PublicPosition, error) {
	return get[PublicPosition](ctx, c, at("/p/campaigns/%s/positions/%s", campaign, position), opts)
}

// PublicAuction reads what an auction's public page shows.
func (c *Client) PublicAuction(ctx context.Context, id string, opts ...CallOption) (*PublicAuction, error) {
	return get[PublicAuction](ctx, c, at("/p/auctions/%s/state", id), opts)
}

// Alias reads what the public pages of a topic, campaign:ID or auction:ID, call an account.
func (c *Client) Alias(ctx context.Context, account, topic string, opts ...CallOption) (*Alias, error) {
	return get[Alias](ctx, c, with(at("/v1/accounts/%s/aliases", account), "topic", topic), opts)
}
