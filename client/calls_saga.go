package client

import (
	"context"
	"iter"
	"strconv"
)

// SagaFilter narrows the list of sagas; its zero value lists all.
type SagaFilter struct {
	Name   string // of the definition, such as cross-transfer
	Status string // pending, completed, failed or compensated
	Stuck  bool   // only those that make no progress
}

// Sagas gives operations of several steps, oldest first, a page at a time.
func (c *Client) Sagas(ctx context.Context, f SagaFilter, opts ...CallOption) iter.Seq2[Saga, error] {
	return pages[Saga](ctx, c, opts, "/v1/sagas", "name", f.Name, "status", f.Status, "stuck", strconv.FormatBool(f.Stuck))
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
