package client

import (
	"context"
	"iter"

	"github.com/fairlead-dev/fairlead/client/api"
)

// The documents of transfers between ledgers.
type (
	// CrossTransferRequest is a transfer between ledgers to be made.
	CrossTransferRequest = api.CrossTransferRequest
	// CrossEnd is an account of a ledger.
	CrossEnd = api.CrossEnd
	// CrossTransfer is a transfer between ledgers and how far it has come.
	CrossTransfer = api.CrossTransfer
	// CrossStep is a step of a transfer between ledgers.
	CrossStep = api.CrossStep
)

// CrossTransfer moves money between accounts of different ledgers, and waits for the end. It may come back failed or
// compensated, with a reason, or pending: then [Client.GetCrossTransfer] tells. Codes insufficient_funds,
// currency_mismatch, same_account, two_phase_unavailable, not_found; and ledger_unreachable, which is retryable.
func (c *Client) CrossTransfer(ctx context.Context, q CrossTransferRequest, opts ...CallOption) (*CrossTransfer, error) {
	return created(c.api.PostCrossTransfersWithResponse(ctx, nil, q, opts...))
}

// GetCrossTransfer reads a transfer between ledgers, a failed one too.
func (c *Client) GetCrossTransfer(ctx context.Context, id string, opts ...CallOption) (*CrossTransfer, error) {
	return ok(c.api.GetCrossTransfersIDWithResponse(ctx, id, opts...))
}

// CrossTransfers gives all transfers between ledgers, oldest first, a page at a time; with stuck, those alone that fail to
// get on.
func (c *Client) CrossTransfers(ctx context.Context, stuck bool, opts ...CallOption) iter.Seq2[CrossTransfer, error] {
	return pages(func(after *string) ([]CrossTransfer, *string, error) {
		list, err := ok(c.api.GetCrossTransfersWithResponse(ctx, &api.GetCrossTransfersParams{Limit: pageLimit(), After: after, Stuck: &stuck}, opts...))
		if err != nil {
			return nil, nil, err
		}
		return list.Items, list.Next, nil
	})
}

// RetryCrossTransfer lets a pending transfer be tried at once. Code bad_transition: it has ended.
func (c *Client) RetryCrossTransfer(ctx context.Context, id string, opts ...CallOption) (*CrossTransfer, error) {
	return ok(c.api.PostCrossTransfersIDRetryWithResponse(ctx, id, nil, api.NoFields{}, opts...))
}

// CompensateCrossTransfer gives a pending transfer up: what is not done is cancelled, what is done is undone. Code
// bad_transition: it has ended, or is decided to commit.
func (c *Client) CompensateCrossTransfer(ctx context.Context, id string, opts ...CallOption) (*CrossTransfer, error) {
	return ok(c.api.PostCrossTransfersIDCompensateWithResponse(ctx, id, nil, api.NoFields{}, opts...))
}
