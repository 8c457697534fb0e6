package client

import (
	"context"
	"iter"

	"github.com/fairlead-dev/fairlead/client/api"
)

// The documents of operations of several steps.
type (
	// Saga is an operation of several steps and how far it has come.
	Saga = api.Saga
	// Doubts are the prepared transactions that are not ended yet.
	Doubts = api.Doubts
	// Adoption says of which coordinator, in which ledgers, a log has taken the place.
	Adoption = api.Adoption
	// CrossLegRequest is a ledger's leg of another server's transfer.
	CrossLegRequest = api.CrossLegRequest
	// CrossLeg is what became of a leg.
	CrossLeg = api.CrossLeg
)

// SagaFilter narrows the list of sagas; its zero value lists all.
type SagaFilter struct {
	Name   string // of the definition, such as cross-transfer
	Status string // pending, completed, failed or compensated
	Stuck  bool   // only those that fail to get on
}

// Sagas gives operations of several steps, oldest first, a page at a time.
func (c *Client) Sagas(ctx context.Context, f SagaFilter, opts ...CallOption) iter.Seq2[Saga, error] {
	return pages(func(after *string) ([]Saga, *string, error) {
		q := api.GetSagasParams{Limit: pageLimit(), After: after, Stuck: &f.Stuck}
		if f.Name != "" {
			q.Name = &f.Name
		}
		if f.Status != "" {
			q.Status = &f.Status
		}
		list, err := ok(c.api.GetSagasWithResponse(ctx, &q, opts...))
		if err != nil {
			return nil, nil, err
		}
		return list.Items, list.Next, nil
	})
}

// GetSaga reads an operation of several steps.
func (c *Client) GetSaga(ctx context.Context, id string, opts ...CallOption) (*Saga, error) {
	return ok(c.api.GetSagasIDWithResponse(ctx, id, opts...))
}

// RetrySaga lets a pending operation be tried at once. Code bad_transition: it has ended.
func (c *Client) RetrySaga(ctx context.Context, id string, opts ...CallOption) (*Saga, error) {
	return ok(c.api.PostSagasIDRetryWithResponse(ctx, id, nil, api.NoFields{}, opts...))
}

// CompensateSaga gives a pending operation up: what is not done is cancelled, what is done is undone. Code bad_transition: it
// has ended, or is decided to commit.
func (c *Client) CompensateSaga(ctx context.Context, id string, opts ...CallOption) (*Saga, error) {
	return ok(c.api.PostSagasIDCompensateWithResponse(ctx, id, nil, api.NoFields{}, opts...))
}

// InDoubt lists the prepared transactions of the server's own in every ledger's database, and the ledgers that could not be
// asked.
func (c *Client) InDoubt(ctx context.Context, opts ...CallOption) (*Doubts, error) {
	return ok(c.api.GetInDoubtWithResponse(ctx, opts...))
}

// Adopt lets the server's log, which is a copy or was restored to an earlier point, end its coordinator's prepared
// transactions from now on. Code coordinator_active: another incarnation of it is at work; stop that first.
func (c *Client) Adopt(ctx context.Context, opts ...CallOption) (*Adoption, error) {
	return ok(c.api.PostInDoubtAdoptWithResponse(ctx, nil, api.NoFields{}, opts...))
}

// ExecuteCrossLeg executes the server's leg of another's transfer, once; [Client.Ledger] does so for a whole transfer. Code
// bad_transition: a leg is to be undone that was not done.
func (c *Client) ExecuteCrossLeg(ctx context.Context, q CrossLegRequest, opts ...CallOption) (*CrossLeg, error) {
	return ok(c.api.PostCrossLegsWithResponse(ctx, nil, q, opts...))
}
