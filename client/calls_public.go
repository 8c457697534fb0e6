package client

import "context"

// PublicCampaign reads what a campaign's public page shows. It needs no key, as do none of the methods here but Alias.
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
