package idempotency_test

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/idempotency"
)

// A retry gets the first answer; another request under the same key is refused.
func Example() {
	key, err := idempotency.ParseKey(`"order-7"`)
	if err != nil {
		panic(err)
	}
	attempt := func(content string) idempotency.Request {
		return idempotency.Request{
			ID:          idempotency.NewID("user:alice", "POST", "/orders", key),
			Fingerprint: idempotency.NewFingerprint([]byte(content)),
			Execution:   uuid.New(),
		}
	}
	known := idempotency.NewBatch(nil) // Inside the transaction, with the records that it loaded.

	known.Store(attempt(`{"amount":5}`), 201, []byte(`{"id":1}`))

	answer, found, err := known.Lookup(attempt(`{"amount":5}`))
	fmt.Println(string(answer.Body), answer.Replayed, found, err)
	_, _, err = known.Lookup(attempt(`{"amount":6}`))
	fmt.Println(err)
	// Output:
	// {"id":1} true true <nil>
	// idempotency key was already used with a different request
}
