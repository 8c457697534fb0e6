//go:build unix

package explore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairlead-dev/fairlead/idempotency"
	"github.com/fairlead-dev/fairlead/idempotency/pgstore"
	"github.com/fairlead-dev/fairlead/internal/sim"
)

// handlers has two processes serve orders behind the idempotency middleware, and two clients send the same orders to both, until they
// have an answer.
func handlers() Scenario {
	const orders = 2
	return Scenario{
		Kills: true, Stall: 3 * time.Second, Unbooked: true,
		Install: func(ctx context.Context, db *pgx.Conn) error {
			return errors.Join(pgstore.Install(ctx, db, library), execute(ctx, db,
				`CREATE TABLE library.orders (id bigint GENERATED ALWAYS AS IDENTITY, key text)`))
		},
		Play: func(ctx context.Context, w *World) {
			ordering, over := context.WithCancel(ctx)
			for _, name := range servers(0) {
				w.Process(ctx, name, func(ctx context.Context, pool *pgxpool.Pool) error {
					h, err := orderHandler(pool)
					if err != nil {
						return err
					}
					w.Serve(name, h)
					select {
					case <-ordering.Done():
					case <-ctx.Done():
					}
					return nil
				})
			}
			var all []*sim.Op
			for n := range orders {
				all = append(all, sim.NewOp("order", "/orders", fmt.Sprintf("order-%d", n), map[string]int{"n": n}))
			}
			left := make(chan struct{}, 2)
			for i := range cap(left) {
				c := w.Client(fmt.Sprintf("c%d", i+1), servers(i)...)
				w.Go(func() error {
					defer func() { left <- struct{}{} }()
					for _, op := range all {
						if a, err := c.Settle(ctx, op); err != nil || a.Status != http.StatusCreated {
							return fmt.Errorf("%s: %v: %w", op, a, err)
						}
					}
					return nil
				})
			}
			w.Go(func() error {
				for range cap(left) {
					<-left
				}
				over()
				return nil
			})
		},
		Check: func(ctx context.Context, _ *World, db *pgx.Conn) error {
			var n, distinct int
			err := db.QueryRow(ctx, `SELECT count(*), count(DISTINCT key) FROM library.orders`).Scan(&n, &distinct)
			if err == nil && (n != orders || distinct != orders) {
				err = fmt.Errorf("%d orders for %d keys of %d", n, distinct, orders)
			}
			return err
		},
	}
}

// orderHandler takes orders, each of which is committed with its answer.
func orderHandler(pool *pgxpool.Pool) (http.Handler, error) {
	store := pgstore.New(pool, pgstore.Options{Schema: library})
	guard, err := idempotency.New(idempotency.Options{Store: store, Principal: idempotency.Everybody, Scope: idempotency.PerRoute, Lease: 2 * time.Second})
	if err != nil {
		return nil, err
	}
	return guard.Wrap(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		grant, _ := idempotency.FromContext(ctx)
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			var id int64
			if err := tx.QueryRow(ctx, `INSERT INTO library.orders (key) VALUES ($1) RETURNING id`, r.Header.Get(idempotency.KeyHeader)).Scan(&id); err != nil {
				return err
			}
			return store.CompleteIn(ctx, tx, grant, idempotency.Response{
				Status: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: fmt.Appendf(nil, `{"id":%d}`, id),
			})
		})
		if err != nil {
			out.Header().Set("Content-Type", "application/problem+json")
			out.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprint(out, `{"code":"again","retryable":true}`)
		}
	})), nil
}
