package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/idempotency/pgstore"
)

// newShop is the shop's HTTP handler: whatever of it changes something stands behind the middleware.
func newShop(pool *pgxpool.Pool) http.Handler {
	keys := pgstore.New(pool, pgstore.Options{Schema: schema})
	once, err := idempotency.New(idempotency.Options{
		Store:     keys,
		Principal: func(r *http.Request) string { return r.Header.Get("X-Customer") }, // Whom your authentication has found.
	})
	check(err)
	mux := http.NewServeMux()
	mux.Handle("POST /orders", once.Wrap(placeOrder(pool, keys)))
	return mux
}

// placeOrder writes the order and the answer to its key in one transaction: there is both or neither, whatever dies.
func placeOrder(pool *pgxpool.Pool, keys *pgstore.Store) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, item := r.Context(), r.PostFormValue("item")
		if item == "" {
			http.Error(w, "what shall we print?", http.StatusBadRequest)
			return
		}
		grant, _ := idempotency.FromContext(ctx) // It is there: the middleware refuses requests without a key.
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			var id int64
			if err := tx.QueryRow(ctx, `INSERT INTO printshop.orders (item) VALUES ($1) RETURNING id`, item).Scan(&id); err != nil {
				return err
			}
			answer := idempotency.Response{Status: http.StatusCreated, Body: fmt.Appendf(nil, `{"order":%d}`, id)}
			return keys.CompleteIn(ctx, tx, grant, answer)
		})
		// Without an error, the middleware sends what was kept. ErrLost: another request has the key now, and its answer
		// is sent.
		if err != nil && !errors.Is(err, idempotency.ErrLost) {
			http.Error(w, "try again", http.StatusServiceUnavailable)
		}
	}
}

// takeOrders is a customer with a bad connection: the same order is sent three times, another one once.
func takeOrders(ctx context.Context, pool *pgxpool.Pool) {
	shop := httptest.NewServer(newShop(pool))
	defer shop.Close()
	poster, flyer := uuid.NewString(), uuid.NewString() // Made when the button was pressed, not when the request is sent.
	answers := make(map[string]int)
	for _, o := range []struct{ key, item string }{{poster, "poster"}, {poster, "poster"}, {poster, "poster"}, {flyer, "flyer"}} {
		answers[order(ctx, shop.URL, o.key, o.item)]++
	}
	fmt.Printf("orders: sent 4 times, %d made\n", len(answers))
}

// order sends one order and returns the body of its answer.
func order(ctx context.Context, shop, key, item string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, shop+"/orders", strings.NewReader("item="+item))
	check(err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("X-Customer", "ann")
	resp, err := http.DefaultClient.Do(req)
	check(err)
	text, err := io.ReadAll(resp.Body)
	if check(errors.Join(err, resp.Body.Close())); resp.StatusCode != http.StatusCreated {
		panic(fmt.Sprintf("order %s: %s: %s", item, resp.Status, text))
	}
	return string(text)
}
