package client

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/fairlead-dev/fairlead/client/api"
)

type (
	// CreateMultidrawRequest says what is drawn how often, and under which lock key.
	CreateMultidrawRequest = api.CreateMultidrawRequest
	// RangeRequest is the range of integers to draw from.
	RangeRequest = api.RangeRequest
	// WeightedPrize is a prize to draw from.
	WeightedPrize = api.WeightedPrize
	// Multidraw is an operation of many draws. Results or PrizeResults are there up to 1,000 draws.
	Multidraw = api.Multidraw
	// MultidrawSummary is a multi-draw in a list.
	MultidrawSummary = api.MultidrawSummary
)

// CreateMultidraw draws many times. It comes back completed; or running, where the request is async, or where the draws take
// longer than the server lets a call wait. Code lock_held: another operation has the lock key; it is retryable, so the client
// tries again for a while, unless [Retry] says otherwise.
func (c *Client) CreateMultidraw(ctx context.Context, q CreateMultidrawRequest, opts ...CallOption) (*Multidraw, error) {
	r, err := c.api.PostMultidrawsWithResponse(ctx, nil, q, opts...)
	if err != nil {
		return nil, err
	}
	if running := r.GetJSON202(); running != nil {
		return running, nil
	}
	return present(r.GetJSON201())
}

// GetMultidraw reads a multi-draw as it is.
func (c *Client) GetMultidraw(ctx context.Context, id string, opts ...CallOption) (*Multidraw, error) {
	return ok(c.api.GetMultidrawsIDWithResponse(ctx, id, opts...))
}

// Multidraws gives all multi-draws, oldest first, a page at a time.
func (c *Client) Multidraws(ctx context.Context, opts ...CallOption) iter.Seq2[MultidrawSummary, error] {
	return pages(func(after *string) ([]MultidrawSummary, *string, error) {
		list, err := ok(c.api.GetMultidrawsWithResponse(ctx, &api.GetMultidrawsParams{Limit: pageLimit(), After: after}, opts...))
		if err != nil {
			return nil, nil, err
		}
		return list.Items, list.Next, nil
	})
}

// ResumeMultidraw goes on with an interrupted multi-draw, which comes back running. Code bad_transition: it is not
// interrupted.
func (c *Client) ResumeMultidraw(ctx context.Context, id string, opts ...CallOption) (*Multidraw, error) {
	return ok(c.api.PostMultidrawsIDResumeWithResponse(ctx, id, nil, api.NoFields{}, opts...))
}

// RollbackMultidraw ends an interrupted or a completed multi-draw. What it had drawn stays readable. Code bad_transition: it
// is neither.
func (c *Client) RollbackMultidraw(ctx context.Context, id string, opts ...CallOption) (*Multidraw, error) {
	return ok(c.api.PostMultidrawsIDRollbackWithResponse(ctx, id, nil, api.NoFields{}, opts...))
}

// largestResultsPage is the most draws that a page can have.
const largestResultsPage = 10_000

// MultidrawInts gives the draws so far of a range, in order, a page at a time.
func (c *Client) MultidrawInts(ctx context.Context, id string, opts ...CallOption) iter.Seq2[int64, error] {
	return multidrawResults[int64](ctx, c, id, opts)
}

// MultidrawPrizes gives the ids of the prizes drawn so far, in order, a page at a time.
func (c *Client) MultidrawPrizes(ctx context.Context, id string, opts ...CallOption) iter.Seq2[string, error] {
	return multidrawResults[string](ctx, c, id, opts)
}

func multidrawResults[T any](ctx context.Context, c *Client, id string, opts []CallOption) iter.Seq2[T, error] {
	return pages(func(after *string) ([]T, *string, error) {
		r, err := c.api.GetMultidrawsIDResultsWithResponse(ctx, id, &api.GetMultidrawsIDResultsParams{Limit: new(int64(largestResultsPage)), After: after}, opts...)
		if err != nil {
			return nil, nil, err
		}
		// The generated type takes a draw for anything, and large integers for floating point.
		var page struct {
			Items []T     `json:"items"`
			Next  *string `json:"next"`
		}
		err = json.Unmarshal(r.GetBody(), &page)
		return page.Items, page.Next, err
	})
}
