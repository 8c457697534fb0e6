package client

import (
	"context"
	"iter"
	"net/http"
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

// Purchases gives all purchases of a campaign, oldest first, a page at a time.
func (c *Client) Purchases(ctx context.Context, campaign string, opts ...CallOption) iter.Seq2[Purchase, error] {
	return pages[Purchase](ctx, c, opts, at("/v1/campaigns/%s/purchases", campaign))
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
	return c.do(ctx, http.MethodGet, at("/v1/campaigns/%s/proof", campaign), nil, opts)
}

// InclusionProof reads the short proof that one position was among those drawn from, by the position's id; package
// fairdraw checks it.
func (c *Client) InclusionProof(ctx context.Context, campaign, position string, opts ...CallOption) ([]byte, error) {
	return c.do(ctx, http.MethodGet, at("/v1/campaigns/%s/proof/positions/%s", campaign, position), nil, opts)
}
