package client

import (
	"context"
	"iter"
	"strconv"
)

// CrossTransfer moves money between accounts of different ledgers, and waits for the end. It may come back failed or
// compensated, with a reason, or pending: then [Client.GetCrossTransfer] tells. Codes insufficient_funds,
// currency_mismatch, same_account, two_phase_unavailable, not_found; and ledger_unreachable, which is retryable.
func (c *Client) CrossTransfer(ctx context.Context, q CrossTransferRequest, opts ...CallOption) (*CrossTransfer, error) {
	return post[CrossTransfer](ctx, c, "/v1/cross-transfers", q, opts)
}

// GetCrossTransfer reads a transfer between ledgers, a failed one too.
func (c *Client) GetCrossTransfer(ctx context.Context, id string, opts ...CallOption) (*CrossTransfer, error) {
	return get[CrossTransfer](ctx, c, at("/v1/cross-transfers/%s", id), opts)
}

// CrossTransfers gives all transfers between ledgers, oldest first, a page at a time; with stuck, those alone that fail to
// get on.
func (c *Client) CrossTransfers(ctx context.Context, stuck bool, opts ...CallOption) iter.Seq2[CrossTransfer, error] {
	return pages[CrossTransfer](ctx, c, opts, "/v1/cross-transfers", "stuck", strconv.FormatBool(stuck))
}

// RetryCrossTransfer lets a pending transfer be tried at once. Code bad_transition: it has ended.
func (c *Client) RetryCrossTransfer(ctx context.Context, id string, opts ...CallOption) (*CrossTransfer, error) {
	return post[CrossTransfer](ctx, c, at("/v1/cross-transfers/%s/retry", id), nil, opts)
}

// CompensateCrossTransfer gives a pending transfer up: what is not done is cancelled, what is done is undone. Code
// bad_transition: it has ended, or is decided to commit.
func (c *Client) CompensateCrossTransfer(ctx context.Context, id string, opts ...CallOption) (*CrossTransfer, error) {
	return post[CrossTransfer](ctx, c, at("/v1/cross-transfers/%s/compensate", id), nil, opts)
}
