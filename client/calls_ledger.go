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

// Deposit brings money from the outside to an account. A reference in the request makes sure that it is done once, for ever, whatever
// its key: the same request again gets the first one's answer. Code reference_taken: another request has completed with the
// reference, and [Problem.Transfer] is its id.
func (c *Client) Deposit(ctx context.Context, q MovementRequest, opts ...CallOption) (*Movement, error) {
	return post[Movement](ctx, c, "/v1/deposits", q, opts)
}

// Withdraw brings money from an account to the outside. Code insufficient_funds: there is too little. As to
// references, see [Client.Deposit].
func (c *Client) Withdraw(ctx context.Context, q MovementRequest, opts ...CallOption) (*Movement, error) {
	return post[Movement](ctx, c, "/v1/withdrawals", q, opts)
}

// Transfer moves money between accounts. Code insufficient_funds: the source has too little, and [Problem.Transfer] is
// the failed transfer's id. As to references, see [Client.Deposit].
func (c *Client) Transfer(ctx context.Context, q TransferRequest, opts ...CallOption) (*Transfer, error) {
	return post[Transfer](ctx, c, "/v1/transfers", q, opts)
}

// GetTransfer reads a transfer, a failed one too, or a deposit or withdrawal, by its id.
func (c *Client) GetTransfer(ctx context.Context, id string, opts ...CallOption) (*Transfer, error) {
	return get[Transfer](ctx, c, at("/v1/transfers/%s", id), opts)
}

// TransferByReference finds the deposit, withdrawal or transfer that has completed with a reference. It is nil where there is none.
func (c *Client) TransferByReference(ctx context.Context, reference string, opts ...CallOption) (*Transfer, error) {
	for t, err := range pages[Transfer](ctx, c, opts, "/v1/transfers", "reference", reference) {
		if err != nil {
			return nil, err
		}
		return &t, nil
	}
	return nil, nil // As said.
}

// Hold sets money of an account aside.
func (c *Client) Hold(ctx context.Context, q HoldRequest, opts ...CallOption) (*Hold, error) {
	return post[Hold](ctx, c, "/v1/holds", q, opts)
}

// GetHold reads a hold.
func (c *Client) GetHold(ctx context.Context, id string, opts ...CallOption) (*Hold, error) {
	return get[Hold](ctx, c, at("/v1/holds/%s", id), opts)
}

// AccountHolds gives an account's open holds, newest first, a page at a time.
func (c *Client) AccountHolds(ctx context.Context, account string, opts ...CallOption) iter.Seq2[OpenHold, error] {
	return pages[OpenHold](ctx, c, opts, at("/v1/accounts/%s/holds", account))
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

// CrossTransfers gives all transfers between ledgers, oldest first, a page at a time; with stuck, only those that make
// no progress.
func (c *Client) CrossTransfers(ctx context.Context, stuck bool, opts ...CallOption) iter.Seq2[CrossTransfer, error] {
	return pages[CrossTransfer](ctx, c, opts, "/v1/cross-transfers", "stuck", onlyTrue(stuck))
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

// SagaFilter narrows the list of sagas; its zero value lists all.
type SagaFilter struct {
	Name   string // of the definition, such as cross-transfer
	Status string // pending, completed, failed or compensated
	Stuck  bool   // only those that make no progress
}

// onlyTrue is how a query has a flag: not at all where it is false.
func onlyTrue(flag bool) string {
	if flag {
		return "true"
	}
	return ""
}

// Sagas gives operations of several steps, oldest first, a page at a time.
func (c *Client) Sagas(ctx context.Context, f SagaFilter, opts ...CallOption) iter.Seq2[Saga, error] {
	return pages[Saga](ctx, c, opts, "/v1/sagas", "name", f.Name, "status", f.Status, "stuck", onlyTrue(f.Stuck))
}

// GetSaga reads an operation of several steps.
func (c *Client) GetSaga(ctx context.Context, id string, opts ...CallOption) (*Saga, error) {
	return get[Saga](ctx, c, at("/v1/sagas/%s", id), opts)
}

// RetrySaga lets a pending operation be tried at once. Code bad_transition: it has ended.
func (c *Client) RetrySaga(ctx context.Context, id string, opts ...CallOption) (*Saga, error) {
	return post[Saga](ctx, c, at("/v1/sagas/%s/retry", id), nil, opts)
}

// CompensateSaga gives a pending operation up: what is not done is cancelled, what is done is undone. Code bad_transition: it
// has ended, or is decided to commit.
func (c *Client) CompensateSaga(ctx context.Context, id string, opts ...CallOption) (*Saga, error) {
	return post[Saga](ctx, c, at("/v1/sagas/%s/compensate", id), nil, opts)
}

// InDoubt lists the server's own prepared transactions in all ledgers' databases, and the ledgers that could not be asked.
func (c *Client) InDoubt(ctx context.Context, opts ...CallOption) (*Doubts, error) {
	return get[Doubts](ctx, c, "/v1/in-doubt", opts)
}

// Adopt lets the server's log, which is a copy or was restored to an earlier point, end its coordinator's prepared
// transactions from now on. Code coordinator_active: another incarnation of it is at work; stop that first.
func (c *Client) Adopt(ctx context.Context, opts ...CallOption) (*Adoption, error) {
	return post[Adoption](ctx, c, "/v1/in-doubt/adopt", nil, opts)
}

// ExecuteCrossLeg executes this server's leg of another server's transfer, once. Code bad_transition: the leg is to be undone and
// was not done.
func (c *Client) ExecuteCrossLeg(ctx context.Context, q CrossLegRequest, opts ...CallOption) (*CrossLeg, error) {
	return post[CrossLeg](ctx, c, "/v1/cross-legs", q, opts)
}
