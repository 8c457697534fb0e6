package redisstore_test

import (
	"context"
	"net/http"

	"github.com/redis/rueidis"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/idempotency/redisstore"
	"github.com/fairlead-dev/fairlead/redisclient/rueidisclient"
)

// Keys in Redis for an effect that is elsewhere, such as a charge at a bank: what a crash has left open is not executed
// again. The bank is asked for the charge that carries the key's id.
func Example() {
	guard := func(client rueidis.Client, receipt func(ctx context.Context, id idempotency.ID) ([]byte, bool, error)) (*idempotency.Middleware, error) {
		return idempotency.New(idempotency.Options{
			Store:     redisstore.New(rueidisclient.New(client), redisstore.Options{}),
			Principal: func(r *http.Request) string { return r.Header.Get("X-User") }, // whom your authentication has found
			OnCrash:   idempotency.ParkAsUnknown,
			Resolve: func(ctx context.Context, _ *http.Request, g idempotency.Grant) (*idempotency.Response, error) {
				text, charged, err := receipt(ctx, g.ID)
				if err != nil || !charged {
					return nil, err // Not charged: the request is executed now.
				}
				return &idempotency.Response{Status: http.StatusCreated, Body: text}, nil
			},
		})
	}
	_ = guard
	// Output:
}
