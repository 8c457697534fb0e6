package client

import (
	"context"
	"iter"

	"github.com/fairlead-dev/fairlead/client/api"
)

// CreateAccount opens an account with nothing on it. Code account_exists: there is one of that id.
func (c *Client) CreateAccount(ctx context.Context, q CreateAccountRequest, opts ...CallOption) (*Account, error) {
	return created(c.api.PostAccountsWithResponse(ctx, nil, q, opts...))
}

// GetAccount reads an account.
func (c *Client) GetAccount(ctx context.Context, id string, opts ...CallOption) (*Account, error) {
	return ok(c.api.GetAccountsIDWithResponse(ctx, id, opts...))
}

// Entries gives an account's history, oldest first, a page at a time.
func (c *Client) Entries(ctx context.Context, account string, opts ...CallOption) iter.Seq2[Entry, error] {
	return pages(func(after *string) ([]Entry, *string, error) {
		list, err := ok(c.api.GetAccountsIDEntriesWithResponse(ctx, account, &api.GetAccountsIDEntriesParams{Limit: pageLimit(), After: after}, opts...))
		if err != nil {
			return nil, nil, err
		}
		return list.Items, list.Next, nil
	})
}

// Deposit brings money from the outside to an account.
func (c *Client) Deposit(ctx context.Context, q MovementRequest, opts ...CallOption) (*Movement, error) {
	return created(c.api.PostDepositsWithResponse(ctx, nil, q, opts...))
}

// Withdraw brings money from an account to the outside. Code insufficient_funds: there is too little.
func (c *Client) Withdraw(ctx context.Context, q MovementRequest, opts ...CallOption) (*Movement, error) {
	return created(c.api.PostWithdrawalsWithResponse(ctx, nil, q, opts...))
}

// Transfer moves money between accounts. Code insufficient_funds: the source has too little, and [Problem.Transfer] is
// the failed transfer's id.
func (c *Client) Transfer(ctx context.Context, q TransferRequest, opts ...CallOption) (*Transfer, error) {
	return created(c.api.PostTransfersWithResponse(ctx, nil, q, opts...))
}

// GetTransfer reads a transfer, a failed one too.
func (c *Client) GetTransfer(ctx context.Context, id string, opts ...CallOption) (*Transfer, error) {
	return ok(c.api.GetTransfersIDWithResponse(ctx, id, opts...))
}

// Hold sets money of an account aside.
func (c *Client) Hold(ctx context.Context, q HoldRequest, opts ...CallOption) (*Hold, error) {
	return created(c.api.PostHoldsWithResponse(ctx, nil, q, opts...))
}

// GetHold reads a hold.
func (c *Client) GetHold(ctx context.Context, id string, opts ...CallOption) (*Hold, error) {
	return ok(c.api.GetHoldsIDWithResponse(ctx, id, opts...))
}

// CaptureHold pays a hold, wholly or in part; the rest is released. Code hold_closed: it was captured, released or has
// expired.
func (c *Client) CaptureHold(ctx context.Context, id string, q CaptureRequest, opts ...CallOption) (*Hold, error) {
	return ok(c.api.PostHoldsIDCaptureWithResponse(ctx, id, nil, q, opts...))
}

// ReleaseHold gives a hold's money back.
func (c *Client) ReleaseHold(ctx context.Context, id string, opts ...CallOption) (*Hold, error) {
	return ok(c.api.PostHoldsIDReleaseWithResponse(ctx, id, nil, api.NoFields{}, opts...))
}

// Integrity has the server recompute the ledger from its entries.
func (c *Client) Integrity(ctx context.Context, opts ...CallOption) (*Integrity, error) {
	return ok(c.api.GetIntegrityWithResponse(ctx, opts...))
}
