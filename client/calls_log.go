package client

import (
	"context"
	"strconv"
)

// LogPage says which page of a list of leaves is asked for.
type LogPage struct {
	Limit int    // most leaves, 1 to 200; 0: 50
	After string // the Next of the page before; empty: the first page
}

func (p LogPage) path(of string) string {
	limit := ""
	if p.Limit > 0 {
		limit = strconv.Itoa(p.Limit)
	}
	return with(of, "limit", limit, "after", p.After)
}

// LogLeaves is a page of leaves, which are all under one checkpoint.
type LogLeaves struct {
	Items []LogLeaf `json:"items"`
	// Next is the cursor of the next page, empty on the last.
	Next string `json:"next"`
	// Checkpoint is the signed note under which the leaves are.
	Checkpoint string `json:"checkpoint"`
}

// CampaignLog reads a page of a campaign's leaves in the public log; all of a page are proved under the page's checkpoint.
func (c *Client) CampaignLog(ctx context.Context, campaign string, page LogPage, opts ...CallOption) (*LogLeaves, error) {
	return get[LogLeaves](ctx, c, page.path(at("/v1/campaigns/%s/log", campaign)), opts)
}

// CampaignSeal proves that witnesses of the public log have seen a campaign's seal before its beacon's round was due. The proof of the draw
// carries the same, and package translog/seal verifies it there. Code not_sealed: there is none, or not yet.
func (c *Client) CampaignSeal(ctx context.Context, campaign string, opts ...CallOption) (*Seal, error) {
	return get[Seal](ctx, c, at("/v1/campaigns/%s/seal", campaign), opts)
}

// AuctionLog is [Client.CampaignLog] of an auction. Accounts appear by alias.
func (c *Client) AuctionLog(ctx context.Context, auction string, page LogPage, opts ...CallOption) (*LogLeaves, error) {
	return get[LogLeaves](ctx, c, page.path(at("/v1/auctions/%s/log", auction)), opts)
}

// MultidrawLog is [Client.CampaignLog] of a multi-draw.
func (c *Client) MultidrawLog(ctx context.Context, multidraw string, page LogPage, opts ...CallOption) (*LogLeaves, error) {
	return get[LogLeaves](ctx, c, page.path(at("/v1/multidraws/%s/log", multidraw)), opts)
}

// AccountProof proves an account's balance by the public log, as it was in the newest closing of the books not after a time as RFC 3339
// has it; empty: the newest one. Code not_found: no closing that is kept has the account.
func (c *Client) AccountProof(ctx context.Context, account, moment string, opts ...CallOption) (*AccountProof, error) {
	return get[AccountProof](ctx, c, with(at("/v1/accounts/%s/proof", account), "at", moment), opts)
}
