package client

import (
	"context"
	"iter"
)

// CreateAccount opens an account with nothing on it. Code account_exists: there is one of that id.
func (c *Client) CreateAccount(ctx context.Context, q CreateAccountRequest, opts ...CallOption) (*Account, error) {
	return post[Account](ctx, c, "/v1/accounts", q, opts)
}

// GetAccount reads an account.
func (c *Client) GetAccount(ctx context.Context, id string, opts ...CallOption) (*Account, error) {
	return get[Account](ctx, c, at("/v1/accounts/%s", id), opts)
}

// Entries gives an account's history, oldest first, a page at a time.
func (c *Client) Entries(ctx context.Context, account string, opts ...CallOption) iter.Seq2[Entry, error] {
	return pages[Entry](ctx, c, opts, at("/v1/accounts/%s/entries", account))
}

// Deposit brings money from the outside to an account.
func (c *Client) Deposit(ctx context.Context, q MovementRequest, opts ...CallOption) (*Movement, error) {
	return post[Movement](ctx, c, "/v1/deposits", q, opts)
}

// Withdraw brings money from an account to the outside. Code insufficient_funds: there is too little.
func (c *Client) Withdraw(ctx context.Context, q MovementRequest, opts ...CallOption) (*Movement, error) {
	return post[Movement](ctx, c, "/v1/withdrawals", q, opts)
}

// Transfer moves money between accounts. Code insufficient_funds: the source has too little, and [Problem.Transfer] is
// the failed transfer's id.
func (c *Client) Transfer(ctx context.Context, q TransferRequest, opts ...CallOption) (*Transfer, error) {
	return post[Transfer](ctx, c, "/v1/transfers", q, opts)
}

// GetTransfer reads a transfer, a failed one too.
func (c *Client) GetTransfer(ctx context.Context, id string, opts ...CallOption) (*Transfer, error) {
	return get[Transfer](ctx, c, at("/v1/transfers/%s", id), opts)
}

// Hold sets money of an account aside.
func (c *Client) Hold(ctx context.Context, q HoldRequest, opts ...CallOption) (*Hold, error) {
	return post[Hold](ctx, c, "/v1/holds", q, opts)
}

// GetHold reads a hold.
func (c *Client) GetHold(ctx context.Context, id string, opts ...CallOption) (*Hold, error) {
	return get[Hold](ctx, c, at("/v1/holds/%s", id), opts)
}

// CaptureHold pays a hold, wholly or in part; the rest is released. Code hold_closed: it was captured, released or has
// expired.
func (c *Client) CaptureHold(ctx context.Context, id string, q CaptureRequest, opts ...CallOption) (*Hold, error) {
	return post[Hold](ctx, c, at("/v1/holds/%s/capture", id), q, opts)
}

// ReleaseHold gives a hold's money back.
func (c *Client) ReleaseHold(ctx context.Context, id string, opts ...CallOption) (*Hold, error) {
	return post[Hold](ctx, c, at("/v1/holds/%s/release", id), nil, opts)
}

// Integrity has the server recompute the ledger from its entries.
func (c *Client) Integrity(ctx context.Context, opts ...CallOption) (*Integrity, error) {
	return get[Integrity](ctx, c, "/v1/integrity", opts)
}
