package client

import (
	"context"
	"iter"
	"net/http"
)

// CreateMultidraw draws many times. It comes back completed; or running, where the request is async, or where the draws take
// longer than the server lets a call wait. Code lock_held: another operation has the lock key; it is retryable, so the client
// tries again for a while, unless [Retry] says otherwise.
func (c *Client) CreateMultidraw(ctx context.Context, q CreateMultidrawRequest, opts ...CallOption) (*Multidraw, error) {
	return post[Multidraw](ctx, c, "/v1/multidraws", q, opts)
}

// GetMultidraw reads a multi-draw as it is.
func (c *Client) GetMultidraw(ctx context.Context, id string, opts ...CallOption) (*Multidraw, error) {
	return get[Multidraw](ctx, c, at("/v1/multidraws/%s", id), opts)
}

// Multidraws gives all multi-draws, oldest first, a page at a time.
func (c *Client) Multidraws(ctx context.Context, opts ...CallOption) iter.Seq2[MultidrawSummary, error] {
	return pages[MultidrawSummary](ctx, c, opts, "/v1/multidraws")
}

// ResumeMultidraw goes on with an interrupted multi-draw, which comes back running. Code bad_transition: it is not
// interrupted.
func (c *Client) ResumeMultidraw(ctx context.Context, id string, opts ...CallOption) (*Multidraw, error) {
	return post[Multidraw](ctx, c, at("/v1/multidraws/%s/resume", id), nil, opts)
}

// RollbackMultidraw ends an interrupted or a completed multi-draw. What it had drawn stays readable. Code bad_transition: it
// is neither.
func (c *Client) RollbackMultidraw(ctx context.Context, id string, opts ...CallOption) (*Multidraw, error) {
	return post[Multidraw](ctx, c, at("/v1/multidraws/%s/rollback", id), nil, opts)
}

// largestResultsPage is the most draws that a page can have.
const largestResultsPage = 10_000

// MultidrawInts gives the draws so far of a range, in order, a page at a time.
func (c *Client) MultidrawInts(ctx context.Context, id string, opts ...CallOption) iter.Seq2[int64, error] {
	return pagesOf[int64](ctx, c, opts, largestResultsPage, at("/v1/multidraws/%s/results", id))
}

// MultidrawPrizes gives the ids of the prizes drawn so far, in order, a page at a time.
func (c *Client) MultidrawPrizes(ctx context.Context, id string, opts ...CallOption) iter.Seq2[string, error] {
	return pagesOf[string](ctx, c, opts, largestResultsPage, at("/v1/multidraws/%s/results", id))
}

// MultidrawProof reads the document that fairlead verify checks, byte for byte. Code not_drawn: not everything is drawn.
func (c *Client) MultidrawProof(ctx context.Context, id string, opts ...CallOption) ([]byte, error) {
	return c.do(ctx, http.MethodGet, at("/v1/multidraws/%s/proof", id), nil, opts)
}
