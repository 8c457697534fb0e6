package client

import (
	"context"
	"iter"

	"github.com/fairlead-dev/fairlead/client/api"
)

// CreateCampaign makes a campaign, pending. Its Commitment is final: keep it, to check the proof against.
func (c *Client) CreateCampaign(ctx context.Context, q CreateCampaignRequest, opts ...CallOption) (*Campaign, error) {
	return created(c.api.PostCampaignsWithResponse(ctx, nil, q, opts...))
}

// GetCampaign reads a campaign.
func (c *Client) GetCampaign(ctx context.Context, id string, opts ...CallOption) (*Campaign, error) {
	return ok(c.api.GetCampaignsIDWithResponse(ctx, id, opts...))
}

// Campaigns gives all campaigns, a page at a time.
func (c *Client) Campaigns(ctx context.Context, opts ...CallOption) iter.Seq2[CampaignSummary, error] {
	return pages(func(after *string) ([]CampaignSummary, *string, error) {
		list, err := ok(c.api.GetCampaignsWithResponse(ctx, &api.GetCampaignsParams{Limit: pageLimit(), After: after}, opts...))
		if err != nil {
			return nil, nil, err
		}
		return list.Items, list.Next, nil
	})
}

// PublishCampaign opens a pending campaign for sale. Code bad_transition: it is not pending.
func (c *Client) PublishCampaign(ctx context.Context, id string, opts ...CallOption) (*Campaign, error) {
	return ok(c.api.PostCampaignsIDPublishWithResponse(ctx, id, nil, api.NoFields{}, opts...))
}

// CancelCampaign ends a campaign that is not sold out; every buyer has the money back when it returns.
func (c *Client) CancelCampaign(ctx context.Context, id string, opts ...CallOption) (*Campaign, error) {
	return ok(c.api.PostCampaignsIDCancelWithResponse(ctx, id, nil, api.NoFields{}, opts...))
}

// Buy buys a random free position. Codes not_active, sold_out, purchase_limit, insufficient_funds.
func (c *Client) Buy(ctx context.Context, campaign string, q PurchaseRequest, opts ...CallOption) (*Purchase, error) {
	return created(c.api.PostCampaignsIDPurchasesWithResponse(ctx, campaign, nil, q, opts...))
}

// Positions gives all positions of a campaign in order of layer and number, a page at a time.
func (c *Client) Positions(ctx context.Context, campaign string, opts ...CallOption) iter.Seq2[Position, error] {
	return pages(func(after *string) ([]Position, *string, error) {
		list, err := ok(c.api.GetCampaignsIDPositionsWithResponse(ctx, campaign, &api.GetCampaignsIDPositionsParams{Limit: pageLimit(), After: after}, opts...))
		if err != nil {
			return nil, nil, err
		}
		return list.Items, list.Next, nil
	})
}

// Purchases gives all purchases of a campaign, oldest first, a page at a time.
func (c *Client) Purchases(ctx context.Context, campaign string, opts ...CallOption) iter.Seq2[Purchase, error] {
	return pages(func(after *string) ([]Purchase, *string, error) {
		list, err := ok(c.api.GetCampaignsIDPurchasesWithResponse(ctx, campaign, &api.GetCampaignsIDPurchasesParams{Limit: pageLimit(), After: after}, opts...))
		if err != nil {
			return nil, nil, err
		}
		return list.Items, list.Next, nil
	})
}

// Statistics reads what a campaign's sales add up to.
func (c *Client) Statistics(ctx context.Context, campaign string, opts ...CallOption) (*Statistics, error) {
	return ok(c.api.GetCampaignsIDStatisticsWithResponse(ctx, campaign, opts...))
}

// Draw asks for the draw of a sold-out campaign: the same one for ever. Code not_sold_out.
func (c *Client) Draw(ctx context.Context, campaign string, opts ...CallOption) (*Draw, error) {
	return ok(c.api.PostCampaignsIDDrawWithResponse(ctx, campaign, nil, api.NoFields{}, opts...))
}

// GetDraw reads the draw. Code not_drawn: there is none yet.
func (c *Client) GetDraw(ctx context.Context, campaign string, opts ...CallOption) (*Draw, error) {
	return ok(c.api.GetCampaignsIDDrawWithResponse(ctx, campaign, opts...))
}

// Proof reads the document that package fairdraw and fairlead verify check, byte for byte. Code not_drawn.
func (c *Client) Proof(ctx context.Context, campaign string, opts ...CallOption) ([]byte, error) {
	r, err := c.api.GetCampaignsIDProofWithResponse(ctx, campaign, opts...)
	if err != nil {
		return nil, err
	}
	return r.Body, nil
}

// InclusionProof reads the short proof that one position was among those drawn from, by the position's id; package
// fairdraw checks it.
func (c *Client) InclusionProof(ctx context.Context, campaign, position string, opts ...CallOption) ([]byte, error) {
	r, err := c.api.GetCampaignsIDProofPositionsPositionWithResponse(ctx, campaign, position, opts...)
	if err != nil {
		return nil, err
	}
	return r.Body, nil
}
