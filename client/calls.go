package client

import (
	"context"
	"errors"
	"iter"

	"github.com/fairlead-dev/fairlead/client/api"
)

// errNotJSON is returned when a success carries no document: what answered was no Fairlead server.
var errNotJSON = errors.New("client: the answer is not the JSON document that was expected")

// RegisterKey makes an API key known by the SHA-256 of its secret, which the server never sees.
func (c *Client) RegisterKey(ctx context.Context, q CreateKeyRequest, opts ...CallOption) (*APIKey, error) {
	return created(c.api.PostKeysWithResponse(ctx, nil, q, opts...))
}

// RevokeKey revokes an API key for good; in force everywhere within 5 s.
func (c *Client) RevokeKey(ctx context.Context, id string, opts ...CallOption) (*APIKey, error) {
	return ok(c.api.DeleteKeysIDWithResponse(ctx, id, nil, opts...))
}

// APIKeys yields all API keys, oldest first, revoked ones too. It ends with the first error.
func (c *Client) APIKeys(ctx context.Context, opts ...CallOption) iter.Seq2[APIKey, error] {
	return pages(func(after *string) ([]APIKey, *string, error) {
		page, err := ok(c.api.GetKeysWithResponse(ctx, &api.GetKeysParams{Limit: pageLimit(), After: after}, opts...))
		if err != nil {
			return nil, nil, err
		}
		return page.Items, page.Next, nil
	})
}

// Ready returns nil when the server takes commands; it is tried, like any call, until it does.
func (c *Client) Ready(ctx context.Context, opts ...CallOption) error {
	_, err := ok(c.api.GetReadyzWithResponse(ctx, opts...))
	return err
}

// created takes the document out of a 201.
func created[T any, R interface{ GetJSON201() *T }](r R, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return present(r.GetJSON201())
}

// ok takes the document out of a 200.
func ok[T any, R interface{ GetJSON200() *T }](r R, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return present(r.GetJSON200())
}

func present[T any](document *T) (*T, error) {
	if document == nil {
		return nil, errNotJSON
	}
	return document, nil
}

// largestPage is the most items that a page can have.
const largestPage = 200

func pageLimit() *int64 { return new(int64(largestPage)) }

// pages makes one sequence of a list's pages. It ends with the first error.
func pages[T any](fetch func(after *string) ([]T, *string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var after *string
		for {
			items, next, err := fetch(after)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if next == nil {
				return
			}
			after = next
		}
	}
}
