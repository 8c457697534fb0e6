package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/idempotency/pgstore"
)

// A message from a queue that delivers it at least once has its effect once: the key is committed with it.
func ExampleStore_Do() {
	handle := func(ctx context.Context, pool *pgxpool.Pool, keys *pgstore.Store, message string, body []byte) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, _, err := keys.Do(ctx, tx, idempotency.Request{
				ID:          idempotency.NewID("orders", "message", "", message),
				Fingerprint: idempotency.NewFingerprint(body),
				Execution:   uuid.New(),
			}, func(ctx context.Context) (idempotency.Response, error) {
				_, err := tx.Exec(ctx, `UPDATE stock SET pieces = pieces - 1`)
				return idempotency.Response{Status: http.StatusOK}, err
			})
			return err
		})
	}
	_ = handle
	fmt.Println(len(pgstore.SchemaSQL()) > 0)
	// Output: true
}

// A handler behind the middleware that completes its key in the transaction of its effect: whatever dies, there is at most
// one order a key.
func ExampleStore_CompleteIn() {
	routes := func(pool *pgxpool.Pool) (http.Handler, error) {
		keys := pgstore.New(pool, pgstore.Options{})
		guard, err := idempotency.New(idempotency.Options{Store: keys, Principal: idempotency.Everybody})
		if err != nil {
			return nil, err
		}
		return guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := r.Context()
			grant, _ := idempotency.FromContext(ctx)
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				var id int64
				if err := tx.QueryRow(ctx, `INSERT INTO orders DEFAULT VALUES RETURNING id`).Scan(&id); err != nil {
					return err
				}
				return keys.CompleteIn(ctx, tx, grant, idempotency.Response{Status: http.StatusCreated, Body: fmt.Append(nil, id)})
			})
			if err != nil && !errors.Is(err, idempotency.ErrLost) {
				// Not kept, and so not in the way of a retry. If the commit has succeeded after all, its answer is sent instead.
				http.Error(w, "try again", http.StatusServiceUnavailable)
			}
		})), nil
	}
	_ = routes
	// Output:
}
