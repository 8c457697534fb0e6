package storetest

import (
	"context"
	"time"

	"github.com/fairlead-dev/fairlead/idempotency"
)

// Faulty is a store whose calls all go through Around, which may run the call or not. Method is the name of what is called.
// Where Around returns an error, the caller gets no answer, also when the call had its effect.
type Faulty struct {
	idempotency.Store

	Around func(method string, run func() error) error
}

func through[T any](f *Faulty, method string, run func() (T, error)) (out T, err error) {
	var got T
	if err = f.Around(method, func() (err error) { got, err = run(); return err }); err != nil {
		return out, err
	}
	return got, nil
}

// Begin implements [idempotency.Store].
func (f *Faulty) Begin(ctx context.Context, r idempotency.Request, t idempotency.Terms) (idempotency.Entry, error) {
	return through(f, "Begin", func() (idempotency.Entry, error) { return f.Store.Begin(ctx, r, t) })
}

// Look implements [idempotency.Store].
func (f *Faulty) Look(ctx context.Context, id idempotency.ID) (idempotency.Entry, error) {
	return through(f, "Look", func() (idempotency.Entry, error) { return f.Store.Look(ctx, id) })
}

// Extend implements [idempotency.Store].
func (f *Faulty) Extend(ctx context.Context, g idempotency.Grant, lease time.Duration) error {
	return f.Around("Extend", func() error { return f.Store.Extend(ctx, g, lease) })
}

// Complete implements [idempotency.Store].
func (f *Faulty) Complete(ctx context.Context, g idempotency.Grant, a idempotency.Response) (idempotency.Response, error) {
	return through(f, "Complete", func() (idempotency.Response, error) { return f.Store.Complete(ctx, g, a) })
}

// Release implements [idempotency.Store].
func (f *Faulty) Release(ctx context.Context, g idempotency.Grant) error {
	return f.Around("Release", func() error { return f.Store.Release(ctx, g) })
}
